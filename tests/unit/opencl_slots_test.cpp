// The operations on slots that write, change and move them: append, edit, compact, copy, and mark.
#include "opencl_slots.hpp"

#include <algorithm>

namespace winnow::opencl {
namespace {

void set_tokens(HostSegment& segment, Random& random, double share_live) {
    for (int64_t head = 0; head < segment.heads(); ++head)
        for (int64_t slot = 0; slot < segment.slots(); ++slot) {
            const bool is_live = chance(random, share_live);
            segment.token(head, slot) = is_live ? static_cast<int32_t>(head * 1000 + slot * 3) : free_slot;
            if (is_live && chance(random, .2)) segment.token(head, slot) |= anchor_flag;
            if (!segment.importance.empty()) segment.weight(head, slot) = normal(random);
        }
}

struct Formats {
    Type k, v;
    int64_t k_size, v_size;
};

const Formats formats[] = {{Type::f32, Type::bf16, 80, 40},
                           {Type::turbo4, Type::turbo3, 128, 128},
                           {Type::q8_0, Type::turbo2_5, 1024, 80},
                           {Type::affine8_g32, Type::affine4_g64, 64, 128},
                           {Type::f16, Type::q5_1, 33, 96}};

// One append against kv_append of what is to be stored, less the means.
void check_append(Device& device, Random& random, const Formats& each, Type source, int64_t tokens, bool has_slots,
                  bool has_token_ids, bool has_means) {
    const int64_t heads = 3, slots = 20;
    HostSegment segment(each.k, each.v, heads, slots, each.k_size, each.v_size, true, has_means);
    segment.fill_rows(device, random);
    set_tokens(segment, random, .5);
    HostSegment expected = segment;
    Rows k(source, heads, tokens, each.k_size), v(source, heads, tokens, each.v_size);
    for (Rows* rows : {&k, &v}) {
        std::vector<float> values(static_cast<size_t>(heads * tokens * rows->size));
        for (float& value : values) value = 3 * normal(random);
        fill(device, *rows, values);
    }
    std::vector<int32_t> indices(static_cast<size_t>(heads * tokens)), token_ids(static_cast<size_t>(tokens));
    for (int64_t head = 0; head < heads; ++head)
        for (int64_t token = 0; token < tokens; ++token)
            indices[static_cast<size_t>(head * tokens + token)] =
                (token + head) % 4 == 3 ? -1 : static_cast<int32_t>((7 * token + head) % slots);
    for (int64_t token = 0; token < tokens; ++token)
        token_ids[static_cast<size_t>(token)] = static_cast<int32_t>(900 - token);

    SlotAppend args;
    args.k = k.tensor();
    args.v = v.tensor();
    args.segment = segment.store();
    args.first = 2;
    args.count = 17;
    args.offset = 14;
    args.number = 5000;
    args.k_norm = Norm::unit_slope;
    args.v_norm = Norm::plain;
    if (has_slots) args.slots = dense_of(Type::i32, indices, {1, heads, 1, tokens});
    if (has_token_ids) args.token_ids = dense_of(Type::i32, token_ids, {1, 1, 1, tokens});
    std::vector<int32_t> positions(6000, -3), expected_positions = positions;
    args.positions = dense_of(Type::i32, positions, {1, 1, 1, 6000});
    args.position = 70;
    if (!has_slots) args.positions = {};
    device.launch(args);
    device.finish();
    for (int64_t token = 0; token < tokens && has_slots; ++token) {
        const int64_t number = has_token_ids ? int64_t{token_ids[static_cast<size_t>(token)]} : 5000 + token;
        expected_positions[static_cast<size_t>(number)] = static_cast<int32_t>(70 + token);
    }
    EXPECT_EQ(positions, expected_positions);

    const auto slot_of = [&](int64_t head, int64_t token) {
        return has_slots ? int64_t{indices[static_cast<size_t>(head * tokens + token)]} : 2 + (14 + token) % 17;
    };
    const auto check_rows = [&](Rows& rows, Rows& source_rows, const Rows& before, const std::vector<float>& mean,
                                Norm norm) {
        std::vector<float> values = values_of(device, source_rows);
        if (!mean.empty())
            for (size_t i = 0; i < values.size(); ++i) {
                const size_t head = i / static_cast<size_t>(tokens * rows.size);
                values[i] -= mean[head * static_cast<size_t>(rows.size) + i % static_cast<size_t>(rows.size)];
            }
        Rows stored(rows.type, heads, tokens, rows.size);
        fill(device, stored, values, norm);
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t slot = 0; slot < rows.capacity; ++slot) {
                std::vector<uint8_t> wanted = before.at(head, slot);
                for (int64_t token = 0; token < tokens; ++token)
                    if (slot_of(head, token) == slot) wanted = stored.at(head, token);
                ASSERT_EQ(rows.at(head, slot), wanted) << "head " << head << ", slot " << slot;
            }
    };
    check_rows(segment.k, k, expected.k, segment.k_mean, Norm::unit_slope);
    check_rows(segment.v, v, expected.v, segment.v_mean, Norm::plain);
    for (int64_t head = 0; head < heads; ++head)
        for (int64_t token = 0; token < tokens; ++token) {
            const int64_t slot = slot_of(head, token);
            if (slot < 0) continue;
            expected.token(head, slot) =
                has_token_ids ? token_ids[static_cast<size_t>(token)] : static_cast<int32_t>(5000 + token);
            expected.weight(head, slot) = 0;
        }
    EXPECT_EQ(segment.tokens, expected.tokens);
    EXPECT_EQ(segment.importance, expected.importance);
}

TEST_F(SlotsTest, AppendStoresWhatKvAppendWould) {
    Random random(1);
    for (const Formats& each : formats)
        for (const bool has_means : {false, true}) {
            SCOPED_TRACE(std::string(type_name(each.k)) + (has_means ? ", with means" : ""));
            check_append(*device(), random, each, Type::f32, 1, false, false, has_means);
            check_append(*device(), random, each, Type::f16, 11, true, true, has_means);
            check_append(*device(), random, each, Type::bf16, 17, false, true, has_means);
            check_append(*device(), random, each, Type::f32, 5, true, false, has_means);
        }
}

TEST_F(SlotsTest, AppendIsTheSameWhenDivided) {
    Random random(2);
    check_append(*device(true), random, formats[1], Type::f16, 17, false, false, true);
}

TEST_F(SlotsTest, EditChangesTheEntriesThatAreMeant) {
    Random random(3);
    for (int round = 0; round < 60; ++round) {
        HostSegment first(Type::f16, Type::f16, 2, draw(random, 1, 70), 16, 16, false, false);
        HostSegment second(Type::q8_0, Type::q8_0, 2, draw(random, 1, 70), 32, 32, true, false);
        set_tokens(first, random, .7);
        set_tokens(second, random, .7);
        HostSegment expected[] = {first, second};
        SlotEdit args;
        args.action = static_cast<SlotEdit::Action>(round % 3);
        args.segments = {first.store(), Segment{}, second.store()};
        args.begin = draw(random, 0, 150);
        args.end = round % 7 == 0 ? std::numeric_limits<int64_t>::max() : args.begin + draw(random, 0, 150);
        args.delta = 5000;
        device()->launch(args);
        device()->finish();
        for (HostSegment& segment : expected)
            for (int64_t head = 0; head < 2; ++head)
                for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                    int32_t& token = segment.token(head, slot);
                    const int32_t number = token & (anchor_flag - 1);
                    if (token < 0 || number < args.begin || number >= args.end) continue;
                    if (args.action == SlotEdit::Action::free) token = free_slot;
                    if (args.action == SlotEdit::Action::shift) token += 5000;
                    if (args.action == SlotEdit::Action::anchor) token |= anchor_flag;
                }
        ASSERT_EQ(first.tokens, expected[0].tokens) << "round " << round;
        ASSERT_EQ(second.tokens, expected[1].tokens) << "round " << round;
    }
}

