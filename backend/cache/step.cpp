// A step: memory first, then for each chunk of tokens room, append, attention and what it showed; in parts where the
// scores of a chunk's queries are more than there is scratch for. Under recall a prompt comes in pieces of many chunks,
// each of which attends first to what the cold segment has had before, stretch by stretch, and carries that along.
#include "cache/step.hpp"

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "cache/cold_rows.hpp"
#include "cache/recall.hpp"
#include "cache/token_ids.hpp"
#include "cache/zeroing.hpp"

namespace winnow::cache {
namespace {

class Step {
public:
    Step(CacheState& cache, const CacheStep& args, const Resident* resident = nullptr)
        : cache_(cache), geometry_(*cache.geometry), args_(args), sequence_(cache.sequence(args.sequence)),
          layer_(sequence_.layers[static_cast<size_t>(args.layer)]), appended_(args.k ? args.k.shape[2] : 0),
          asked_(args.q ? args.q.shape[2] : 0), seen_(layer_.index.next()),
          cells_(read_token_ids(args.cells, "cells", geometry_.request().cells)), resident_(resident) {}

    void run() {
        check();
        Growth growth = grow(cache_, layer_, args_.layer, layer_.most_resident() + outside_sinks(0, appended_),
                             static_cast<bool>(args_.scores_out));
        validate(growth);
        take_cold_scratch(cache_, std::max(growth.packed.slots, layer_.packed.slots), growth.bytes);
        take_carried();
        take_cell_positions();
        layer_.index.make_room(cells_);
        if (growth.is_new) layer_.is_signed = geometry_.recall() && resident_ == nullptr; // no row lacks a signature
        commit(cache_, layer_, std::move(growth));
        keeping_pick_counts(cache_, layer_, [&] {
            if (may_change_before_failing()) return keeping_layer(cache_, layer_, [&] { apply(); });
            apply();
        });
    }

private:
    // Whether something of the layer changes before the last read or write of a file that holds its cold tier.
    bool may_change_before_failing() const {
        if (!cache_.cold_file || appended_ == 0) return false;
        const bool frees =
            std::any_of(cells_.begin(), cells_.end(), [&](int32_t it) { return layer_.index.holds(it); });
        return appended_ > 1 || frees || !picks() || rows_to_leave(outside_sinks(0, 1)).has_value();
    }

    void apply() {
        free_cells();
        const int64_t tokens = std::max(appended_, asked_);
        if (streams()) {
            for (int64_t first = 0, count = 0; first < tokens; first += count) {
                count = next_piece(first, tokens - first);
                stream(first, count);
            }
            if (asked_ > 0) pick_for(asked_ - 1); // what the first token to come needs
        } else {
            std::optional<Fetched> fetched; // for all chunks of the step
            if (!picks() && appended_ > chunk()) fetched.emplace(cache_, layer_);
            if (picks() && appended_ > 1) make_room(outside_sinks(0, appended_)); // once, as for a chunk of them all
            run_chunks(0, tokens);
            if (fetched) fetched->store();
        }
        layer_.cold.is_moved = false;
    }

    void run_chunks(int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += chunk()) {
            const int64_t count = std::min(chunk(), end - first), before = layer_.index.next();
            std::optional<SlotAppend> last;
            if (appended_ > 0) last = append(first, count);
            if (picks()) pick_for(first);
            const int64_t at_a_time = queries_at_a_time(first, count, slots_in(segments()));
            for (int64_t part = 0; asked_ > 0 && part < count; part += at_a_time) {
                attend(first + part, std::min(at_a_time, count - part), std::exchange(last, std::nullopt));
                if (left_) note(*std::exchange(left_, std::nullopt));
            }
            if (resident_ == nullptr) zero_after_chunk(cache_, layer_, args_.layer, before);
        }
    }

    // Whether the step's queries, or its many tokens, meet a cold segment of which they do not pick.
    bool streams() const {
        return geometry_.recall() && !picks() && resident_ == nullptr && (asked_ > 0 || appended_ > geometry_.chunk());
    }

    int64_t piece() const { return tokens_of_piece(cache_); }

