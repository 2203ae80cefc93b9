// From an attention node and the rows that were deferred for it to steps.
#include "layer_steps.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "ggml_api.hpp"
#include "tensors.hpp"

namespace winnow::ggml {

namespace {

// Slice `index` of the outermost axis.
winnow_tensor slice_of(const winnow_tensor& all, int64_t index) {
    winnow_tensor one = all;
    one.data = static_cast<char*>(all.data) + (index % all.shape[0]) * all.stride[0];
    one.shape[0] = 1;
    return one;
}

// Tokens of [1, heads, tokens, size], or of a mask.
winnow_tensor tokens_of(const winnow_tensor& all, int64_t first, int64_t count) {
    winnow_tensor some = all;
    some.data = static_cast<char*>(all.data) + first * all.stride[2];
    some.shape[2] = count;
    return some;
}

// Elements of [1, 1, 1, count].
winnow_tensor elements_of(const winnow_tensor& all, int64_t first, int64_t count) {
    winnow_tensor some = all;
    some.data = static_cast<char*>(all.data) + first * all.stride[3];
    some.shape[3] = count;
    return some;
}

std::span<const int32_t> ids_of(const winnow_tensor& cells) {
    return {static_cast<const int32_t*>(cells.data), static_cast<size_t>(cells.shape[3])};
}

winnow_cache_step_desc step_of(size_t layer) {
    winnow_cache_step_desc step{};
    step.struct_size = sizeof step;
    step.layer = static_cast<int64_t>(layer);
    return step;
}

winnow_cache_step_desc step_of(size_t layer, const winnow_sdpa_desc& sdpa) {
    winnow_cache_step_desc step = step_of(layer);
    step.scale = sdpa.scale;
    step.softcap = sdpa.softcap;
    step.head_sink = sdpa.head_sink;
    step.mask_slopes = sdpa.mask_slopes;
    return step;
}

winnow_cache_entry entry_of(int64_t stream) {
    winnow_cache_entry entry{};
    entry.struct_size = sizeof entry;
    entry.sequence = stream;
    return entry;
}

} // namespace

LayerSteps::LayerSteps(CacheHandle& cache, Streams& streams, Arrivals& arrivals, FigureCollector& figures)
    : cache_(cache), shape_(cache.shape()), streams_(streams), arrivals_(arrivals), figures_(figures),
      layers_(shape_.layers().size()) {}

void LayerSteps::run(winnow_cache_step_desc step, winnow_cache_entry entry) {
    entry.count = (step.k != nullptr ? step.k : step.q)->shape[2];
    step.entries = &entry;
    step.entry_count = 1;
    step.entry_stride = sizeof entry;
    if (AttentionProfile* profile = figures_.profile(); profile && step.cells)
        profile->append(step.layer, entry.sequence, ids_of(*step.cells));
    cache_.expect(cache_.caches().step(cache_.get(), &step, nullptr));
}

bool LayerSteps::is_whole(size_t layer) const {
    return layers_[layer].k && (layers_[layer].v || !shape_.layers()[layer].v);
}

void LayerSteps::defer(const ggml_tensor* root, const ggml_tensor* node, Counters& counters) {
    const size_t layer = shape_.layer_of(root);
    std::optional<DeferredRows>& rows = shape_.is_keys(root) ? layers_[layer].k : layers_[layer].v;
    if (rows && is_whole(layer) && cache_.is_made()) append_all(layer, counters);
    if (rows)
        throw std::runtime_error(std::string(root->name) +
                                 " is written twice before an attention over it, expected once");
    rows.emplace(root, node);
}

void LayerSteps::end_graph(Counters& counters) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
        if (!has_deferred(layer)) continue;
        if (cache_.is_made() && is_whole(layer)) {
            append_all(layer, counters);
            continue;
        }
        if (layers_[layer].k) layers_[layer].k->detach();
        if (layers_[layer].v) layers_[layer].v->detach();
    }
}

void LayerSteps::drop_deferred() {
    for (Layer& layer : layers_) layer = {};
}

