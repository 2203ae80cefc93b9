// SlotAccumulate against loops in double precision.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Scores of one row with its maximum and sum, as attention leaves them; a sink joins the softmax now and then.
void make_row(Random& random, float* scores, float* stats, int64_t slots, double share_seen, bool has_ties) {
    double maximum = -infinity, sum = 0;
    for (int64_t j = 0; j < slots; ++j) {
        scores[j] = !chance(random, share_seen) ? -infinity : has_ties ? 1.5f : 4 * normal(random);
        maximum = std::max<double>(maximum, scores[j]);
    }
    const bool has_sink = maximum > -infinity && !has_ties && chance(random, .3);
    if (has_sink) maximum = std::max(maximum, 1.0);
    if (maximum > -infinity)
        for (int64_t j = 0; j < slots; ++j) sum += std::exp(scores[j] - maximum);
    if (has_sink) sum += std::exp(1.0 - maximum);
    stats[0] = static_cast<float>(maximum);
    stats[1] = static_cast<float>(sum);
}

double observed(const Importance& importance, double s, double maximum, double sum, int64_t seen) {
    const double p = std::exp(s - maximum) / sum;
    switch (importance.statistic) {
    case Statistic::score_magnitude: return s;
    case Statistic::probability: return p;
    case Statistic::probability_squared: return p * p;
    case Statistic::above_mean: return p >= 1 / static_cast<double>(seen) ? 1 : 0;
    case Statistic::none: break;
    }
    return 0;
}

struct Case {
    Importance importance;
    int64_t heads, group, queries, observed;
    std::vector<int64_t> slots;
    double share_seen = .8;
    bool has_ties = false, has_out = false, has_nan = false;
    Type out_type = Type::f32;
};

void check(Device& device, Random& random, const Case& each) {
    int64_t columns = 0;
    for (const int64_t slots : each.slots) columns += slots;
    const int64_t q_heads = each.heads * each.group, v_size = 40;
    std::vector<float> scores(static_cast<size_t>(q_heads * each.queries * columns));
    std::vector<float> stats(static_cast<size_t>(q_heads * each.queries * 2));
    for (int64_t row = 0; row < q_heads * each.queries; ++row)
        make_row(random, &scores[static_cast<size_t>(row * columns)], &stats[static_cast<size_t>(row * 2)], columns,
                 row % 5 == 4 ? 0 : each.share_seen, each.has_ties);
    if (each.has_nan) scores[static_cast<size_t>(columns / 2)] = std::numeric_limits<float>::quiet_NaN();

    Rows out(each.out_type, q_heads, each.queries, v_size);
    std::vector<float> out_values(static_cast<size_t>(q_heads * each.queries * v_size));
    for (float& value : out_values) value = normal(random);
    fill(device, out, out_values);
    out_values = values_of(device, out);
    std::vector<float> output_sum(static_cast<size_t>(each.heads * v_size), .5f);

    std::vector<HostSegment> segments;
    for (const int64_t slots : each.slots) {
        segments.emplace_back(Type::f16, Type::f16, each.heads, slots, 16, 16, true, false);
        for (float& weight : segments.back().importance) weight = std::abs(normal(random));
    }
    std::vector<HostSegment> before = segments;

    SlotAccumulate args;
    for (HostSegment& segment : segments) args.segments.push_back(segment.store());
    args.segments.insert(args.segments.begin() + 1, Segment{});
    args.scores = dense_of(Type::f32, scores, {1, q_heads, each.queries, columns});
    args.row_stats = dense_of(Type::f32, stats, {1, q_heads, each.queries, 2});
    args.observed = each.observed;
    args.importance = each.importance;
    if (each.has_out) {
        args.out = out.tensor();
        args.output_sum = dense_of(Type::f32, output_sum, {1, each.heads, 1, v_size});
    }
    device.launch(args);
    device.finish();

    const auto row_of = [&](int64_t head, int64_t member, int64_t query) {
        return (head * each.group + member) * each.queries + query;
    };
    std::vector<int64_t> seen(static_cast<size_t>(q_heads * each.queries));
    for (size_t i = 0; i < scores.size(); ++i) seen[i / static_cast<size_t>(columns)] += scores[i] != -infinity;
    for (int64_t head = 0; head < each.heads; ++head) {
        int64_t column = 0;
        for (size_t which = 0; which < segments.size(); ++which)
            for (int64_t slot = 0; slot < segments[which].capacity; ++slot) {
                double total = before[which].weight(head, slot);
                const bool is_used = slot < segments[which].slots();
                for (int64_t query = 0; query < each.observed && is_used; ++query) {
                    double sum = 0, largest = 0;
                    bool is_seen = false;
                    for (int64_t member = 0; member < each.group; ++member) {
                        const auto row = static_cast<size_t>(row_of(head, member, query));
                        const float s = scores[row * static_cast<size_t>(columns) + static_cast<size_t>(column)];
                        if (s == -infinity) continue;
                        is_seen = true;
                        const double x = observed(each.importance, s, stats[row * 2], stats[row * 2 + 1], seen[row]);
                        sum += x;
                        if (std::abs(x) > largest || std::isnan(x)) largest = std::abs(x);
                    }
                    if (!is_seen) continue;
                    const bool is_mean = each.importance.group == Group::mean;
                    const double x = is_mean ? std::abs(sum) / static_cast<double>(each.group) : largest;
                    const double a = each.importance.decay;
                    total = each.importance.accumulation == Accumulation::ema ? a * total + (1 - a) * x : a * total + x;
                }
                column += is_used;
                const float got = segments[which].weight(head, slot);
                if (std::isnan(total)) {
                    ASSERT_TRUE(std::isnan(got));
                    continue;
                }
                ASSERT_NEAR(got, total, 4e-6 * std::abs(total) + 1e-12)
                    << "head " << head << ", store " << which << ", slot " << slot;
            }
        for (int64_t d = 0; d < v_size; ++d) {
            double sum = .5;
            for (int64_t member = 0; member < each.group && each.has_out; ++member)
                for (int64_t query = 0; query < each.observed; ++query)
                    sum += out_values[static_cast<size_t>(row_of(head, member, query) * v_size + d)];
            ASSERT_NEAR(output_sum[static_cast<size_t>(head * v_size + d)], sum, 1e-4);
        }
    }
}