    // Memory for what the queries of a prompt carry, where some may meet rows that were packed before them.
    void take_carried() {
        if (!streams() || asked_ == 0) return;
        const int64_t tokens = std::max(appended_, asked_);
        if (layer_.most_in_packed == 0 && tokens <= piece() && !geometry_.has_cold_budget()) return;
        carried_ = tensor_of(Type::f32, geometry_.request().q_heads, std::min(piece(), tokens),
                             cache_.device.carried_floats(geometry_.shape().v_head_size), nullptr);
        carried_memory_.take(cache_, cache_.carried.get(), carried_.extent());
        carried_.buffer = carried_memory_.get();
    }

    // Memory for the rare pass by which the oldest tokens go, where one may come.
    void take_cell_positions() {
        if (!geometry_.has_cells() || !geometry_.has_cold_budget() || appended_ == 0) return;
        std::optional<int64_t> leaving = layer_.index.newest() + appended_; // at most
        if (appended_ == 1 && resident_ == nullptr) leaving = rows_to_leave(outside_sinks(0, 1));
        if (leaving && lacks_room(geometry_, layer_, args_.layer, *leaving, appended_))
            cell_positions_.take(cache_, cache_.cell_positions.get(), cell_positions_bytes(geometry_));
    }

    // How many of the `left` tokens from `first` on come next. While they come no token is evicted, since rows of the
    // cold segment would move.
    int64_t next_piece(int64_t first, int64_t left) {
        const int64_t most = std::min(piece(), left);
        if (!geometry_.has_cold_budget() || appended_ == 0 || geometry_.covers_all(args_.layer)) return most;
        evict_oldest_before(outside_sinks(first, std::min(chunk(), left)));
        return std::min(most, room_of_newest(geometry_, layer_, args_.layer, chunk()));
    }

    void evict_oldest_before(int64_t others) {
        if (const std::optional<int64_t> leaving = rows_to_leave(others))
            evict_oldest(cache_, layer_, args_.layer, *leaving, cell_positions_.get());
    }

    // A piece of a prompt. Slots before its tail do not change while it runs.
    void stream(int64_t first, int64_t count) {
        if (!layer_.is_signed) sign_all(cache_, layer_, args_.layer);
        tail_ = layer_.in_front / geometry_.recall().page_slots * geometry_.recall().page_slots;
        const int64_t in_page = layer_.in_front - tail_,
                      coming = appended_ > 0 ? layer_.index.newest() + count : 0; // at most
        tail_slots_ = std::min(in_page + coming, layer_.packed.slots - tail_);
        carries_ = asked_ > 0 && tail_ > 0;
        if (carries_) attend_to_stretches(first, count);
        std::optional<Fetched> fetched;
        if (tail_slots_ > 0) fetched.emplace(Fetched::EndOf{}, cache_, layer_, tail_slots_ - in_page);
        run_chunks(first, first + count);
        if (fetched) fetched->store();
        carries_ = false;
    }

    void attend_to_stretches(int64_t first, int64_t count) {
        carried_first_ = first;
        Stretches stretches(cache_, layer_, tail_, geometry_.recall().stretch_slots);
        while (stretches.next()) {
            SlotAttention attention;
            attention.segments = {stretches.segment()};
            const int64_t slots = stretches.segment().slots(),
                          at_a_time =
                              args_.scores_out ? std::min(queries_at_a_time(first, chunk(), slots), count) : count;
            for (int64_t part = first; part < first + count; part += at_a_time) {
                const int64_t queries = std::min(at_a_time, first + count - part);
                attention.sdpa = attention_of(part, queries, slots).sdpa;
                attention.sdpa.carry = {carried_of(part, queries), stretches.first() > 0, true};
                cache_.device.launch(attention);
                if (args_.scores_out) keep_scores(attention, part, queries, stretches.first() > 0);
            }
            stretches.read_ahead();
        }
    }

    Tensor carried_of(int64_t first, int64_t count) const { return rows_of(carried_, first - carried_first_, count); }

    void keep_scores(const SlotAttention& attention, int64_t first, int64_t count, bool keeps_others) {
        cache_.device.launch(SlotScores{.segments = with_own_slots(attention.segments),
                                        .scores = attention.sdpa.scores_out,
                                        .out = rows_of(args_.scores_out, first, count),
                                        .keeps_others = keeps_others});
    }

    // What the queries of a chunk attend to at last.
    std::vector<Segment> segments() const {
        if (picks()) return layer_.picked_segments(geometry_);
        if (!streams()) return layer_.segments(geometry_);
        std::vector<Segment> all{layer_.dense_segment(geometry_)};
        if (tail_slots_ > 0)
            all.push_back(slots_of(layer_.packed_segment(geometry_), tail_ - layer_.packed_first, tail_slots_));
        return all;
    }

