// The reference's SlotAppend, Sdpa over slots, SlotAccumulate and SlotScores against numbers worked out by hand.
#include "reference_slots.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

namespace winnow::reference {
namespace {

using Map = std::vector<int32_t>;
constexpr int32_t none = free_slot;

// ---- Appending -----------------------------------------------------------------------------------------------------

// Tokens `first` to `first + count - 1` of two heads.
struct Tokens {
    Floats k, v;
    Tokens(int32_t first, int64_t count) : k({2, count, 2}, 0), v({2, count, 2}, 0) {
        for (int64_t head = 0; head < 2; ++head)
            for (int64_t t = 0; t < count; ++t) {
                k.set_row(head, t, key_of(head, first + static_cast<int32_t>(t)));
                v.set_row(head, t, value_of(head, first + static_cast<int32_t>(t)));
            }
    }
};

using reference_slot_append = reference_slots;

TEST_F(reference_slot_append, a_residual_goes_round) {
    TestSegment segment({{0, none, none, none, none}, {0, none, none, none, none}});
    segment.importance = Floats({2, 1, 5}, 9);
    Tokens tokens(10, 3);
    SlotAppend args;
    args.k = tokens.k;
    args.v = tokens.v;
    args.segment = segment;
    args.first = 2;
    args.count = 3;
    args.offset = 3'000'000'023;
    args.token_id = 10;
    device_.launch(args);
    for (int64_t head : {0, 1}) {
        EXPECT_EQ(segment.map(head), (Map{0, none, 11, 12, 10}));
        EXPECT_EQ(segment.importance.row(head), (std::vector<float>{9, 9, 0, 0, 0}));
    }
    segment.expect_rows();
}

TEST_F(reference_slot_append, slots_are_listed_for_each_head) {
    TestSegment segment({{none, none, 3}, {none, 4, none}});
    Ints slots({2, 1, 3}, none);
    slots.set_row(0, 0, {1, none, 0});
    slots.set_row(1, 0, {none, 2, 1}); // the last where a token is
    Tokens tokens(7, 3);
    SlotAppend args;
    args.k = tokens.k;
    args.v = tokens.v;
    args.segment = segment;
    args.slots = slots;
    args.token_id = 7;
    device_.launch(args);
    EXPECT_EQ(segment.map(0), (Map{9, 7, 3}));
    EXPECT_EQ(segment.map(1), (Map{none, 9, 8}));
    segment.expect_rows();
}

TEST_F(reference_slot_append, numbers_are_listed_and_positions_noted) {
    TestSegment segment({{none, none, none}, {none, none, none}});
    Tokens tokens(20, 2);
    Ints token_ids({1, 1, 2}, 0), positions({1, 1, 6}, -7);
    token_ids.set_row(0, 0, {4, 1});
    SlotAppend args;
    args.k = tokens.k;
    args.v = tokens.v;
    args.segment = segment;
    args.first = 1;
    args.count = 2;
    args.token_ids = token_ids;
    args.positions = positions;
    args.position = 300;
    device_.launch(args);
    for (int64_t head : {0, 1}) EXPECT_EQ(segment.map(head), (Map{none, 4, 1}));
    EXPECT_EQ(positions.row(0), (Map{-7, 301, -7, -7, 300, -7}));
    EXPECT_EQ(segment.k.row(1, 1), key_of(1, 20));
}

TEST_F(reference_slot_append, the_store_keeps_rows_less_its_means) {
    TestSegment segment({{none, none}, {none, none}});
    segment.k_mean = segment.v_mean = Floats({2, 1, 2}, 0);
    segment.k_mean.set_row(1, 0, {3, -5});
    segment.v_mean.set_row(0, 0, {100, 1});
    Tokens tokens(4, 2);
    SlotAppend args;
    args.k = tokens.k;
    args.v = tokens.v;
    args.segment = segment;
    args.count = 2;
    args.token_id = 4;
    device_.launch(args);
    segment.expect_rows();
    EXPECT_EQ(segment.k.row(1, 0), (std::vector<float>{4 - 3, 14 + 5}));
    EXPECT_EQ(segment.v.row(0, 1), (std::vector<float>{5, -6}));
}

// ---- Attention -----------------------------------------------------------------------------------------------------

struct Seen {
    double logit;
    std::vector<float> value;
};

// The softmax as one quotient of sums.
std::vector<double> expected_out(const std::vector<Seen>& tokens) {
    double sum = 0;
    std::vector<double> out(2, 0);
    for (const Seen& token : tokens) {
        sum += std::exp(token.logit);
        for (size_t d = 0; d < 2; ++d) out[d] += std::exp(token.logit) * token.value[d];
    }
    for (double& element : out) element /= sum;
    return out;
}

// A dense segment and a packed segment of two heads with two query heads each, and two queries at positions 8 and 9.
struct Attending {
    TestSegment dense{{{0, 8, none, 7}, {0, 8, 9, 7}}};
    TestSegment packed{{{none, 5, 2 | anchor_flag}, {6, none, none}}};
    Floats q{{4, 2, 2}, 0}, out{{4, 2, 2}, 77}, scores{{4, 2, 7}, 77}, stats{{4, 2, 2}, 77};
    Sdpa args;