TEST_F(SlotsTest, CompactMovesTheLiveOnesToTheFront) {
    Random random(4);
    for (int round = 0; round < 40; ++round) {
        const Formats& each = formats[round % 5];
        const bool has_importance = round % 3 > 0;
        HostSegment segment(each.k, each.v, 3, draw(random, 1, 60), each.k_size, each.v_size, has_importance, false);
        segment.fill_rows(*device(), random);
        set_tokens(segment, random, round % 4 / 3.);
        const HostSegment before = segment;
        std::vector<int32_t> state(12, 77);
        SlotCompact args{segment.store(), dense_of(Type::i32, state, {1, 3, 1, 4})};
        device()->launch(args);
        device()->finish();
        for (int64_t head = 0; head < 3; ++head) {
            int64_t live = 0;
            for (int64_t slot = 0; slot < segment.slots(); ++slot) live += before.token(head, slot) >= 0;
            int64_t from = live;
            for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                if (slot >= live) {
                    ASSERT_EQ(segment.token(head, slot), free_slot);
                    continue;
                }
                int64_t origin = slot;
                if (before.token(head, slot) < 0) {
                    while (before.token(head, from) < 0) ++from;
                    origin = from++;
                }
                ASSERT_EQ(segment.token(head, slot), before.token(head, origin));
                ASSERT_EQ(segment.k.at(head, slot), before.k.at(head, origin));
                ASSERT_EQ(segment.v.at(head, slot), before.v.at(head, origin));
                if (has_importance) {
                    ASSERT_EQ(segment.weight(head, slot), before.weight(head, origin));
                }
            }
            const auto first = state.begin() + head * 4;
            EXPECT_EQ(std::vector<int32_t>(first, first + 4), (std::vector<int32_t>{int32_t(live), 77, 77, 77}));
        }
    }
}

