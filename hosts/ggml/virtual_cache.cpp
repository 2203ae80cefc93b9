// The order in which the parts do their share.
#include "virtual_cache.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

#include "format_bits.hpp"
#include "ggml_api.hpp"
#include "key_shift.hpp"
#include "kv_config.hpp"
#include "number_variables.hpp"
#include "state_rows.hpp"
#include "translate.hpp"

namespace winnow::ggml {

VirtualCache::VirtualCache(Context& context, const KvConfig& config, std::vector<LayerRoots> layers)
    : config_(config), shape_(std::move(layers)), cache_(context, shape_), streams_(shape_),
      arrivals_(shape_.cells(), shape_.streams()), figures_(cache_), steps_(cache_, streams_, arrivals_, figures_),
      states_(shape_) {}

void VirtualCache::note_windows(const std::shared_ptr<VirtualCache>& base) {
    has_windows_ = true;
    base_ = base;
    if (base) arrivals_.join(base->arrivals_);
}

void VirtualCache::check_rules(const std::string& computed_mask) {
    if (shape_.has_computed_masks()) return; // there is one for them
    cache_.check_rules(rules(), computed_mask);
    if (!computed_mask.empty()) shape_.note_computed_masks();
}

void VirtualCache::make() {
    const std::optional<int64_t> from = decode_from();
    cache_.make(rules());
    try {
        streams_.make(cache_.meaning().sinks, has_windows_, from);
        figures_.make(has_windows_);
    } catch (...) { // the cache is made whole or not at all
        cache_.destroy();
        throw;
    }
}

// Once, at the first attention.
void VirtualCache::check_keys() {
    if (std::exchange(are_keys_checked_, true) || !has_biased_keys_) return;
    if (const std::string warning = warning_of_biased_keys(cache_.meaning()); !warning.empty())
        log_line(GGML_LOG_LEVEL_WARN, "%s: %s", shape_.name(), warning.c_str());
}

void VirtualCache::set_rows(const ggml_tensor* root, const ggml_tensor* node, Counters& counters) {
    if (root->type != GGML_TYPE_F16 && root->type != GGML_TYPE_BF16) {
        throw std::runtime_error(
            std::string(root->name) + " is of type " + ggml().type_name(root->type) +
            "; with WINNOW_KV, which says how keys and values are stored, expected f16 or bf16 (no "
            "-ctk and -ctv)");
    }
    if (!are_keys_checked_ && shape_.is_keys(root)) has_biased_keys_ |= stores_biased_keys(node);
    restore_pending();
    reader_.end();
    if (states_.has_set_aside() && root == shape_.layers().front().k) drop_overwritten(DeferredRows(root, node));
    failing_if_incomplete([&] { steps_.defer(root, node, counters); });
}

void VirtualCache::drop_overwritten(const DeferredRows& rows) {
    std::map<int64_t, std::vector<int64_t>> cells; // of each stream
    for (int64_t i = 0; i < rows.tokens(); ++i) cells[rows.stream_of(i)].push_back(rows.cells(i, 1).front());
    for (const auto& [stream, its] : cells)
        for (const CellRange& range : to_ranges(its)) states_.drop(stream, range);
}

void VirtualCache::attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters) {
    shape_.check_supported(node, sdpa.desc());
    if (!cache_.is_made()) make();
    check_keys();
    restore_pending();
    if (states_.has_set_aside()) restore_seen(node);
    failing_if_incomplete([&] { steps_.attend(node, sdpa, counters); });
}

// What fails in the middle leaves other rows than llama.cpp believes.
template <typename Action>
void VirtualCache::with_sticky_error(Action&& action) {
    if (!failed_.empty()) throw std::runtime_error(failed_);
    try {
        action();
    } catch (const std::exception& error) {
        failed_ = error.what();
        throw;
    }
}

// A step that was refused has changed nothing; one that failed in the middle may have.
template <typename Action>
void VirtualCache::failing_if_incomplete(Action&& action) {
    try {
        action();
    } catch (const IncompleteError& error) {
        failed_ = error.what();
        throw;
    }
}

// States that were written become tokens, as soon as heads and their sizes are known. So llama.cpp also wipes the cells
// of a state that it could not read to its end; such rows take nobody's room unless a token sees them.
void VirtualCache::restore_pending() {
    with_sticky_error([&] {
        states_.end_state();
        if (!cache_.is_made()) return;
        for (PendingStates::State& state : states_.take()) {
            if (state.is_zero())
                set_aside(std::move(state));
            else
                restore(state);
        }
    });
}

// What llama.cpp removed before it wrote the state goes now. When a token sees the state, the stream may have tokens of
// that token's batch already, which have to stay.
void VirtualCache::set_aside(PendingStates::State state) {
    remove_what_base_lacks(state.stream);
    figures_.note_removal(shape_.cells(), streams_.tokens());
    const std::vector<int32_t>& cells = state.rows_of.begin()->second.cells;
    std::vector<CellRange> gone = to_ranges({cells.begin(), cells.end()});
    if (shape_.streams() > 1) gone = {{0, shape_.cells()}}; // a stream of one sequence
    for (const CellRange& range : gone) remove(state.stream, range);
    states_.set_aside(std::move(state));
}

void VirtualCache::restore_seen(const ggml_tensor* node) {
    const ggml_tensor *k = node->src[1], *root = root_of(k);
    const int64_t first = offset_in(root, k->data) / static_cast<int64_t>(root->nb[2]), tokens = node->src[0]->ne[1];
    with_sticky_error([&] {
        for (int64_t i = 0; i < k->ne[3]; ++i)
            for (const PendingStates::State& state : states_.take_seen(first + i, MaskSlice(node->src[3], i), tokens))
                restore(state);
    });
}

