// The operations on slots that write, change and move them: append, edit, compact, copy, scores, and mark. Every byte
// has to be the reference's.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

const SegmentShape shapes[] = {{.k = Type::f32, .v = Type::bf16, .k_size = 80, .v_size = 40},
                               {.k = Type::turbo4, .v = Type::turbo3, .k_size = 128, .v_size = 128},
                               {.k = Type::q8_0, .v = Type::turbo2_5, .k_size = 1024, .v_size = 80},
                               {.k = Type::affine8_g32, .v = Type::affine4_g64, .k_size = 64, .v_size = 128},
                               {.k = Type::f16, .v = Type::q5_1, .k_size = 33, .v_size = 96},
                               {.k = Type::q4_0, .v = Type::iq4_nl, .k_size = 64, .v_size = 32}};

Segment add_live(SharedMemory& memory, Random& random, const SegmentShape& shape, double share_live) {
    const Segment segment = add_segment(memory, random, shape);
    set_tokens(segment, random, share_live,
               [](int64_t head, int64_t slot) { return static_cast<int32_t>(head * 1000 + slot * 3); });
    return segment;
}

void expect_append(Device& device, Random& random, SegmentShape shape, Type source, int64_t tokens, bool has_slots,
                   bool has_token_ids) {
    const int64_t heads = 3, slots = 20, token_ids = 6000;
    shape.heads = heads;
    shape.slots = slots;
    SharedMemory memory;
    SlotAppend args;
    args.segment = add_live(memory, random, shape, .5);
    args.k = memory.add("source of k", source, {1, heads, tokens, shape.k_size});
    args.v = memory.add("source of v", source, {1, heads, tokens, shape.v_size});
    store_random_rows(args.k, random);
    store_random_rows(args.v, random);
    args.first = 2;
    args.count = 17;
    args.offset = draw(random, 0, 40);
    args.token_id = 5000;
    args.k_norm = Norm::unit_slope;
    args.v_norm = Norm::plain;
    if (has_slots) {
        args.slots = memory.add("slots", Type::i32, {1, heads, 1, tokens});
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t token = 0; token < tokens; ++token)
                at<int32_t>(args.slots, head, 0, token) =
                    (token + head) % 4 == 3 ? -1 : static_cast<int32_t>((7 * token + head) % slots);
        args.positions = memory.add("positions", Type::i32, {1, 1, 1, token_ids});
        args.position = 70;
    }
    if (has_token_ids) {
        args.token_ids = memory.add("token_ids", Type::i32, {1, 1, 1, tokens});
        for (int64_t token = 0; token < tokens; ++token)
            at<int32_t>(args.token_ids, 0, 0, token) = static_cast<int32_t>(900 - token);
    }
    memory.expect_same(device, [&](Device& any) { any.launch(args); });
}

TEST_F(opencl_slots, append_stores_what_the_reference_stores) {
    Random random(1);
    for (SegmentShape shape : shapes)
        for (const bool has_means : {false, true}) {
            SCOPED_TRACE(std::string(type_name(shape.k)) + (has_means ? ", with means" : ""));
            shape.has_importance = has_means || shape.k_size == 80;
            shape.has_k_mean = shape.has_v_mean = has_means;
            expect_append(cpu_device(), random, shape, Type::f32, 1, false, false);
            expect_append(cpu_device(), random, shape, Type::f16, 11, true, true);
            expect_append(cpu_device(), random, shape, Type::bf16, 17, false, true);
            expect_append(cpu_device(), random, shape, Type::f32, 5, true, false);
        }
}

TEST_F(opencl_slots, append_is_the_same_when_divided) {
    Random random(2);
    SegmentShape shape = shapes[1];
    shape.has_importance = shape.has_k_mean = shape.has_v_mean = true;
    expect_append(divided_device(), random, shape, Type::f16, 17, false, false);
}