    Attending() {
        for (size_t i = 0; i < q.values.size(); ++i)
            q.values[i] = static_cast<float>(static_cast<int>(i * 5 % 7) - 3) / 8;
        args.q = q;
        args.out = out;
        args.scores_out = scores;
        args.row_stats = stats;
        args.scores_mode = Scores::biased;
        args.scale = 0.5f;
        args.q_offset = 8;
        args.is_causal = true;
    }

    std::vector<int32_t> token_ids(int64_t head, int64_t query) { // in the order of the slots, whom causality shows
        std::vector<int32_t> seen;
        for (TestSegment* segment : {&dense, &packed})
            for (const int32_t entry : segment->map(head))
                seen.push_back(entry >= 0 && (entry & ~anchor_flag) <= 8 + query ? entry & ~anchor_flag : none);
        return seen;
    }

    void expect(const std::function<bool(int64_t query, int32_t token_id)>& sees,
                const std::function<double(int64_t q_head, int64_t query, int32_t token_id)>& bias) {
        for (int64_t q_head = 0; q_head < 4; ++q_head)
            for (int64_t query = 0; query < 2; ++query) {
                std::vector<Seen> tokens;
                const std::vector<int32_t> of_slots = token_ids(q_head / 2, query);
                for (size_t slot = 0; slot < of_slots.size(); ++slot) {
                    const int32_t token_id = of_slots[slot];
                    const float score = scores.at(q_head, query, static_cast<int64_t>(slot));
                    if (token_id < 0 || !sees(query, token_id)) {
                        EXPECT_EQ(score, -infinity) << slot;
                        continue;
                    }
                    const std::vector<float> key = key_of(q_head / 2, token_id);
                    const double dot = q.at(q_head, query, 0) * key[0] + q.at(q_head, query, 1) * key[1];
                    tokens.push_back({dot / 2 + bias(q_head, query, token_id), value_of(q_head / 2, token_id)});
                    EXPECT_NEAR(score, tokens.back().logit, 1e-4) << slot;
                }
                const std::vector<double> want = expected_out(tokens);
                for (int64_t d = 0; d < 2; ++d)
                    EXPECT_NEAR(out.at(q_head, query, d), want[static_cast<size_t>(d)], 1e-4) << q_head << " " << query;
            }
    }
};

double no_bias(int64_t, int64_t, int32_t) { return 0; }
bool all(int64_t, int32_t) { return true; }

using reference_slot_attention = reference_slots;

TEST_F(reference_slot_attention, is_one_softmax_over_the_segments) {
    Attending a;
    a.args.segments = {a.dense, a.packed};
    device_.launch(a.args, false);
    a.expect(all, no_bias);
    for (int64_t q_head = 0; q_head < 4; ++q_head) { // exp(BIASED - m) / sum are probabilities
        double total = 0;
        for (const float score : a.scores.row(q_head, 1))
            total += std::exp(static_cast<double>(score) - a.stats.at(q_head, 1, 0)) / a.stats.at(q_head, 1, 1);
        EXPECT_NEAR(total, 1, 1e-6);
    }
}

TEST_F(reference_slot_attention, in_parts_is_that_in_one) {
    Attending whole, parts;
    Floats sinks({1, 1, 4}, 0);
    sinks.set_row(0, 0, {0.5f, -1, 2, 0});
    Floats carried({4, 2, device_.carried_floats(2)}, 77);
    for (Attending* a : {&whole, &parts}) {
        a->args.head_sink = sinks;
        a->args.scores_mode = Scores::none;
        a->args.scores_out = {};
    }
    whole.args.segments = {whole.dense, whole.packed};
    device_.launch(whole.args, false);
    parts.args.segments = {parts.dense};
    parts.args.carry = {carried, false, true};
    device_.launch(parts.args, false);
    for (const float out : parts.out.values) EXPECT_EQ(out, 77) << "before the last part";
    parts.args.segments = {parts.packed};
    parts.args.carry = {carried, true, false};
    device_.launch(parts.args, false);
    for (size_t i = 0; i < whole.out.values.size(); ++i)
        EXPECT_NEAR(parts.out.values[i], whole.out.values[i], 1e-7) << i;
    for (size_t i = 0; i < whole.stats.values.size(); ++i)
        EXPECT_NEAR(parts.stats.values[i], whole.stats.values[i], 1e-6) << i;
}

TEST_F(reference_slot_attention, counts_numbers_in_windows_and_alibi) {
    Attending a;
    Floats slopes({1, 1, 4}, 0);
    slopes.set_row(0, 0, {0.5f, 0.25f, 0.125f, 1});
    a.args.alibi_slopes = slopes;
    a.args.window_left = 4;
    a.args.segments = {a.dense, a.packed};
    device_.launch(a.args, false);
    a.expect([](int64_t query, int32_t token_id) { return token_id > 8 + query - 4; },
             [&](int64_t q_head, int64_t query, int32_t token_id) {
                 return slopes.at(0, 0, q_head) * static_cast<double>(token_id - 8 - query);
             });
}

TEST_F(reference_slot_attention, a_mask_has_numbers_for_columns) {
    Attending a;
    Floats mask({1, 2, 8}, 0); // nothing for tokens 8 and 9
    mask.set_row(0, 0, {0, -infinity, -infinity, 0, 0, 2, -1, 1});
    mask.set_row(0, 1, {1, 0, 1, 0, 0, -infinity, 0, -2});
    a.args.mask = mask;
    a.args.segments = {a.dense, a.packed};
    device_.launch(a.args, false);
    a.expect(
        [&](int64_t query, int32_t token_id) { return token_id < 8 && mask.at(0, query, token_id) != -infinity; },
        [&](int64_t, int64_t query, int32_t token_id) { return static_cast<double>(mask.at(0, query, token_id)); });
}

TEST_F(reference_slot_attention, rows_stand_for_themselves_and_the_means) {
    Attending a;
    a.packed.k_mean = a.packed.v_mean = Floats({2, 1, 2}, 0);
    for (int64_t head : {0, 1}) {
        a.packed.k_mean.set_row(head, 0, {3, static_cast<float>(head) - 2});
        a.packed.v_mean.set_row(head, 0, {90, static_cast<float>(4 * head)});
        for (int64_t slot = 0; slot < 3; ++slot)
            for (int64_t d = 0; d < 2; ++d) {
                a.packed.k.at(head, slot, d) -= a.packed.k_mean.at(head, 0, d);
                a.packed.v.at(head, slot, d) -= a.packed.v_mean.at(head, 0, d);
            }
    }
    a.args.segments = {a.dense, a.packed};
    device_.launch(a.args, false);
    a.expect(all, no_bias);
}

TEST_F(reference_slot_attention, is_refused_where_sdpa_is) {
    Attending a;
    a.args.segments = {a.dense, a.packed};
    a.args.q.type = Type::i32;
    EXPECT_THROW(device_.validate(a.args), Error);
    a.args.q.type = Type::f32;
    a.args.segments[1].v.type = Type::turbo4;
    a.args.segments[1].v.shape[3] = 2 * largest_rotation;
    EXPECT_THROW(device_.validate(a.args), Error);
}

// ---- Accumulating
// -----------------------------------------------------------------------------------------------------

using reference_slot_accumulate = reference_slots;

// One KV head of one slot and a free one, seen by two query heads and three queries.
struct Accumulating {
    TestSegment segment{{{5, none}}};
    Floats scores{{2, 3, 2}, -infinity}, stats{{2, 3, 2}, 1};
    SlotAccumulate args;

