// How many bytes a host is told of with each launch (winnow_launch): of small problems whose rows can be counted.
#include "device/pages.hpp"
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr uint64_t heads = 2, group = 3, slots = 20, size = 32; // of a segment in f16, without importance, and its rows
constexpr uint64_t of_map = heads * slots * 4, of_rows = heads * slots * size * 2; // of K, or of V

using Launches = std::vector<std::pair<std::string, uint64_t>>;

// A device that says what was launched on it.
class Told {
public:
    Told() {
        DeviceRequest request = cpu_request("slot_shape=cpu");
        request.launched_user_data = &launches_;
        request.launched = [](void* launches, const winnow_launch* launch) {
            static_cast<Launches*>(launches)->emplace_back(launch->kernel, launch->bytes);
        };
        device_ = backend::create(request);
    }
    template <typename Args>
    Launches of(const Args& args) {
        device_->finish();
        launches_.clear();
        launch(args);
        device_->finish();
        return launches_;
    }

private:
    void launch(const Hadamard& args) { device_->launch(args, false); }
    template <typename Args>
    void launch(const Args& args) {
        device_->launch(args);
    }

    Launches launches_;
    std::unique_ptr<Device> device_;
};

class opencl_launch_bytes : public opencl_test {
protected:
    Segment segment(SegmentShape shape = {}) {
        shape.heads = heads;
        shape.slots = slots;
        shape.k_size = shape.v_size = size;
        const Segment made = add_segment(memory_, random_, shape);
        set_tokens(made, random_, 1, [](int64_t, int64_t slot) { return static_cast<int32_t>(slot); });
        return made;
    }
    Tensor add(Type type, std::array<int64_t, 4> shape) {
        const Tensor made = memory_.add("a tensor", type, shape);
        std::memset(made.data, 0, made.extent());
        return made;
    }

    Random random_{1};
    SharedMemory memory_;
};

TEST_F(opencl_launch_bytes, maps_are_counted_where_slots_are_edited_and_compacted) {
    Told told;
    SlotEdit edit;
    edit.segments = {segment(), segment()};
    edit.end = 3;
    EXPECT_EQ(told.of(edit), (Launches{{"slot_edit", of_map}, {"slot_edit", of_map}}));
    SlotCompact compact{edit.segments[0], add(Type::i32, {1, heads, 1, 4})};
    EXPECT_EQ(told.of(compact), (Launches{{"slot_compact", of_map}}));
}

TEST_F(opencl_launch_bytes, rows_are_counted_where_they_are_copied_zeroed_and_rotated) {
    Told told;
    const Segment from = segment({.has_importance = true}), to = segment({.has_importance = true});
    EXPECT_EQ(told.of(SlotCopy{from, to}), (Launches{{"slot_copy", 2 * (2 * of_rows + of_map) + 2 * of_map}}));
    SlotZero zero;
    zero.segments = {from};
    zero.k_scale = .5; // V stays
    EXPECT_EQ(told.of(zero), (Launches{{"slot_zero", of_rows + of_map}, {"slot_zero", of_rows + of_map}}));
    Hadamard rotate;
    rotate.src = from.k;
    rotate.dst = add(Type::f32, from.k.shape);
    EXPECT_EQ(told.of(rotate), (Launches{{"hadamard", of_rows + 2 * of_rows}}));
}

TEST_F(opencl_launch_bytes, scores_are_counted_where_they_are_accumulated_and_handed_out) {
    constexpr uint64_t queries = 5, counted = 4, columns = 30;
    Told told;
    SlotAccumulate accumulate;
    accumulate.segments = {segment({.has_importance = true}), {}, segment({.has_importance = true})};
    accumulate.scores = add(Type::f32, {1, heads * group, queries, 2 * slots});
    accumulate.row_stats = add(Type::f32, {1, heads * group, queries, 2});
    accumulate.counted_queries = counted;
    accumulate.importance.statistic = Statistic::probability;
    const uint64_t rows = heads * group * counted, of_row = (2 * slots + 2) * 4;
    EXPECT_EQ(told.of(accumulate), (Launches{{"slot_accumulate", rows * of_row + 2 * 2 * of_map}}));
    accumulate.out = add(Type::f32, {1, heads * group, queries, size});
    accumulate.output_sum = add(Type::f32, {1, heads, 1, size});
    EXPECT_EQ(told.of(accumulate),
              (Launches{{"slot_accumulate", rows * (of_row + size * 4) + 2 * 2 * of_map + 2 * heads * size * 4}}));
    SlotScores scores;
    scores.segments = accumulate.segments;
    scores.scores = accumulate.scores;
    scores.out = add(Type::f32, {1, heads * group, queries, columns});
    EXPECT_EQ(told.of(scores),
              (Launches{{"slot_scores", heads * group * queries * (2 * slots + columns) * 4 + 2 * of_map}}));
}