TEST_F(opencl_slots, edit_changes_the_entries_that_are_meant) {
    Random random(3);
    for (int round = 0; round < 60; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        SharedMemory memory;
        SlotEdit args;
        args.action = static_cast<SlotEdit::Action>(round % 3);
        args.segments = {add_live(memory, random, {.slots = draw(random, 1, 70)}, .7), Segment{},
                         add_live(memory, random,
                                  {.k = Type::q8_0, .slots = draw(random, 1, 70), .k_size = 32, .has_importance = true},
                                  .7)};
        args.begin = draw(random, 0, 150);
        args.end = round % 7 == 0 ? std::numeric_limits<int64_t>::max() : args.begin + draw(random, 0, 150);
        args.delta = 5000;
        memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

TEST_F(opencl_slots, compact_moves_the_live_ones_to_the_front) {
    Random random(4);
    for (int round = 0; round < 48; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        SegmentShape shape = shapes[round % 6];
        shape.heads = 3;
        shape.slots = round % 16 == 6 ? draw(random, 4000, 9000) : draw(random, 1, 60);
        shape.has_importance = round % 4 > 0;
        SharedMemory memory;
        SlotCompact args{add_live(memory, random, shape, round % 5 / 4.0),
                         memory.add("head_state", Type::i32, {1, 3, 1, 4}), round / 2 % 2 > 0};
        memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

TEST_F(opencl_slots, copy_gives_the_same_segment_with_room_behind) {
    Random random(5);
    for (int round = 0; round < 48; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        SegmentShape shape = shapes[round % 6];
        shape.slots = round % 16 == 6 ? draw(random, 100, 900) : draw(random, 1, 40);
        shape.has_importance = round % 4 > 0;
        shape.has_k_mean = shape.has_v_mean = round / 6 % 2 > 0;
        SharedMemory memory;
        SlotCopy args;
        args.from = add_live(memory, random, shape, .6);
        shape.slots += draw(random, 0, 30);
        shape.spare = 1;
        args.to = add_live(memory, random, shape, .6);
        memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

TEST_F(opencl_slots, scores_go_to_their_numbers) {
    Random random(7);
    for (int round = 0; round < 20; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const int64_t rows = 2 * draw(random, 1, 4), queries = draw(random, 1, 20), columns = draw(random, 1, 2200);
        SharedMemory memory;
        SlotScores args;
        args.segments = {add_live(memory, random, {.slots = draw(random, 1, 60)}, .7), Segment{},
                         add_live(memory, random, {.slots = draw(random, 1, 300)}, .7)};
        for (int64_t head = 0; head < 2; ++head) // no token id twice
            for (int64_t slot = 0; slot < args.segments[2].slots(); ++slot)
                if (int32_t& token = at<int32_t>(args.segments[2].tokens, head, 0, slot); token >= 0) ++token;
        const int64_t slots = args.segments[0].slots() + args.segments[2].slots();
        args.scores = memory.add("scores", Type::f32, {1, rows, queries, slots});
        fill<float>(args.scores, [&] { return normal(random); });
        // Rows of queries lie apart, and queries before heads.
        args.out = memory.add("out", Type::f32, {1, queries, rows, columns + 5});
        args.out.shape = {1, rows, queries, columns};
        std::swap(args.out.stride[1], args.out.stride[2]);
        args.keeps_others = round % 3 == 0;
        memory.expect_same(round % 2 > 0 ? divided_device() : cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

TEST_F(opencl_slots, a_mark_completes_with_what_was_enqueued_before) {
    Random random(6);
    SharedMemory memory;
    SlotEdit args;
    args.segments = {add_live(memory, random, {.heads = 1, .slots = 500}, 1)};
    args.end = anchor_flag;
    cpu_device().launch(args);
    const std::unique_ptr<Event> event = cpu_device().mark();
    ASSERT_NE(event, nullptr);
    event->wait();
    for (int64_t slot = 0; slot < 500; ++slot) ASSERT_EQ(at<int32_t>(args.segments[0].tokens, 0, 0, slot), free_slot);
}

} // namespace
} // namespace winnow::opencl