    Accumulating(const std::vector<float>& of_head_0, const std::vector<float>& of_head_1, float importance) {
        for (int64_t query = 0; query < 3; ++query) {
            scores.at(0, query, 0) = of_head_0[static_cast<size_t>(query)];
            scores.at(1, query, 0) = of_head_1[static_cast<size_t>(query)];
            for (int64_t q_head : {0, 1}) stats.set_row(q_head, query, {0, 4}); // p = exp(s) / 4
        }
        segment.importance.values = {importance, 3};
        args.scores = scores;
        args.row_stats = stats;
        args.counted_queries = 3;
    }
    float after(ReferenceDevice& device, Statistic statistic, Accumulation accumulation, double decay,
                int64_t stands_for = 1) {
        args.segments = {segment};
        args.importance = {statistic, accumulation, decay, stands_for};
        device.launch(args);
        EXPECT_EQ(segment.importance.at(0, 0, 1), 3) << "nothing is there";
        return segment.importance.at(0, 0, 0);
    }
};

TEST_F(reference_slot_accumulate, a_moving_average_of_score_magnitudes) {
    // x = |mean|: of (2, 4) 3, of (-6, 2) 2, of (-1, -1) 1; 8 -> (8 + 3) / 2 -> (5.5 + 2) / 2 -> (3.75 + 1) / 2.
    Accumulating o({2, -6, -1}, {4, 2, -1}, 8);
    EXPECT_EQ(o.after(device_, Statistic::score_magnitude, Accumulation::ema, .5), 2.375f);
}

TEST_F(reference_slot_accumulate, a_decayed_sum_of_score_magnitudes) {
    Accumulating o({2, -6, -1}, {4, 2, -1}, 8); // 8 -> 4 + 3 -> 3.5 + 2 -> 2.75 + 1
    EXPECT_EQ(o.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, .5), 3.75f);
}

TEST_F(reference_slot_accumulate, a_query_that_stands_for_others) {
    Accumulating sum({2, -6, -1}, {4, 2, -1}, 8); // 8 -> 2 + 2 * 3
    sum.args.counted_queries = 1;
    EXPECT_EQ(sum.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, .5, 2), 8);
    Accumulating average({2, -6, -1}, {4, 2, -1}, 8); // 8 -> (8 + 3 * 3) / 4
    average.args.counted_queries = 1;
    EXPECT_EQ(average.after(device_, Statistic::score_magnitude, Accumulation::ema, .5, 2), 4.25f);
}

