// Room, appends and attention of one layer, as every way through cache_step needs them.
#include "cache/calls/layer_call.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/layer/eviction_pass.hpp"
#include "cache/layer/growth.hpp"
#include "cache/layer/slot_map_edit.hpp"
#include "cache/layer/token_ids.hpp"
#include "cache/layer/zeroing.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

// Cells in a buffer, which a call that may not wait cannot read, are none: it is refused.
std::vector<int32_t> cells_of(const CacheStep& args, int64_t cells) {
    if (!args.may_wait && args.cells.buffer != nullptr) return {};
    return read_token_ids(args.cells, "cells", cells);
}

// The attention of KV heads that store alike.
Sdpa attention_of_heads(const Sdpa& all, Geometry::Heads heads) {
    Sdpa its = all;
    const int64_t group = all.group(), first = heads.first * group, count = heads.count * group;
    std::erase_if(its.segments, [&](const Segment& each) { return !each.has_rows_of(heads.first); });
    for (Segment& each : its.segments) each = heads_of(each, heads.first, heads.count);
    for (Tensor* each : {&its.q, &its.out, &its.scores_out, &its.row_stats}) *each = heads_of(*each, first, count);
    if (its.mask && its.mask.shape[1] > 1) its.mask = heads_of(its.mask, first, count);
    for (Tensor* each : {&its.mask_slopes, &its.alibi_slopes, &its.head_sink}) {
        if (!*each) continue;
        each->offset += static_cast<uint64_t>(first * each->stride[3]);
        each->shape[3] = count;
    }
    return its;
}

// The launches of an attention of a layer.
std::vector<Sdpa> launches_of(const Geometry& geometry, int64_t layer, const Sdpa& attention) {
    if (!geometry.attends_by_heads(layer)) return {attention};
    std::vector<Sdpa> all;
    for (const Geometry::Heads& heads : geometry.alike(layer)) all.push_back(attention_of_heads(attention, heads));
    return all;
}

} // namespace

LayerCall::LayerCall(CacheState& cache, const CacheStep& args)
    : cache_(cache), geometry_(*cache.geometry), args_(args), shape_(geometry_.shape(args.layer)),
      sequence_(cache.sequence(args.sequence)), layer_(sequence_.layers[static_cast<size_t>(args.layer)]),
      appended_(args.appended()), asked_(args.asked()), seen_(layer_.index.next()),
      cells_(cells_of(args, geometry_.request().cells)) {
    check();
}

void LayerCall::check() const {
    const int64_t most = geometry_.has_cells() ? most_seen : geometry_.context();
    if (appended_ > most - seen_)
        refuse("layer " + std::to_string(args_.layer) + " of sequence " + std::to_string(args_.sequence) + " has " +
               std::to_string(seen_) + " tokens, and k has " + std::to_string(appended_) + " more, expected at most " +
               std::to_string(most) + (geometry_.has_cells() ? " together" : " together, the cache's context"));
    if (asked_ > seen_ + appended_)
        refuse("q has " + std::to_string(asked_) + " tokens, but only " + std::to_string(seen_) +
               " were appended to layer " + std::to_string(args_.layer) + " of sequence " +
               std::to_string(args_.sequence));
    const int64_t columns = geometry_.has_cells() ? geometry_.request().cells : seen_ + appended_;
    if (args_.scores_out && args_.scores_out.shape[3] < columns)
        refuse("scores_out has " + std::to_string(args_.scores_out.shape[3]) + " columns, expected at least " +
               std::to_string(columns));
}

void LayerCall::prepare(StepMemory& shared) {
    shared_ = &shared;
    const GrowthPlan plan = plan_growth(cache_, layer_, layer_.most_resident() + outside_sinks(0, appended_),
                                        static_cast<bool>(args_.scores_out), shared.scratch_slots);
    if (!args_.may_wait) refuse_to_wait(why_waits(plan));
    growth_ = grow(cache_, layer_, plan);
    shared.scratch_slots = std::max(shared.scratch_slots, growth_.scratch.slots);
    shared.bytes += growth_.bytes;
    if (asked_ > 0) {
        segments_ = segments_after(geometry_, layer_, growth_, picks_pages());
        validate(segments_);
    }
    take_cold_scratch(cache_, std::max(growth_.packed.slots, layer_.packed.slots), shared.bytes);
    take_memory(shared);
    take_cell_positions();
    layer_.index.make_room(cells_);
}