    // Whether each query picks the pages of a cold segment that it attends to; else all of them attend to all of it.
    bool picks() const {
        return geometry_.recall() && asked_ > 0 && asked_ <= std::min(most_picking, geometry_.chunk());
    }
    int64_t chunk() const { return picks() ? 1 : geometry_.chunk(); }

    void pick_for(int64_t query) {
        const Sdpa sdpa = attention_of(query, 1, 0).sdpa;
        const int64_t oldest = sdpa.window_left > 0 ? sdpa.q_offset - sdpa.window_left + 1 : 0;
        pick(cache_, layer_, args_.layer, {sdpa.q, sdpa.mask, sdpa.scale, oldest});
    }

    void check() const {
        const int64_t most = geometry_.has_cells() ? most_seen : geometry_.shape().context;
        if (appended_ > most - seen_)
            refuse("layer " + std::to_string(args_.layer) + " of sequence " + std::to_string(args_.sequence) + " has " +
                   std::to_string(seen_) + " tokens, and k has " + std::to_string(appended_) +
                   " more, expected at most " + std::to_string(most) +
                   (geometry_.has_cells() ? " together" : " together, the cache's context"));
        if (asked_ > seen_ + appended_)
            refuse("q has " + std::to_string(asked_) + " tokens, but only " + std::to_string(seen_) +
                   " were appended to layer " + std::to_string(args_.layer) + " of sequence " +
                   std::to_string(args_.sequence));
        const int64_t columns = geometry_.has_cells() ? geometry_.request().cells : seen_ + appended_;
        if (args_.scores_out && args_.scores_out.shape[3] < columns)
            refuse("scores_out has " + std::to_string(args_.scores_out.shape[3]) + " columns, expected at least " +
                   std::to_string(columns));
    }

    // What an attention over the layer is going to look like, in all lengths that there are.
    void validate(const Growth& growth) const {
        if (asked_ == 0) return;
        const std::vector<Segment> segments = segments_after(geometry_, layer_, growth, picks());
        const int64_t slots = slots_in(segments);
        if (streams() && segments.size() > 1) { // of stretches; and of chunks as if all were one
            const int64_t queries =
                args_.scores_out ? queries_at_a_time(0, std::min(chunk(), asked_), slots) : std::min(piece(), asked_);
            SlotAttention attention = attention_of(0, queries, slots);
            attention.segments = {segments[1]};
            cache_.device.validate(attention);
        }
        std::vector<std::pair<int64_t, bool>> kinds; // queries, and whether their scores are kept
        for (int64_t first = 0; first < asked_; first += chunk()) {
            const int64_t end = std::min(first + chunk(), asked_);
            const int64_t at_a_time = queries_at_a_time(first, end - first, slots);
            for (int64_t part = first; part < end; part += at_a_time) {
                const int64_t count = std::min(at_a_time, end - part);
                SlotAttention attention = attention_of(part, count, slots);
                const std::pair kind{count, attention.sdpa.scores_mode != Scores::none};
                if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
                kinds.push_back(kind);
                attention.segments = segments;
                cache_.device.validate(attention);
            }
        }
    }

