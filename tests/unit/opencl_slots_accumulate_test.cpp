// SlotAccumulate as the reference does it in double precision.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

// An exponential of a difference of up to 16 is off by some units of its last place for each of its bits, and each of
// 32 queries rounds the importance once more.
constexpr Near importance_near{4e-6, 1e-12};
constexpr Near sum_near{0, 32 * 8 * 8 * 0x1p-23}; // of up to 32 queries of 8 heads, of a few each

// Scores of one row with its maximum and sum, as attention leaves them; a head sink joins the softmax now and then.
void make_row(Random& random, float* scores, float* stats, int64_t slots, double share_seen, bool has_ties) {
    double maximum = -infinity, sum = 0;
    for (int64_t j = 0; j < slots; ++j) {
        if (scores[j] != -infinity)
            scores[j] = !chance(random, share_seen) ? -infinity : has_ties ? 1.5f : 4 * normal(random);
        maximum = std::max(maximum, static_cast<double>(scores[j]));
    }
    const bool has_sink = maximum > -infinity && !has_ties && chance(random, .3);
    if (has_sink) maximum = std::max(maximum, 1.0);
    if (maximum > -infinity)
        for (int64_t j = 0; j < slots; ++j) sum += std::exp(static_cast<double>(scores[j]) - maximum);
    if (has_sink) sum += std::exp(1.0 - maximum);
    stats[0] = static_cast<float>(maximum);
    stats[1] = static_cast<float>(sum);
}

struct Case {
    Importance importance;
    int64_t heads, group, queries, counted;
    std::vector<int64_t> slots;
    double share_seen = .8;
    bool has_ties = false, has_out = false, has_nan = false;
    Type out_type = Type::f32;
    float before = 0; // not 0: the importance of every slot
};

void expect_accumulated(Device& device, Random& random, const Case& each) {
    const int64_t q_heads = each.heads * each.group, v_size = 40;
    SharedMemory memory;
    SlotAccumulate args;
    int64_t columns = 0;
    for (const int64_t slots : each.slots) {
        args.segments.push_back(
            add_segment(memory, random,
                        {.heads = each.heads, .slots = slots, .has_importance = true, .importance = importance_near}));
        if (each.before != 0) fill<float>(args.segments.back().importance, [&] { return each.before; });
        set_tokens(args.segments.back(), random, each.has_ties ? 1 : .9,
                   [&](int64_t, int64_t slot) { return static_cast<int32_t>(columns + slot); });
        columns += slots;
    }
    args.scores = memory.add("scores", Type::f32, {1, q_heads, each.queries, columns});
    args.row_stats = memory.add("row_stats", Type::f32, {1, q_heads, each.queries, 2});
    for (int64_t head = 0; head < q_heads; ++head)
        for (int64_t query = 0; query < each.queries; ++query) {
            float* const scores = &at<float>(args.scores, head, query, 0);
            int64_t column = 0;
            for (const Segment& segment : args.segments) // nobody sees a free slot
                for (int64_t slot = 0; slot < segment.slots(); ++slot)
                    scores[column++] = at<int32_t>(segment.tokens, head / each.group, 0, slot) < 0 ? -infinity : 0;
            make_row(random, scores, &at<float>(args.row_stats, head, query, 0), columns,
                     (head + query) % 5 == 4 ? 0 : each.share_seen, each.has_ties);
            if (each.has_nan && query == 0 && scores[columns / 2] != -infinity) scores[columns / 2] = not_a_number;
        }
    args.segments.insert(args.segments.begin() + 1, Segment{});
    args.counted_queries = each.counted;
    args.importance = each.importance;
    if (each.has_out) {
        args.out = memory.add("out", each.out_type, {1, q_heads, each.queries, v_size});
        store_random_rows(args.out, random);
        args.output_sum = memory.add("output_sum", Type::f32, {1, each.heads, 1, v_size}, sum_near);
        fill<float>(args.output_sum, [] { return .5f; });
    }
    memory.expect_same(device, [&](Device& any) { any.launch(args); });
}

constexpr Statistic statistics[] = {Statistic::score_magnitude, Statistic::probability, Statistic::probability_squared,
                                    Statistic::above_mean};

TEST_F(opencl_slots, accumulate_takes_every_statistic) {
    Random random(11);
    int round = 0;
    for (const Statistic statistic : statistics)
        for (const Accumulation accumulation : {Accumulation::ema, Accumulation::decayed_sum})
            for (const int64_t queries : {1, 5, 32}) {
                SCOPED_TRACE(testing::Message() << "statistic " << static_cast<int>(statistic) << ", accumulation "
                                                << static_cast<int>(accumulation) << ", queries " << queries);
                Case each{{statistic, accumulation, .95}, 2, 1 + round % 8, queries, queries, {52, 300}};
                if (queries == 5) each.counted = 3;
                each.importance.stands_for = 1 + round % 3;
                each.has_out = round % 2 == 0;
                each.has_nan = round % 4 == 1;
                each.out_type = round % 3 == 0 ? Type::f16 : Type::f32;
                if (round % 5 == 0) each.slots = {7, 16, 65};
                expect_accumulated(cpu_device(), random, each);
                ++round;
            }
}

// Where all probabilities are equal, every one of them is at the mean, however it is rounded.
TEST_F(opencl_slots, accumulate_finds_equal_ones_at_the_mean) {
    Random random(12);
    for (const int64_t slots : {3, 49, 331}) {
        Case each{{Statistic::above_mean, Accumulation::decayed_sum, 1}, 3, 4, 2, 2, {slots}};
        each.has_ties = true;
        each.share_seen = 1;
        expect_accumulated(cpu_device(), random, each);
        each.share_seen = .5;
        expect_accumulated(cpu_device(), random, each);
    }
}

// 0 x NaN is NaN.
TEST_F(opencl_slots, accumulate_forgets_where_nothing_is_kept) {
    Random random(15);
    for (const Accumulation accumulation : {Accumulation::ema, Accumulation::decayed_sum})
        for (const float before : {not_a_number, infinity, -infinity})
            for (const double decay : {0.0, .5}) {
                SCOPED_TRACE(testing::Message() << "before " << before << ", decay " << decay);
                Case each{{Statistic::probability, accumulation, decay}, 2, 2, 3, 3, {7, 16, 165}};
                each.before = before;
                expect_accumulated(cpu_device(), random, each);
            }
}

TEST_F(opencl_slots, accumulate_is_the_same_when_divided) {
    Random random(13);
    for (const Statistic statistic : {Statistic::probability_squared, Statistic::above_mean}) {
        Case each{{statistic, Accumulation::ema, .998}, 5, 4, 32, 32, {52, 1000}};
        each.has_out = true;
        expect_accumulated(divided_device(), random, each);
    }
}

TEST_F(opencl_slots, accumulate_of_no_queries_changes_nothing) {
    Random random(14);
    Case each{{Statistic::probability, Accumulation::ema, .5}, 2, 2, 4, 0, {20}};
    each.has_out = true;
    expect_accumulated(cpu_device(), random, each);
}

} // namespace
} // namespace winnow::opencl