void LayerCall::copy_rows() { cache::copy_rows(cache_, layer_, growth_); }

void LayerCall::adopt() {
    if (growth_.is_new) layer_.is_signed = begins_signed() && geometry_.recalls();
    if (!growth_.is_empty()) segments_.clear();
    cache::adopt(cache_, layer_, std::move(growth_));
}

std::vector<Segment> LayerCall::take_segments() {
    if (!segments_.empty()) return std::exchange(segments_, {});
    return picks_pages() ? layer_.picked_segments(geometry_) : layer_.segments(geometry_);
}

void LayerCall::run() {
    bring_tokens();
    layer_.cold.is_moved = false;
}

void LayerCall::validate_chunks(std::vector<Segment>& segments, int64_t chunk) const {
    const int64_t slots = slots_in(segments);
    std::vector<std::pair<int64_t, bool>> kinds; // queries, and whether their scores are kept
    for (int64_t first = 0; first < asked_; first += chunk) {
        const int64_t end = std::min(first + chunk, asked_);
        const int64_t at_a_time = queries_at_a_time(first, end - first, slots);
        for (int64_t part = first; part < end; part += at_a_time) {
            const int64_t count = std::min(at_a_time, end - part);
            Sdpa attention = attention_of(part, count, slots);
            const std::pair kind{count, attention.scores_mode != Scores::none};
            if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
            kinds.push_back(kind);
            attention.segments.swap(segments); // instead of a copy
            if (geometry_.attends_by_heads(args_.layer))
                for (const Sdpa& each : launches_of(geometry_, args_.layer, attention)) cache_.device.check(each);
            else
                cache_.device.check(attention);
            attention.segments.swap(segments);
        }
    }
}

std::optional<int64_t> LayerCall::most_leaving() const {
    return appended_ == 1 ? rows_to_leave(outside_sinks(0, 1)) : layer_.index.newest() + appended_;
}

bool LayerCall::may_evict_oldest() const {
    if (!geometry_.has_cold_budget() || appended_ == 0) return false;
    const std::optional<int64_t> leaving = most_leaving();
    return leaving && lacks_room(geometry_, layer_, *leaving, appended_);
}

void LayerCall::take_cell_positions() {
    if (geometry_.has_cells() && may_evict_oldest())
        shared_->cell_positions.take(cache_, cache_.cell_positions.get(), cell_positions_bytes(geometry_));
}

void LayerCall::free_cells() {
    for (size_t i = 0; i < cells_.size();) {
        size_t end = i;
        while (end < cells_.size() && cells_[end] == cells_[i] + static_cast<int32_t>(end - i) &&
               layer_.index.holds(cells_[end]))
            ++end;
        if (end > i) {
            const Range range{cells_[i], cells_[i] + static_cast<int64_t>(end - i)};
            edit(cache_, layer_, SlotEdit::Action::free, range);
            if (layer_.index.remove(range)) {
                layer_.is_signed = false;
                layer_.cold.is_moved = true;
            }
        }
        i = std::max(end, i + 1);
    }
}

std::optional<int64_t> LayerCall::rows_to_leave(int64_t others) const {
    const TokenIndex& index = layer_.index;
    if (geometry_.residual() == 0 && others <= layer_.free_listed - index.newest()) return std::nullopt;
    if (geometry_.residual() == 0) return 0;
    const bool turn = appended_ == 1 && geometry_.is_turn(args_.layer, index.next());
    const bool is_full = index.newest() + others > geometry_.residual();
    if (!is_full && !(turn && index.newest() > geometry_.keep())) return std::nullopt;
    int64_t leaving = std::max(index.newest() - geometry_.keep(), index.newest() + others - geometry_.residual());
    if (geometry_.covers_all(args_.layer)) { // the last rows of a context stay where they are
        const int64_t room = std::max<int64_t>(geometry_.usual_packed(args_.layer) - layer_.most_in_packed, 0);
        leaving = std::min(leaving, std::max(room, index.newest() + others - geometry_.residual()));
    }
    return leaving;
}