TEST_F(reference_slot_accumulate, who_does_not_see_neither_adds_nor_decays) {
    Accumulating o({-infinity, 4, -infinity}, {-infinity, -infinity, -infinity}, 8); // 8 -> 4 + 4 / 2
    EXPECT_EQ(o.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, .5), 6);
}

TEST_F(reference_slot_accumulate, probabilities_and_their_squares) {
    const float ln2 = std::log(2.0f);
    // p: 1/4 and 1/2, 1/2 and 1/4, 1/4 and 1/4.
    Accumulating p({0, ln2, 0}, {ln2, 0, 0}, 0);
    EXPECT_FLOAT_EQ(p.after(device_, Statistic::probability, Accumulation::decayed_sum, 1), 1);
    Accumulating squared({0, ln2, 0}, {ln2, 0, 0}, 0);
    EXPECT_FLOAT_EQ(squared.after(device_, Statistic::probability_squared, Accumulation::decayed_sum, 1),
                    (1 / 16.f + 1 / 4.f) / 2 * 2 + 1 / 16.f);
    Accumulating average({0, ln2, 0}, {ln2, 0, 0}, 1);
    EXPECT_FLOAT_EQ(average.after(device_, Statistic::probability, Accumulation::ema, .75),
                    ((1 * .75f + .375f * .25f) * .75f + .375f * .25f) * .75f + .25f * .25f);
}

TEST_F(reference_slot_accumulate, only_the_first_queries_are_observed) {
    Accumulating o({2, -6, -1}, {4, 2, -1}, 8);
    o.args.counted_queries = 1;
    EXPECT_EQ(o.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, .5), 7);
}

TEST_F(reference_slot_accumulate, not_a_number_stays_one) {
    Accumulating o({2, not_a_number, -1}, {4, 2, -1}, 8);
    EXPECT_TRUE(std::isnan(o.after(device_, Statistic::probability, Accumulation::ema, .5)));
}

