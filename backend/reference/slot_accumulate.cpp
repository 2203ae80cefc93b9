// I of every stored slot, query token by query token; and the sum of the outputs.
#include "reference/operations.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double score(const SlotAccumulate& args, int64_t q_head, int64_t query, int64_t column) {
    return load(args.scores.type, address(args.scores, 0, q_head, query, column));
}

// How many tokens each row of queries sees, by query head and query; counted once, since slots ask for it one by one.
class TokensSeen {
public:
    explicit TokensSeen(const SlotAccumulate& args) : queries_(args.counted_queries) {
        if (args.importance.statistic != Statistic::above_mean) return;
        for (int64_t q_head = 0; q_head < args.scores.shape[1]; ++q_head)
            for (int64_t query = 0; query < queries_; ++query) seen_.push_back(count(args, q_head, query));
    }
    double operator()(int64_t q_head, int64_t query) const {
        return seen_[static_cast<size_t>(q_head * queries_ + query)];
    }

private:
    static double count(const SlotAccumulate& args, int64_t q_head, int64_t query) {
        double seen = 0;
        for (int64_t column = 0; column < args.scores.shape[3]; ++column)
            if (score(args, q_head, query, column) != -infinity) ++seen;
        return seen;
    }

    int64_t queries_;
    std::vector<double> seen_;
};

double probability(const SlotAccumulate& args, int64_t q_head, int64_t query, double s) {
    const double maximum = load(args.row_stats.type, address(args.row_stats, 0, q_head, query, 0));
    const double sum = load(args.row_stats.type, address(args.row_stats, 0, q_head, query, 1));
    return std::exp(s - maximum) / sum;
}

// The statistic of one query head that sees the slot. A mean of scores is made before its absolute value is taken.
double statistic_of(const SlotAccumulate& args, const TokensSeen& seen, int64_t q_head, int64_t query, double s) {
    switch (args.importance.statistic) {
    case Statistic::none: return 0;
    case Statistic::score_magnitude: return s;
    case Statistic::probability: return probability(args, q_head, query, s);
    case Statistic::probability_squared: return std::pow(probability(args, q_head, query, s), 2);
    case Statistic::above_mean: return probability(args, q_head, query, s) >= 1 / seen(q_head, query) ? 1 : 0;
    }
    return 0;
}

// What one query token adds, none where no head of the query group sees the slot. A head that does not see it counts 0.
std::optional<double> statistic_of_group(const SlotAccumulate& args, const TokensSeen& seen, int64_t head,
                                         int64_t group, int64_t query, int64_t column) {
    double sum = 0;
    bool is_seen = false;
    for (int64_t q_head = head * group; q_head < (head + 1) * group; ++q_head) {
        const double s = score(args, q_head, query, column);
        if (s == -infinity) continue;
        is_seen = true;
        sum += statistic_of(args, seen, q_head, query, s);
    }
    if (!is_seen) return std::nullopt;
    const double mean = sum / static_cast<double>(group);
    return args.importance.statistic == Statistic::score_magnitude ? std::fabs(mean) : mean;
}

void accumulate(const SlotAccumulate& args, const TokensSeen& seen, const Segment& segment, int64_t head, int64_t slot,
                int64_t column) {
    double kept = 1;
    for (int64_t query = 0; query < args.importance.stands_for; ++query) kept *= args.importance.decay;
    const double gain =
        args.importance.accumulation == Accumulation::ema ? 1 - kept : static_cast<double>(args.importance.stands_for);
    const int64_t group = args.scores.shape[1] / segment.kv_heads();
    const bool is_kept = static_cast<float>(kept) != 0; // by the number that kernels get
    double importance = importance_of(segment, head, slot);
    for (int64_t query = 0; query < args.counted_queries; ++query)
        if (const std::optional<double> x = statistic_of_group(args, seen, head, group, query, column))
            importance = (is_kept ? kept * importance : 0) + gain * *x; // 0 x NaN is NaN
    set_importance(segment, head, slot, importance);
}

void add_outputs(const SlotAccumulate& args) {
    const int64_t group = args.out.shape[1] / args.output_sum.shape[1];
    for (int64_t head = 0; head < args.output_sum.shape[1]; ++head)
        for (int64_t d = 0; d < args.output_sum.shape[3]; ++d) {
            std::byte* const at = address(args.output_sum, 0, head, 0, d);
            double sum = load(args.output_sum.type, at);
            for (int64_t query = 0; query < args.counted_queries; ++query)
                for (int64_t q_head = head * group; q_head < (head + 1) * group; ++q_head)
                    sum += load(args.out.type, address(args.out, 0, q_head, query, d));
            store(args.output_sum.type, at, sum);
        }
}

} // namespace

void slot_accumulate(const SlotAccumulate& args) {
    const TokensSeen seen(args);
    int64_t first_column = 0;
    for (const Segment& segment : args.segments) {
        for (int64_t head = 0; segment.importance && head < segment.kv_heads(); ++head)
            for (int64_t slot = 0; slot < segment.slots(); ++slot)
                if (is_live(entry(segment.tokens, head, slot)))
                    accumulate(args, seen, segment, head, slot, first_column + slot);
        first_column += segment.slots();
    }
    if (args.output_sum) add_outputs(args);
}

} // namespace winnow::reference