void VirtualCache::restore(const PendingStates::State& state) {
    try {
        const std::vector<int32_t>& cells = cells_of(shape_, state);
        for (const CellRange& range : to_ranges({cells.begin(), cells.end()})) states_.drop(state.stream, range);
        if (!state.is_set_aside) remove_what_base_lacks(state.stream);
        const CellTracker::Opening opening = streams_.restore(state.stream, cells, !state.is_set_aside);
        figures_.note_removal(opening.dead_cells(), opening.dead_cells() + streams_.tokens());
        cache_.apply(opening, state.stream);
        for (const CellRange& range : opening.dead) arrivals_.forget(range);
        import_state(cache_, state);
        arrivals_.take_state(cells, state.number.value_or(0));
        figures_.note_restored(cells.size());
    } catch (const IncompleteError&) {
        throw;
    } catch (const std::exception& error) {
        lose(state, error.what());
    }
}

// llama.cpp removes a sequence from both caches of a model. The one without windows notices that sooner: there the
// first token of a sequence stays until all of it is gone. Before its first attention it has noticed nothing.
void VirtualCache::remove_what_base_lacks(int64_t stream) {
    const std::shared_ptr<VirtualCache> base = base_.lock();
    if (!base || !base->cache_.is_made()) return;
    base->restore_pending();
    const std::vector<int64_t> gone = arrivals_.gone_from(base->arrivals_, base->states_.numbers_set_aside());
    for (const CellRange& range : to_ranges(gone)) remove(stream, range);
}

// Of a state that was refused, or for which there is no room, nothing stays, so that only who needs it fails.
void VirtualCache::lose(const PendingStates::State& state, const std::string& reason) {
    std::vector<int32_t> cells;
    for (const auto& [root, rows] : state.rows_of) cells.insert(cells.end(), rows.cells.begin(), rows.cells.end());
    for (const CellRange& range : to_ranges({cells.begin(), cells.end()})) remove(state.stream, range);
    streams_.lose(state.stream, cells, reason);
    log_line(GGML_LOG_LEVEL_ERROR, "a state was refused; its sequence fails until it is removed: %s", reason.c_str());
}

void VirtualCache::remove(int64_t stream, const CellRange& cells) {
    cache_.expect(cache_.caches().remove(cache_.get(), stream, cells.begin, cells.end));
    streams_.remove(stream, cells);
    arrivals_.forget(cells);
}

void VirtualCache::read(const ggml_tensor* root, char* data, size_t offset, size_t size) {
    if (!failed_.empty()) throw std::runtime_error(failed_);
    states_.end_state();
    arrivals_.end_state();
    std::vector<char> rows;
    shape_.each_stream(root, offset, size, [&](int64_t stream, int64_t first, int64_t count) {
        // Records of a state and of other tokens do not go together. A state that is read alone is as it was written.
        if (!states_.covers(root, stream, {first, first + count})) restore_pending();
        std::vector<char> its = empty_rows(root, count);
        if (cache_.is_made()) {
            reader_.read(cache_, root, stream, first, its);
            for (int64_t i = 0; i < count; ++i) // no state of what is lost is taken for a whole one
                if (streams_.lost(stream).has(first + i))
                    fill_damaged(&its[static_cast<size_t>(i) * root->nb[1]], root->nb[1]);
        }
        states_.read(root, stream, first, its);
        rows.insert(rows.end(), its.begin(), its.end());
    });
    std::memcpy(data, rows.data() + offset % root->nb[1], size);
}

void VirtualCache::write(const ggml_tensor* root, const char* data, size_t offset, size_t size) {
    reader_.end();
    states_.write(root, data, offset, size);
    if (PendingStates::State* state = states_.newest(); state && !state->number)
        state->number = arrivals_.begin_state(base_.expired());
}

void VirtualCache::wipe(const ggml_tensor* root, size_t offset, size_t size) {
    shape_.each_stream(root, offset, size, [&](int64_t stream, int64_t first, int64_t count) {
        const CellRange cells{first, first + count};
        states_.drop(stream, cells);
        if (!cache_.is_made()) return;
        figures_.note_removal(count, streams_.tokens());
        remove(stream, cells);
    });
}

void VirtualCache::shift(const ggml_tensor* node) {
    with_sticky_error([&] { // a state that came before any attention; where one was planned, the heads are known
        if (!cache_.is_made() && !states_.empty() && shape_.kv_heads() > 0) make();
    });
    restore_pending();
    with_sticky_error([&] {
        if (cache_.is_made()) {
            shift_keys(cache_, streams_, node);
        } else if (!states_.empty()) {
            throw std::runtime_error(std::string(node->name) + ": a state of " + node->src[0]->view_src->name +
                                     " is shifted before any attention over it was planned");
        }
    });
}

void VirtualCache::clear() {
    steps_.drop_deferred();
    states_.clear();
    reader_.end();
    arrivals_.forget_all();
    failed_.clear();
    if (!cache_.is_made()) return;
    figures_.end_sequences();
    cache_.reset();
    streams_.clear();
}

void VirtualCache::copy_stream(int64_t from, int64_t to) {
    restore_pending();
    states_.copy(from, to);
    if (!cache_.is_made()) return;
    figures_.note_removal(shape_.cells(), streams_.tokens()); // what `to` had
    cache_.expect(cache_.caches().copy(cache_.get(), from, to));
    streams_.copy(from, to);
}

std::optional<CacheFigures> VirtualCache::figures() {
    if (!cache_.is_made()) return std::nullopt;
    return figures_.now(streams_.tokens_seen());
}

} // namespace winnow::ggml