void LayerCall::evict_oldest_before(int64_t others) {
    if (!geometry_.has_cold_budget()) return;
    if (const std::optional<int64_t> leaving = rows_to_leave(others))
        evict_oldest(cache_, layer_, *leaving, shared_->cell_positions.get());
}

void LayerCall::evict_before(int64_t others) {
    const std::optional<int64_t> leaving = rows_to_leave(others);
    if (!leaving) return;
    zero_before_packing(cache_, layer_);
    evict(cache_, layer_, *leaving, geometry_.coming());
}

void LayerCall::make_room(int64_t first, int64_t count) {
    if (appended_ == 0) return;
    const int64_t others = outside_sinks(first, count);
    evict_oldest_before(others);
    evict_before(others);
}

std::optional<LayerCall::Pending> LayerCall::append(int64_t first, int64_t count) {
    if (appended_ == 0) return std::nullopt;
    for (const Run& run : layer_.index.place(first, count, cells_)) {
        const SlotAppend append = append_of(run);
        if (asked_ > 0 && run.first + run.count == first + count) return Pending{append, run};
        cache_.device.launch(append);
        note(run);
    }
    return std::nullopt;
}

SlotAppend LayerCall::append_of(const Run& run) const {
    SlotAppend append;
    append.k = rows_of(args_.k, run.first, run.count);
    append.v = rows_of(args_.v, run.first, run.count);
    append.token_id = run.token_id;
    append.k_norm = geometry_.k_norm();
    append.v_norm = geometry_.v_norm();
    append.positions = state_tensor(Type::i32, geometry_.state(args_.layer).positions, layer_.state.get(), 1,
                                    geometry_.request().cells);
    append.position = run.position;
    if (run.is_sink || geometry_.residual() > 0) {
        append.segment = layer_.dense_segment(geometry_);
        append.first = run.is_sink ? 0 : geometry_.sink();
        append.count = run.is_sink ? geometry_.sink() : geometry_.residual();
        append.offset = run.place % append.count;
    } else {
        append.segment = layer_.packed_segment(geometry_);
        append.slots = state_tensor(Type::i32, geometry_.state(args_.layer).free_slots, layer_.state.get(),
                                    shape_.kv_heads, most_free_listed(geometry_.config()));
        append.slots.offset += static_cast<uint64_t>(4 * (run.place - layer_.index.first_newest()));
        append.slots.shape[3] = run.count;
    }
    return append;
}

void LayerCall::note(const Run& run) {
    layer_.index.append(run);
    mark_anchors(cache_, layer_, sequence_.anchors, {run.token_id, run.token_id + run.count});
}

int64_t LayerCall::outside_sinks(int64_t first, int64_t count) const {
    if (layer_.index.next() >= geometry_.sink()) return count;
    int64_t others = 0;
    for (const Run& run : layer_.index.place(first, count, cells_))
        if (!run.is_sink) others += run.count;
    return others;
}

void LayerCall::attend_in_parts(int64_t first, int64_t count, const Attended& attended,
                                std::optional<Pending>& pending) {
    const int64_t at_a_time = queries_at_a_time(first, count, slots_in(attended.segments));
    for (int64_t part = 0; asked_ > 0 && part < count; part += at_a_time)
        attend(first + part, std::min(at_a_time, count - part), attended, pending);
}

SlotAttend LayerCall::attention_with(int64_t first, int64_t count, Attended attended,
                                     const std::optional<Pending>& pending) {
    SlotAttend fused;
    if (pending) fused.append = pending->append;
    fused.attention = attention_of(first, count, slots_in(attended.segments));
    fused.attention.segments = std::move(attended.segments);
    if (attended.carried)
        fused.attention.carry = {rows_of(attended.carried, first - attended.carried_first, count), true, false};
    fused.counted_queries = counted_queries(first, count);
    fused.importance = geometry_.importance(args_.layer, asked_);
    if (fused.counted_queries > 0 && geometry_.ranks_distance(args_.layer)) {
        const StateLayout::Range& sum = geometry_.state(args_.layer).output_sum;
        fused.output_sum = state_tensor(Type::f32, sum, layer_.state.get(), shape_.kv_heads, shape_.v_head_size);
    }
    if (fused.counted_queries > 0 && count == 1) fused.weights = weights();
    return fused;
}