TEST_F(reference_slot_accumulate, what_nothing_is_kept_of_is_forgotten) {
    for (const float before : {not_a_number, infinity, -infinity}) { // -> 0 + 3 -> 0 + 2 -> 0 + 1
        Accumulating sum({2, -6, -1}, {4, 2, -1}, before), average = sum;
        EXPECT_EQ(sum.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, 0), 1);
        EXPECT_EQ(average.after(device_, Statistic::score_magnitude, Accumulation::ema, 0), 1);
    }
    Accumulating between({2, not_a_number, -1}, {4, 2, -1}, 8);
    EXPECT_EQ(between.after(device_, Statistic::score_magnitude, Accumulation::decayed_sum, 0), 1);
    Accumulating unseen({-infinity, -infinity, -infinity}, {-infinity, -infinity, -infinity}, not_a_number);
    EXPECT_TRUE(std::isnan(unseen.after(device_, Statistic::probability, Accumulation::ema, 0)));
}

TEST_F(reference_slot_accumulate, above_the_mean_of_what_a_head_sees_in_all_segments) {
    // Head 0 sees all four, .4 .3 | .22 .08, head 1 the first three, each with a third (a little more, as f32 rounds).
    TestSegment first({{2, 7}}), second({{none, 3, 4}});
    Floats scores({2, 1, 5}, -infinity), stats({2, 1, 2}, 0);
    scores.set_row(0, 0, {std::log(.4f), std::log(.3f), -infinity, std::log(.22f), std::log(.08f)});
    scores.set_row(1, 0, {1.00001f, 1.00001f, -infinity, 1.00001f, -infinity});
    stats.set_row(0, 0, {0, 1});
    stats.set_row(1, 0, {1, 3});
    SlotAccumulate args;
    args.segments = {first, second};
    args.scores = scores;
    args.row_stats = stats;
    args.counted_queries = 1;
    args.importance = {Statistic::above_mean, Accumulation::decayed_sum, 1};
    device_.launch(args);
    EXPECT_EQ(first.importance.row(0), (std::vector<float>{1, 1}));
    EXPECT_EQ(second.importance.row(0), (std::vector<float>{0, .5f, 0}));
}

TEST_F(reference_slot_accumulate, outputs_are_added_up_over_group_and_queries) {
    TestSegment segment({{1}, {1}});
    Floats scores({4, 3, 1}, 0), stats({4, 3, 2}, 1), out({4, 3, 2}, 0), sum({2, 1, 2}, 1000);
    for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = static_cast<float>(i);
    SlotAccumulate args;
    args.segments = {segment};
    args.scores = scores;
    args.row_stats = stats;
    args.counted_queries = 2;
    args.out = out;
    args.output_sum = sum;
    device_.launch(args);
    // Head 0: elements 0, 2, 6, 8 and one more each; head 1 begins at 12.
    EXPECT_EQ(sum.row(0), (std::vector<float>{1016, 1020}));
    EXPECT_EQ(sum.row(1), (std::vector<float>{1064, 1068}));
}

// ---- Scores by token id --------------------------------------------------------------------------------------------

using reference_slot_scores = reference_slots;

TEST_F(reference_slot_scores, lie_in_the_column_of_the_number) {
    TestSegment dense({{0, 5}, {0, 4}}), packed({{none, 2 | anchor_flag, 6}, {3, none, 1}});
    Floats scores({4, 2, 5}, 0), out({4, 2, 7}, 77);
    for (size_t i = 0; i < scores.values.size(); ++i) scores.values[i] = static_cast<float>(i);
    Tensor six_columns = out; // of rows of seven: for token 6 there is none
    six_columns.shape[3] = 6;
    device_.launch(SlotScores{.segments = {dense, packed}, .scores = scores, .out = six_columns});
    EXPECT_EQ(out.row(0, 0), (std::vector<float>{0, -infinity, 3, -infinity, -infinity, 1, 77}));
    EXPECT_EQ(out.row(1, 1), (std::vector<float>{15, -infinity, 18, -infinity, -infinity, 16, 77}));
    EXPECT_EQ(out.row(2, 0), (std::vector<float>{20, 24, -infinity, 22, 21, -infinity, 77}));
    EXPECT_EQ(out.row(3, 1), (std::vector<float>{35, 39, -infinity, 37, 36, -infinity, 77}));
    TestSegment more({{1}, {2}});
    Floats of_more({4, 2, 1}, -1);
    device_.launch(SlotScores{.segments = {more}, .scores = of_more, .out = six_columns, .keeps_others = true});
    EXPECT_EQ(out.row(0, 0), (std::vector<float>{0, -1, 3, -infinity, -infinity, 1, 77}));
    EXPECT_EQ(out.row(3, 1), (std::vector<float>{35, 39, -1, 37, 36, -infinity, 77}));
}

} // namespace
} // namespace winnow::reference