// Before anything changes; once for a batch where its layers have one mask.
void LayerSteps::expect_present(const ggml_tensor* mask, const Slice& slice) {
    const LostCells& lost = streams_.lost(slice.stream);
    if (lost.empty()) return;
    const std::optional<DeferredRows>& keys = layers_[slice.layer].k;
    if (keys && is_mask_common() && streams_.is_checked(slice.layer, slice.stream, mask, slice.index)) return;
    std::vector<int32_t> own;
    for (int64_t i = 0; keys && i < keys->tokens(); ++i)
        if (keys->stream_of(i) == slice.stream) own.push_back(keys->cells(i, 1).front());
    std::sort(own.begin(), own.end());
    lost.expect_unseen(MaskSlice(mask, slice.index), slice.tokens, own);
    if (keys) streams_.note_checked(slice.stream, mask, slice.index);
}

// Whether the rows are those of the attention's slices, in this order.
bool LayerSteps::is_aligned(size_t layer, int64_t first_stream, int64_t slices, int64_t tokens) const {
    const DeferredRows& keys = *layers_[layer].k;
    if (keys.tokens() != slices * tokens) return false;
    for (int64_t i = 0; i < slices * tokens; ++i) {
        if (keys.stream_of(i) != first_stream + i / tokens) return false;
    }
    return true;
}

LayerSteps::Rows LayerSteps::rows_of(size_t layer, int64_t first, int64_t count) {
    const DeferredRows& keys = *layers_[layer].k;
    const std::optional<DeferredRows>& values = layers_[layer].v;
    const std::vector<int32_t> cells = keys.cells(first, count);
    if (values && values->cells(first, count) != cells) {
        throw std::runtime_error(std::string(values->root()->name) +
                                 ": values for other cells than the keys, expected the same cells");
    }
    const char* bytes = reinterpret_cast<const char*>(cells.data());
    staging_.emplace_back(bytes, bytes + cells.size() * sizeof(int32_t));
    const int64_t heads = shape_.kv_heads(), size = shape_.head_size(), v_size = shape_.v_head_size();
    Rows rows;
    rows.cells = flat(WINNOW_TYPE_I32, sizeof(int32_t), staging_.back().data(), count);
    rows.k = keys.tensor(first, count, heads, size, size, 0);
    rows.v = values ? values->tensor(first, count, heads, v_size, v_size, 0)
                    : keys.tensor(first, count, heads, v_size, size, shape_.v_skip());
    return rows;
}

// The mask of a new batch, or of one that began without an attention.
void LayerSteps::take_mask(const ggml_tensor* mask, const Slice& slice, const Rows& rows, bool begins) {
    const std::span<const int32_t> cells = ids_of(rows.cells);
    if (!begins) {
        streams_.take_mask(slice.stream, cells, mask, slice.index);
        return;
    }
    const CellTracker::Opening opening = streams_.open(slice.stream, cells, mask, slice.index);
    figures_.note_removal(opening.dead_cells(), opening.dead_cells() + streams_.tokens());
    cache_.apply(opening, slice.stream);
    for (const CellRange& range : opening.dead) arrivals_.forget(range);
    arrivals_.take_batch(cells);
    if (opening.taken_back >= least_taken_back) figures_.note_reuse(slice.stream, cells, MaskSlice(mask, slice.index));
}

// The deferred rows of a slice, and its mask; none where nothing is deferred.
std::optional<LayerSteps::Rows> LayerSteps::prepare(const ggml_tensor* mask, const Slice& slice) {
    if (!layers_[slice.layer].k) return std::nullopt;
    const Rows rows = rows_of(slice.layer, slice.index * slice.tokens, slice.tokens);
    const bool begins = streams_.begins_batch(slice.layer, slice.stream);
    if (begins || !streams_.has_mask(slice.stream) || !is_mask_common()) take_mask(mask, slice, rows, begins);
    return rows;
}