TEST_F(SlotsTest, CopyGivesTheSameStoreWithRoomBehind) {
    Random random(5);
    for (int round = 0; round < 24; ++round) {
        const Formats& each = formats[round % 5];
        const bool has_importance = round % 3 > 0, has_means = round % 2 > 0;
        const int64_t slots = draw(random, 1, 40), more = draw(random, 0, 30);
        HostSegment from(each.k, each.v, 2, slots, each.k_size, each.v_size, has_importance, has_means);
        HostSegment to(each.k, each.v, 2, slots + more, each.k_size, each.v_size, has_importance, has_means, 1);
        from.fill_rows(*device(), random);
        to.fill_rows(*device(), random);
        set_tokens(from, random, .6);
        set_tokens(to, random, .6);
        const HostSegment before = to;
        device()->launch(SlotCopy{from.store(), to.store()});
        device()->finish();
        EXPECT_EQ(to.k_mean, from.k_mean);
        EXPECT_EQ(to.v_mean, from.v_mean);
        for (int64_t head = 0; head < 2; ++head)
            for (int64_t slot = 0; slot < to.slots(); ++slot) {
                const bool is_new = slot >= slots;
                ASSERT_EQ(to.token(head, slot), is_new ? free_slot : from.token(head, slot));
                ASSERT_EQ(to.k.at(head, slot), is_new ? before.k.at(head, slot) : from.k.at(head, slot));
                ASSERT_EQ(to.v.at(head, slot), is_new ? before.v.at(head, slot) : from.v.at(head, slot));
                if (has_importance && !is_new) {
                    ASSERT_EQ(to.weight(head, slot), from.weight(head, slot));
                }
            }
    }
}

TEST_F(SlotsTest, ScoresGoToTheirNumbers) {
    Random random(7);
    for (int round = 0; round < 20; ++round) {
        const int64_t heads = 2, group = draw(random, 1, 4), queries = draw(random, 1, 20);
        HostSegment first(Type::f16, Type::f16, heads, draw(random, 1, 60), 16, 16, false, false);
        HostSegment second(Type::f16, Type::f16, heads, draw(random, 1, 300), 16, 16, false, false);
        set_tokens(first, random, .7);
        set_tokens(second, random, .7);
        for (int32_t& token : second.tokens) token += token < 0 ? 0 : 1; // no number twice
        const int64_t slots = first.slots() + second.slots(), columns = draw(random, 1, 2200), rows = heads * group;
        std::vector<float> scores(static_cast<size_t>(rows * queries * slots));
        for (float& score : scores) score = normal(random);
        // Rows of queries lie apart, and queries before heads.
        std::vector<float> out(static_cast<size_t>(queries * rows * (columns + 5)), 3);
        SlotScores args;
        args.segments = {first.store(), Segment{}, second.store()};
        args.scores = dense_of(Type::f32, scores, {1, rows, queries, slots});
        args.out = dense_of(Type::f32, out, {1, rows, queries, columns});
        args.out.stride = {0, 4 * (columns + 5), 4 * (columns + 5) * rows, 4};
        device(round % 2 > 0)->launch(args);
        device(round % 2 > 0)->finish();
        std::vector<float> expected(out.size(), 3);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t query = 0; query < queries; ++query) {
                float* const to = &expected[static_cast<size_t>((query * rows + row) * (columns + 5))];
                const float* const from = &scores[static_cast<size_t>((row * queries + query) * slots)];
                std::fill_n(to, columns, -std::numeric_limits<float>::infinity());
                for (int64_t i = 0; i < slots; ++i) {
                    const int32_t token =
                        i < first.slots() ? first.token(row / group, i) : second.token(row / group, i - first.slots());
                    const int32_t number = token & (anchor_flag - 1);
                    if (token >= 0 && number < columns) to[number] = from[i];
                }
            }
        ASSERT_EQ(out, expected) << "round " << round;
    }
}

TEST_F(SlotsTest, AMarkCompletesWithWhatWasEnqueuedBefore) {
    Random random(6);
    HostSegment segment(Type::f16, Type::f16, 1, 500, 16, 16, false, false);
    set_tokens(segment, random, 1);
    SlotEdit args;
    args.segments = {segment.store()};
    args.end = anchor_flag;
    device()->launch(args);
    const std::unique_ptr<Event> event = device()->mark();
    ASSERT_NE(event, nullptr);
    event->wait();
    EXPECT_TRUE(event->is_complete());
    for (int64_t slot = 0; slot < 500; ++slot) ASSERT_EQ(segment.token(0, slot), free_slot);
}

} // namespace
} // namespace winnow::opencl