    // Tokens that had the cells before are gone.
    void free_cells() {
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

    // Has an eviction pass where the residual window, or without one the free-listed slots, have no room for `others`
    // tokens.
    void make_room(int64_t others) {
        if (geometry_.residual() > 0 && !streams()) evict_oldest_before(others);
        const std::optional<int64_t> leaving = rows_to_leave(others);
        if (!leaving) return;
        zero_before_packing(cache_, layer_);
        evict(cache_, layer_, args_.layer, *leaving, geometry_.coming());
    }

    // How many rows leave the residual window before `others` tokens come; none where no eviction pass is due.
    std::optional<int64_t> rows_to_leave(int64_t others) const {
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

    // As make_room, for rows of a state: evicts no token that is there unless a slot is missing.
    void make_room_beside(int64_t first, int64_t count) {
        const TokenIndex& index = layer_.index;
        const int64_t others = outside_sinks(first, count);
        if (others == 0) return;
        if (geometry_.residual() > 0) {
            const int64_t leaving = index.newest() + others - geometry_.residual();
            if (leaving <= 0) return;
            evict_oldest(cache_, layer_, args_.layer, leaving, cell_positions_.get(), Demanded::by_room);
            evict(cache_, layer_, args_.layer, leaving, 0, 0, Demanded::by_room);
            return;
        }
        evict(cache_, layer_, args_.layer, 0, geometry_.cadence(), 0,
              finds_slots(first, count) ? Demanded::by_room : Demanded::by_budget);
        used_free_listed_.assign(static_cast<size_t>(geometry_.shape().kv_heads), 0);
    }

    // Whether each head has slots of packed segments for what it holds of these tokens.
    bool finds_slots(int64_t first, int64_t count) const {
        std::vector<int64_t> free = free_in_packed(geometry_, layer_);
        for (const Run& run : layer_.index.place(first, count, cells_))
            for (size_t head = 0; head < free.size() && !run.is_sink; ++head)
                for (int64_t i = 0; i < run.count; ++i)
                    free[head] -= (*resident_)(static_cast<int64_t>(head), run.first + i);
        return std::all_of(free.begin(), free.end(), [](int64_t left) { return left >= 0; });
    }

    // Where the tokens of a run go in the heads that hold them.
    Tensor slots_of_resident(const Run& run, const SlotAppend& args) {
        const int64_t heads = geometry_.shape().kv_heads;
        std::vector<int32_t> list;
        if (args.slots) {
            list.resize(static_cast<size_t>(heads * most_free_listed(geometry_.config())));
            layer_.state->read(geometry_.state().free_slots.offset, list.data(), 4 * list.size());
        }
        std::vector<int32_t>& slots = slots_.emplace_back(static_cast<size_t>(heads * run.count), -1);
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t i = 0; i < run.count; ++i) {
                if (!(*resident_)(head, run.first + i)) continue;
                int64_t slot = args.first + (args.offset + i) % args.count;
                if (args.slots) {
                    int64_t& used = used_free_listed_[static_cast<size_t>(head)];
                    slot = list[static_cast<size_t>(head * most_free_listed(geometry_.config()) + used++)];
                }
                slots[static_cast<size_t>(head * run.count + i)] = static_cast<int32_t>(slot);
            }
        Tensor tensor = tensor_of(Type::i32, heads, 1, run.count);
        tensor.data = reinterpret_cast<std::byte*>(slots.data());
        return tensor;
    }

    // What it does not launch is left to the step, and noted after it: a failure leaves no token that was not stored.
    std::optional<SlotAppend> append(int64_t first, int64_t count) {
        if (resident_ == nullptr)
            make_room(outside_sinks(first, count));
        else
            make_room_beside(first, count);
        for (const Run& run : layer_.index.place(first, count, cells_)) {
            SlotAppend args;
            args.k = rows_of(args_.k, run.first, run.count);
            args.v = rows_of(args_.v, run.first, run.count);
            args.token_id = run.token_id;
            args.k_norm = geometry_.k_norm();
            args.v_norm = geometry_.v_norm();
            args.positions =
                state_tensor(Type::i32, geometry_.state().positions, layer_.state.get(), 1, geometry_.request().cells);
            args.position = run.position;
            if (run.is_sink || geometry_.residual() > 0) {
                args.segment = layer_.dense_segment(geometry_);
                args.first = run.is_sink ? 0 : geometry_.sink();
                args.count = run.is_sink ? geometry_.sink() : geometry_.residual();
                args.offset = run.place % args.count;
            } else {
                args.segment = layer_.packed_segment(geometry_);
                args.slots = state_tensor(Type::i32, geometry_.state().free_slots, layer_.state.get(),
                                          geometry_.shape().kv_heads, most_free_listed(geometry_.config()));
                args.slots.offset += static_cast<uint64_t>(4 * (run.place - layer_.index.first_newest()));
                args.slots.shape[3] = run.count;
            }
            if (resident_ != nullptr) args.slots = slots_of_resident(run, args);
            if (asked_ > 0 && run.first + run.count == first + count) {
                left_ = run;
                return args;
            }
            cache_.device.launch(args);
            note(run);
        }
        return std::nullopt;
    }

    void note(const Run& run) {
        layer_.index.append(run);
        mark_anchors(cache_, layer_, sequence_.anchors, {run.token_id, run.token_id + run.count});
    }

    int64_t outside_sinks(int64_t first, int64_t count) const {
        int64_t others = 0;
        for (const Run& run : layer_.index.place(first, count, cells_))
            if (!run.is_sink) others += run.count;
        return others;
    }

    // How many of `count` queries of the step, from `first` on, count in the importance.
    int64_t counted_queries(int64_t first, int64_t count) const {
        if (!geometry_.counts(args_.layer, asked_, seen_ + appended_ - 1)) return 0;
        return std::clamp<int64_t>(asked_ - args_.draft_tokens - first, 0, count);
    }

    // How many of a chunk's queries attend together.
    int64_t queries_at_a_time(int64_t first, int64_t count, int64_t slots) const {
        return counted_queries(first, count) > 0 || args_.scores_out ? geometry_.scored_queries(slots, count) : count;
    }

    // Without segments, and over so many slots.
    SlotAttention attention_of(int64_t first, int64_t count, int64_t slots) const {
        SlotAttention attention;
        Sdpa& sdpa = attention.sdpa;
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
        if (counted_queries(first, count) > 0 || args_.scores_out) {
            sdpa.scores_mode = Scores::biased;
            sdpa.scores_out = scratch_tensor(cache_.scratch.scores.get(), count, slots);
        }
        if (counted_queries(first, count) > 0)
            sdpa.row_stats = scratch_tensor(cache_.scratch.row_stats.get(), count, 2);
        return attention;
    }

    void attend(int64_t first, int64_t count, const std::optional<SlotAppend>& append) {
        SlotStep step;
        step.append = append;
        step.attention.segments = segments();
        step.attention.sdpa = attention_of(first, count, slots_in(step.attention.segments)).sdpa;
        if (carries_) step.attention.sdpa.carry = {carried_of(first, count), true, false};
        step.counted_queries = counted_queries(first, count);
        step.importance = geometry_.importance(args_.layer, asked_);
        if (step.counted_queries > 0 && geometry_.ranks_distance(args_.layer)) {
            const Shape& shape = geometry_.shape();
            step.output_sum = state_tensor(Type::f32, geometry_.state().output_sum, layer_.state.get(), shape.kv_heads,
                                           shape.v_head_size);
        }
        if (step.counted_queries > 0 && count == 1) step.step_weights = step_weights();
        if (args_.scores_out)
            step_with_scores(step, first, count);
        else
            cache_.device.step(step);
        if (step.output_sum)
            layer_.outputs += step.counted_queries * (geometry_.request().q_heads / geometry_.shape().kv_heads);
    }

    void step_with_scores(const SlotStep& step, int64_t first, int64_t count) {
        if (step.append) cache_.device.launch(*step.append);
        cache_.device.launch(step.attention);
        keep_scores(step.attention, first, count, carries_);
        if (step.counted_queries > 0) cache_.device.launch(accumulate_of(step));
    }

    Tensor step_weights() const {
        Buffer* const buffer = cache_.scratch.scores.get();
        return tensor_of(Type::f32, 1, 1, static_cast<int64_t>(buffer->size() / 4), buffer);
    }

    // F32 [1, q_heads, rows, columns].
    Tensor scratch_tensor(Buffer* buffer, int64_t rows, int64_t columns) const {
        return tensor_of(Type::f32, geometry_.request().q_heads, rows, columns, buffer);
    }

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheStep& args_;
    Sequence& sequence_;
    Layer& layer_;
    int64_t appended_, asked_, seen_; // tokens; seen_: before the step
    // Of a piece of a prompt: the slots of the cold segment that it appends to, and what it has of those before them.
    int64_t tail_ = 0, tail_slots_ = 0;
    CallMemory carried_memory_, cell_positions_;
    Tensor carried_;
    bool carries_ = false;
    int64_t carried_first_ = 0; // the query of its first row
    std::optional<Run> left_;   // what the chunk's step appends
    std::vector<int32_t> cells_;
    const Resident* resident_;              // of a state's rows; else NULL
    std::vector<int64_t> used_free_listed_; // [head]: how many free-listed slots have a row of the state
    std::list<std::vector<int32_t>> slots_; // that launches read
};

} // namespace

void step(CacheState& cache, const CacheStep& args) {
    Step(cache, args).run();
    ++cache.steps;
}

void append_resident(CacheState& cache, const CacheStep& args, const Resident& resident) {
    Step step(cache, args, &resident); // launches read its memory
    finishing(cache.device, [&] {
        step.run();
        shrink(cache, cache.sequence(args.sequence), args.layer); // memory was taken as for all tokens in each head
    });
}

} // namespace winnow::cache
