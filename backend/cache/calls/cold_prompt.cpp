// A prompt over a cold tier (recall), or an append of more than a chunk, piece by piece. The queries of a piece attend
// first to what the cold tier has had before, stretch by stretch, and carry that along; then they go chunk by chunk, as
// those of any prompt, over the dense rows and the tail: the cold tier's last page and what the piece itself packs.
//
//     | stretch | stretch | ... | tail | dense |
#include <algorithm>
#include <utility>

#include "cache/calls/layer_call.hpp"
#include "cache/layer/eviction_pass.hpp"
#include "cache/layer/zeroing.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

class ColdPrompt : public LayerCall {
public:
    ColdPrompt(CacheState& cache, const CacheStep& args) : LayerCall(cache, args) {}

private:
    int64_t chunk() const { return geometry_.chunk(); }
    int64_t tokens() const { return std::max(appended_, asked_); }
    int64_t most_of_piece() const { return tokens_of_piece(cache_, args_.layer); }

    void validate(std::vector<Segment>& segments) const override {
        validate_stretches(segments);
        validate_chunks(segments, chunk()); // chunks over both segments, as if nothing were carried
    }

    void validate_stretches(const std::vector<Segment>& segments) const {
        if (asked_ == 0 || segments.size() < 2) return;
        const int64_t slots = slots_in(segments);
        const int64_t queries = args_.scores_out ? queries_at_a_time(0, std::min(chunk(), asked_), slots)
                                                 : std::min(most_of_piece(), asked_);
        Sdpa attention = attention_of(0, queries, slots);
        attention.segments = {segments[1]};
        cache_.device.check(attention);
    }

    // Memory for what the queries carry, where some may meet rows that were packed before them.
    void take_memory(StepMemory& shared) override {
        carried_ = what_is_carried();
        if (carried_) shared.carried.take(cache_, cache_.carried.get(), carried_.extent());
    }

    bool takes_memory() const override {
        const Tensor carried = what_is_carried();
        return carried && !CallMemory::suffices(cache_.carried.get(), carried.extent());
    }

    Tensor what_is_carried() const {
        if (asked_ == 0) return {};
        if (layer_.most_in_packed == 0 && tokens() <= most_of_piece() && !geometry_.has_cold_budget()) return {};
        return tensor_of(Type::f32, shape_.q_heads, std::min(most_of_piece(), tokens()),
                         cache_.device.carried_floats(shape_.v_head_size), nullptr);
    }

    void bring_tokens() override {
        if (carried_) carried_.buffer = shared_->carried.get();
        free_cells();
        for (int64_t first = 0, count = 0; first < tokens(); first += count) {
            count = next_piece(first);
            run_piece(first, count);
        }
        if (asked_ > 0) pick_for(asked_ - 1); // what the first token to come needs
    }

    // How many tokens from `first` on come next. While they come no token is evicted, since rows of the cold tier would
    // move.
    int64_t next_piece(int64_t first) {
        const int64_t left = tokens() - first, most = std::min(most_of_piece(), left);
        if (!geometry_.has_cold_budget() || appended_ == 0 || geometry_.covers_all(args_.layer)) return most;
        evict_oldest_before(outside_sinks(first, std::min(chunk(), left)));
        return std::min(most, room_of_newest(geometry_, layer_, chunk()));
    }

    // Slots before the tail do not change while the piece runs.
    void run_piece(int64_t first, int64_t count) {
        if (!layer_.is_signed) sign_all(cache_, layer_);
        const int64_t page = geometry_.page_slots();
        const int64_t tail = layer_.in_front / page * page, in_page = layer_.in_front - tail;
        const int64_t coming = appended_ > 0 ? layer_.index.newest() + count : 0; // at most
        const int64_t tail_slots = std::min(in_page + coming, layer_.packed.slots - tail);
        Attended attended;
        if (asked_ > 0 && tail > 0) {
            attend_to_stretches(first, count, tail);
            attended.carried = carried_;
            attended.carried_first = first;
        }
        std::optional<Fetched> fetched;
        if (tail_slots > 0) fetched.emplace(Fetched::EndOf{}, cache_, layer_, tail_slots - in_page);
        for (int64_t end = first + count; first < end; first += chunk())
            run_chunk(first, std::min(chunk(), end - first), tail, tail_slots, attended);
        if (fetched) fetched->store();
    }

    void run_chunk(int64_t first, int64_t count, int64_t tail, int64_t tail_slots, Attended& attended) {
        const int64_t before = layer_.index.next();
        if (appended_ > 0) evict_before(outside_sinks(first, count));
        std::optional<Pending> last = append(first, count);
        attended.segments = {layer_.dense_segment(geometry_)};
        if (tail_slots > 0)
            attended.segments.push_back(
                slots_of(layer_.packed_segment(geometry_), tail - layer_.packed_first, tail_slots));
        attend_in_parts(first, count, attended, last);
        zero_after_chunk(cache_, layer_, before);
    }

    void attend_to_stretches(int64_t first, int64_t count, int64_t end_slot) {
        Stretches stretches(cache_, layer_, end_slot, geometry_.recall(args_.layer).stretch_slots);
        while (stretches.next()) {
            const bool is_first = stretches.first() == 0;
            const int64_t slots = stretches.segment().slots(),
                          at_a_time =
                              args_.scores_out ? std::min(queries_at_a_time(first, chunk(), slots), count) : count;
            for (int64_t part = first; part < first + count; part += at_a_time) {
                const int64_t queries = std::min(at_a_time, first + count - part);
                Sdpa attention = attention_of(part, queries, slots);
                attention.segments = {stretches.segment()};
                attention.carry = {rows_of(carried_, part - first, queries), !is_first, true};
                cache_.device.launch(attention, false);
                if (args_.scores_out) keep_scores(attention, part, queries, !is_first);
            }
            stretches.read_ahead();
        }
    }

    Tensor carried_; // what the queries of a piece have of the stretches so far
};

} // namespace

std::unique_ptr<LayerCall> make_cold_prompt(CacheState& cache, const CacheStep& args) {
    return std::make_unique<ColdPrompt>(cache, args);
}

} // namespace winnow::cache