void LayerCall::end_attention(const SlotAttend& launched, std::optional<Pending>& pending) {
    if (launched.output_sum) layer_.outputs += launched.counted_queries * (shape_.q_heads / shape_.kv_heads);
    if (pending) note(pending->run);
    pending.reset();
}

void LayerCall::launch(const SlotAttend& fused, int64_t first, int64_t count) {
    if (!args_.scores_out && !geometry_.attends_by_heads(args_.layer)) return cache_.device.attend(fused);
    if (fused.append) cache_.device.launch(*fused.append);
    for (const Sdpa& each : launches_of(geometry_, args_.layer, fused.attention)) cache_.device.launch(each, false);
    if (args_.scores_out) keep_scores(fused.attention, first, count, static_cast<bool>(fused.attention.carry));
    if (fused.counted_queries > 0) cache_.device.launch(accumulate_of(fused));
}

void LayerCall::attend(int64_t first, int64_t count, Attended attended, std::optional<Pending>& pending) {
    const SlotAttend fused = attention_with(first, count, std::move(attended), pending);
    launch(fused, first, count);
    end_attention(fused, pending);
}

void LayerCall::keep_scores(const Sdpa& attention, int64_t first, int64_t count, bool keeps_others) {
    cache_.device.launch(SlotScores{.segments = with_own_slots(attention.segments),
                                    .scores = attention.scores_out,
                                    .out = rows_of(args_.scores_out, first, count),
                                    .keeps_others = keeps_others});
}

// How many of `count` queries of the call, from `first` on, count in the importance.
int64_t LayerCall::counted_queries(int64_t first, int64_t count) const {
    if (!geometry_.counts(args_.layer, asked_, seen_ + appended_ - 1)) return 0;
    return std::clamp<int64_t>(asked_ - args_.draft_tokens - first, 0, count);
}

int64_t LayerCall::queries_at_a_time(int64_t first, int64_t count, int64_t slots) const {
    return counted_queries(first, count) > 0 || args_.scores_out ? geometry_.scored_queries(args_.layer, slots, count)
                                                                 : count;
}

Sdpa LayerCall::attention_of(int64_t first, int64_t count, int64_t slots) const {
    Sdpa sdpa;
    sdpa.q = rows_of(args_.q, first, count);
    sdpa.out = rows_of(args_.out, first, count);
    sdpa.alibi_slopes = args_.alibi_slopes;
    sdpa.head_sink = args_.head_sink;
    sdpa.scale = args_.scale;
    sdpa.softcap = args_.softcap;
    sdpa.v_threshold = geometry_.v_threshold();
    if (geometry_.has_cells()) {
        sdpa.mask = args_.mask && args_.mask.shape[2] > 1 ? rows_of(args_.mask, first, count) : args_.mask;
        sdpa.mask_slopes = args_.mask_slopes;
    } else {
        // The queries are those of the last tokens: of this chunk, or where none were appended of all that ask.
        sdpa.is_causal = true;
        sdpa.q_offset = seen_ + first - (appended_ > 0 ? 0 : asked_);
        sdpa.window_left = args_.window_left;
    }
    const bool counts = counted_queries(first, count) > 0;
    if (counts || args_.scores_out) {
        sdpa.scores_mode = Scores::biased;
        sdpa.scores_out = scratch_tensor(cache_.scratch.scores.get(), count, slots);
    }
    if (counts) sdpa.row_stats = scratch_tensor(cache_.scratch.row_stats.get(), count, 2);
    return sdpa;
}

void LayerCall::pick_for(int64_t query) {
    const Sdpa sdpa = attention_of(query, 1, 0);
    const int64_t oldest = sdpa.window_left > 0 ? sdpa.q_offset - sdpa.window_left + 1 : 0;
    pick(cache_, layer_, {sdpa.q, sdpa.mask, sdpa.scale, oldest});
}

Tensor LayerCall::weights() const {
    Buffer* const buffer = cache_.scratch.scores.get();
    return tensor_of(Type::f32, 1, 1, static_cast<int64_t>(buffer->size() / 4), buffer);
}

// F32 [1, q_heads, rows, columns].
Tensor LayerCall::scratch_tensor(Buffer* buffer, int64_t rows, int64_t columns) const {
    return tensor_of(Type::f32, shape_.q_heads, rows, columns, buffer);
}

} // namespace winnow::cache