void LayerSteps::attend_slice(const winnow_sdpa_desc& sdpa, const Slice& slice, const std::optional<Rows>& rows) {
    winnow_cache_step_desc step = step_of(slice.layer, sdpa);
    winnow_cache_entry entry = entry_of(slice.stream);
    const winnow_tensor q = slice_of(*sdpa.q, slice.index), out = slice_of(*sdpa.out, slice.index);
    step.q = &q;
    step.out = &out;
    if (rows) {
        step.k = &rows->k;
        step.v = &rows->v;
        step.cells = &rows->cells;
    }
    const winnow_tensor mask = slice_of(*sdpa.attn_mask, slice.index);
    entry.attn_mask = &mask;
    if (step.k && streams_.sees_ahead(slice.stream)) { // all of them have to be there before the first attends
        winnow_cache_step_desc append = step_of(slice.layer);
        append.k = step.k;
        append.v = step.v;
        append.cells = step.cells;
        run(append, entry_of(slice.stream));
        step.k = step.v = step.cells = nullptr;
    }
    if (step.k)
        run_as_decoded(step, entry, slice);
    else // they are there already
        run_attention(step, entry);
}

// Whether one step can be for all slices: none has to be split, and neither a profile nor rows are recorded.
bool LayerSteps::can_step_together(const std::vector<Slice>& slices) const {
    const bool has_rows = layers_[slices.front().layer].k.has_value();
    return slices.size() > 1 && !figures_.profile() && !figures_.records_rows() &&
           std::all_of(slices.begin(), slices.end(), [&](const Slice& each) {
               return !has_rows || (!streams_.sees_ahead(each.stream) &&
                                    (each.tokens == 1 || streams_.taken_at_once(each.stream) >= each.tokens));
           });
}

void LayerSteps::attend_together(const winnow_sdpa_desc& sdpa, const std::vector<Slice>& slices,
                                 const std::vector<std::optional<Rows>>& rows_of_slices) {
    const Slice& one = slices.front();
    const auto count = static_cast<int64_t>(slices.size());
    winnow_cache_step_desc step = step_of(one.layer, sdpa);
    step.q = sdpa.q;
    step.out = sdpa.out;
    Rows rows{};
    if (rows_of_slices.front()) { // their rows follow each other
        rows = *rows_of_slices.front();
        std::vector<char>& cells = staging_.emplace_back();
        for (const std::optional<Rows>& each : rows_of_slices) {
            const auto bytes = std::as_bytes(ids_of(each->cells));
            const char* first = reinterpret_cast<const char*>(bytes.data());
            cells.insert(cells.end(), first, first + bytes.size());
        }
        rows.cells.data = cells.data();
        for (const auto& [tensor, axis] : {std::pair(&rows.k, 2), {&rows.v, 2}, {&rows.cells, 3}}) {
            tensor->shape[0] = count;
            tensor->shape[axis] = one.tokens;
            tensor->stride[0] = one.tokens * tensor->stride[axis];
        }
        step.k = &rows.k;
        step.v = &rows.v;
        step.cells = &rows.cells;
    }
    std::vector<winnow_tensor> masks;
    std::vector<winnow_cache_entry> entries;
    masks.reserve(slices.size());
    for (const Slice& each : slices) masks.push_back(slice_of(*sdpa.attn_mask, each.index));
    for (const Slice& each : slices) {
        winnow_cache_entry& entry = entries.emplace_back(entry_of(each.stream));
        entry.batch = each.index;
        entry.count = each.tokens;
        entry.attn_mask = &masks[static_cast<size_t>(each.index)];
    }
    step.entries = entries.data();
    step.entry_count = entries.size();
    step.entry_stride = sizeof entries.front();
    cache_.expect(cache_.caches().step(cache_.get(), &step, nullptr));
    for (const Slice& each : slices) {
        const int64_t decoded = each.tokens - std::min(streams_.taken_at_once(each.stream), each.tokens);
        if (step.k && decoded > 0) figures_.note_decoded(step.layer, decoded);
    }
}