constexpr Statistic statistics[] = {Statistic::score_magnitude, Statistic::probability, Statistic::probability_squared,
                                    Statistic::above_mean};

TEST_F(SlotsTest, AccumulateAccumulatesEveryStatistic) {
    Random random(11);
    int round = 0;
    for (const Statistic statistic : statistics)
        for (const Group group : {Group::mean, Group::maximum})
            for (const Accumulation accumulation : {Accumulation::ema, Accumulation::decayed_sum})
                for (const int64_t queries : {1, 5, 32}) {
                    SCOPED_TRACE(testing::Message()
                                 << "statistic " << int(statistic) << ", group " << int(group) << ", accumulation "
                                 << int(accumulation) << ", queries " << queries);
                    Case each{{statistic, accumulation, group, .95}, 2, 1 + round % 8, queries, queries, {52, 300}};
                    if (queries == 5) each.observed = 3;
                    each.has_out = round % 2 == 0;
                    each.has_nan = round % 4 == 1;
                    each.out_type = round % 3 == 0 ? Type::f16 : Type::f32;
                    if (round % 5 == 0) each.slots = {7, 16, 65};
                    check(*device(), random, each);
                    ++round;
                }
}

// Where all probabilities are equal, every one of them is at the mean, however it is rounded.
TEST_F(SlotsTest, AccumulateFindsEqualOnesAtTheMean) {
    Random random(12);
    for (const int64_t slots : {3, 49, 331}) {
        Case each{{Statistic::above_mean, Accumulation::decayed_sum, Group::mean, 1}, 3, 4, 2, 2, {slots}};
        each.has_ties = true;
        each.share_seen = 1;
        check(*device(), random, each);
        each.share_seen = .5;
        check(*device(), random, each);
    }
}

TEST_F(SlotsTest, AccumulateIsTheSameWhenDivided) {
    Random random(13);
    for (const Statistic statistic : {Statistic::probability_squared, Statistic::above_mean}) {
        Case each{{statistic, Accumulation::ema, Group::mean, .998}, 5, 4, 32, 32, {52, 1000}};
        each.has_out = true;
        check(*device(true), random, each);
    }
}

TEST_F(SlotsTest, AccumulateOfNoQueriesChangesNothing) {
    Random random(14);
    Case each{{Statistic::probability, Accumulation::ema, Group::mean, .5}, 2, 2, 4, 0, {20}};
    each.has_out = true;
    check(*device(), random, each);
}

} // namespace
} // namespace winnow::opencl