TEST_F(opencl_launch_bytes, what_is_ranked_and_what_leaves_is_counted_where_tokens_are_evicted) {
    Told told;
    SlotEvict evict;
    evict.dense = segment({.has_importance = true});
    evict.packed = segment({.k = Type::q8_0, .v = Type::q4_0, .has_importance = true});
    evict.head_state = add(Type::i32, {1, heads, 1, 4});
    evict.free_slots = add(Type::i32, {1, heads, 1, 7});
    evict.residual_count = slots;
    evict.seen = slots;
    evict.description.ranking = Ranking::age;
    evict.description.budget = 2 * slots;
    const uint64_t maps = 2 * of_map + heads * 7 * 4;
    EXPECT_EQ(told.of(evict), (Launches{{"slot_evict", maps}}));
    evict.description.ranking = Ranking::importance;
    EXPECT_EQ(told.of(evict), (Launches{{"slot_evict", maps + 2 * of_map}}));
    evict.description.ranking = Ranking::importance_value_distance;
    evict.output_sum = add(Type::f32, {1, heads, 1, size});
    const uint64_t of_ranking = maps + 2 * of_map + of_rows + heads * slots * 18;
    EXPECT_EQ(told.of(evict), (Launches{{"slot_evict", of_ranking}}));
    evict.leaving_count = 2;
    EXPECT_EQ(told.of(evict), (Launches{{"slot_evict", of_ranking + heads * 2 * (2 * size * 2 + 34 + 18)}}));
}

TEST_F(opencl_launch_bytes, signatures_are_counted_where_pages_are_signed_and_picked) {
    constexpr int64_t page_slots = 2, frames = 3, blocks = 1;
    constexpr uint64_t pages = slots / page_slots;
    constexpr auto of_block = static_cast<uint64_t>(signature_block_bytes(size, SignatureKind::signs));
    constexpr uint64_t of_signatures = heads * blocks * of_block, of_centers = heads * (size + 1) * 2;
    Told told;
    const auto frames_of_slots = [&] {
        SegmentShape shape{.heads = heads, .slots = frames * page_slots, .k_size = size, .v_size = size};
        return add_segment(memory_, random_, shape);
    };
    PageIndex index;
    index.page_slots = page_slots;
    index.signatures = add(Type::i32, {1, heads, blocks, of_block / 4});
    index.centers = add(Type::f16, {1, heads, 1, size + 1});
    index.frames = add(Type::i32, {1, heads, 1, frames});
    fill<int32_t>(index.frames, [] { return -1; });
    PageSign sign{index, segment(), frames_of_slots(), 0, pages};
    EXPECT_EQ(told.of(sign), (Launches{{"page_sign", of_rows + of_map + of_signatures}}));
    sign.first = 4;
    sign.center_end = 5;
    const uint64_t of_slot = heads * (size * 2 + 4);
    EXPECT_EQ(told.of(sign),
              (Launches{{"page_sign", (12 + 5) * of_slot + of_signatures + of_centers}})); // slots 8 ... 19, 0 ... 4
    PagePick pick;
    pick.index = index;
    pick.cold = sign.cold;
    pick.hot = sign.hot;
    pick.q = add(Type::f32, {1, heads * group, 1, size});
    pick.scale = 1;
    pick.count = frames;
    pick.visible_end = slots;
    pick.pinned_from = pages;
    pick.counts = add(Type::i32, {1, heads, 1, 4});
    EXPECT_EQ(told.of(pick), (Launches{{"page_pick", of_signatures + of_centers + heads * frames * 4 + of_map +
                                                         heads * group * size * 4}}));
}

} // namespace
} // namespace winnow::opencl