void LayerSteps::run_as_decoded(const winnow_cache_step_desc& step, const winnow_cache_entry& entry,
                                const Slice& slice) {
    const int64_t at_once = std::min(streams_.taken_at_once(slice.stream), slice.tokens);
    for (int64_t first = 0, count = at_once; first < slice.tokens; first += count, count = 1) {
        if (count == 0) continue; // of a batch that is all decoded
        const winnow_tensor q = tokens_of(*step.q, first, count), out = tokens_of(*step.out, first, count);
        const winnow_tensor mask = tokens_of(*entry.attn_mask, first, count);
        const winnow_tensor k = tokens_of(*step.k, first, count), v = tokens_of(*step.v, first, count);
        const winnow_tensor cells = elements_of(*step.cells, first, count);
        winnow_cache_step_desc part = step;
        part.q = &q;
        part.out = &out;
        part.k = &k;
        part.v = &v;
        part.cells = &cells;
        winnow_cache_entry its = entry;
        its.attn_mask = &mask;
        run_attention(part, its);
    }
    if (at_once < slice.tokens) figures_.note_decoded(step.layer, slice.tokens - at_once);
}

void LayerSteps::run_attention(const winnow_cache_step_desc& step, winnow_cache_entry entry) {
    AttentionProfile* profile = figures_.profile();
    if (profile) entry.scores_out = profile->scores(step.q->shape[2]);
    figures_.record_rows(step);
    run(step, entry);
    if (!profile) return;
    cache_.expect(cache_.context().finish());
    profile->add(step.layer, entry.sequence);
}

void LayerSteps::attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters) {
    const ggml_tensor *k = node->src[1], *root = root_of(k);
    const size_t layer = shape_.layer_of(root);
    if (has_deferred(layer) && !is_whole(layer))
        throw std::runtime_error(
            with_name(node, "keys without values, or values without keys, expected both before an attention"));
    const int64_t first = offset_in(root, k->data) / static_cast<int64_t>(root->nb[2]);
    const int64_t slices = k->ne[3], tokens = node->src[0]->ne[1];
    for (int64_t i = 0; i < slices; ++i) expect_present(node->src[3], {layer, i, first + i, tokens});
    if (has_deferred(layer) && !is_aligned(layer, first, slices, tokens)) append_all(layer, counters);
    // The allocator of the graph may have given the rows' memory, which is read, to the result.
    for (std::optional<DeferredRows>* rows : {&layers_[layer].k, &layers_[layer].v})
        if (*rows && (*rows)->overlaps(node)) (*rows)->detach();
    std::vector<Slice> all;
    std::vector<std::optional<Rows>> rows;
    for (int64_t i = 0; i < slices; ++i) {
        all.push_back({layer, i, first + i, tokens});
        rows.push_back(prepare(node->src[3], all.back()));
    }
    if (can_step_together(all))
        attend_together(sdpa.desc(), all, rows);
    else
        for (size_t i = 0; i < all.size(); ++i) attend_slice(sdpa.desc(), all[i], rows[i]);
    counters.count_attention(node);
    if (has_deferred(layer)) end_rows(layer, counters);
}

// The rows are appended; copies of them stay for as long as the steps run.
void LayerSteps::end_rows(size_t layer, Counters& counters) {
    std::optional<DeferredRows>&k = layers_[layer].k, &v = layers_[layer].v;
    counters.count_append(k->root(), v ? v->root() : nullptr);
    staging_.push_back(k->take());
    if (v) staging_.push_back(v->take());
    k.reset();
    v.reset();
}

// Without an attention.
void LayerSteps::append_all(size_t layer, Counters& counters) {
    const DeferredRows& keys = *layers_[layer].k;
    std::map<int64_t, std::vector<int32_t>> cells; // of each stream
    for (int64_t i = 0; i < keys.tokens(); ++i) cells[keys.stream_of(i)].push_back(keys.cells(i, 1).front());
    for (const auto& [stream, its] : cells) {
        if (!streams_.begins_batch(layer, stream)) continue;
        streams_.append(stream, its);
        arrivals_.take_batch(its);
    }
    for (int64_t first = 0, end = 0; first < keys.tokens(); first = end) {
        while (end < keys.tokens() && keys.stream_of(end) == keys.stream_of(first)) ++end;
        const Rows rows = rows_of(layer, first, end - first);
        winnow_cache_step_desc step = step_of(layer);
        step.k = &rows.k;
        step.v = &rows.v;
        step.cells = &rows.cells;
        run(step, entry_of(keys.stream_of(first)));
    }
    end_rows(layer, counters);
}

} // namespace winnow::ggml
