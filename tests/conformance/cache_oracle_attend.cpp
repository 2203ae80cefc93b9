// The oracle's attention over the resident tokens, and what it leaves in their importance.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "cache_oracle.hpp"
#include "elements.hpp"

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double infinity = std::numeric_limits<double>::infinity();

// A token that some query head may see.
struct Seen {
    OracleToken* token;
    HeadToken* own;
};

// What a query head makes of them.
struct HeadView {
    QueryResult result;
    std::vector<std::optional<Weight>> weights; // of each token; none where the mask hides it
};

// x of one query head, without the absolute value of a mean of scores.
Between statistic_of(Statistic statistic, const Weight& w, size_t visible) {
    switch (statistic) {
    case Statistic::none: return {};
    case Statistic::score_magnitude: return {w.score - w.delta, w.score + w.delta};
    case Statistic::probability: return {w.p_low, w.p_high};
    case Statistic::probability_squared: return {w.p_low * w.p_low, w.p_high * w.p_high};
    case Statistic::above_mean: break;
    }
    const double mean = 1 / static_cast<double>(visible), doubt = 4 * unit * mean;
    return {w.p_low >= mean + doubt ? 1.0 : 0.0, w.p_high >= mean - doubt ? 1.0 : 0.0};
}

// What the query group adds. A head that does not see the token adds 0 to a mean; where none does, nothing is added.
std::optional<Between> statistic_of_group(Statistic statistic, const std::vector<HeadView>& views, size_t token) {
    Between sum;
    bool is_seen = false;
    for (const HeadView& view : views) {
        if (!view.weights[token]) continue;
        is_seen = true;
        const Between x = statistic_of(statistic, *view.weights[token], view.result.weights.size());
        sum = {sum.low + x.low, sum.high + x.high};
    }
    if (!is_seen) return std::nullopt;
    const double heads = static_cast<double>(views.size());
    Between mean = {sum.low / heads, sum.high / heads};
    if (statistic == Statistic::score_magnitude) {
        const double low = std::fabs(mean.low), high = std::fabs(mean.high);
        const bool spans_zero = mean.low < 0 && mean.high > 0;
        mean = {spans_zero ? 0 : std::min(low, high), std::max(low, high)};
    }
    return mean;
}

// queries: for so many the one that showed x stands.
void accumulate(const Rules& rules, int64_t queries, Between& importance, const Between& x) {
    const double decay = std::pow(rules.decay, static_cast<double>(queries)), rounding = 8 * unit;
    const double weight = rules.is_sum ? static_cast<double>(queries) : 1 - decay;
    // Also of NaN nothing is left where a float has nothing.
    const auto left_of = [&](double before) { return static_cast<float>(decay) == 0 ? 0 : decay * before; };
    const double low = left_of(importance.low) + weight * x.low, high = left_of(importance.high) + weight * x.high;
    importance.low = low - std::fabs(low) * rounding; // a host may have said less than 0
    importance.high = high + std::fabs(high) * rounding + 0x1p-120;
}

// What the mask adds to a logit; none where it hides the token.
std::optional<double> bias_of(const Step& step, int64_t q_head, int64_t query, int64_t token_id) {
    if (!step.mask) return 0;
    const auto& shape = step.mask.shape();
    if (shape[3] != 1 && token_id >= shape[3]) return std::nullopt;
    const double value = step.mask.get({0, q_head % shape[1], query, shape[3] == 1 ? 0 : token_id});
    if (step.mask.type() == WINNOW_TYPE_BOOL) return value != 0 ? std::optional<double>(0) : std::nullopt;
    if (value == -infinity) return std::nullopt;
    return step.mask_slopes ? value * step.mask_slopes.get({0, 0, 0, q_head}) : value;
}

std::string where_of(const char* what, int64_t q_head, int64_t query, int64_t last, double got, double want,
                     double bound) {
    std::ostringstream text;
    text << what << "[0, " << q_head << ", " << query << ", " << last << "] is " << got << ", attention over the "
         << "resident tokens gives " << want << ", permitted error " << bound;
    return text.str();
}

std::string check_scores(const Step& step, int64_t q_head, int64_t query, const std::vector<Seen>& seen,
                         const HeadView& view) {
    std::vector<double> want(static_cast<size_t>(step.scores.shape()[3]), -infinity), bound(want.size(), 0);
    for (size_t j = 0; j < seen.size(); ++j) {
        if (!view.weights[j]) continue;
        want[static_cast<size_t>(seen[j].token->token_id)] = view.weights[j]->score;
        bound[static_cast<size_t>(seen[j].token->token_id)] = view.weights[j]->delta + 0x1p-120;
    }
    for (size_t column = 0; column < want.size(); ++column) {
        const double got = step.scores.get({0, q_head, query, static_cast<int64_t>(column)});
        if (!agrees(got, want[column], bound[column], largest(WINNOW_TYPE_F32)))
            return where_of("scores_out", q_head, query, static_cast<int64_t>(column), got, want[column],
                            bound[column]);
    }
    return "";
}

} // namespace

// Whether each query picks: under recall scores_out tells then which of the packed segment it attends to.
bool CacheOracle::tells_picks(const Step& step) const {
    return setup_.recall && step.scores && step.queries <= most_picking;
}

// Whether a query of decoding did not pick the token. What scores_out says of tokens that are dense is not believed.
bool CacheOracle::is_left_out(const Step& step, const OracleToken& token, int64_t head, int64_t query) const {
    if (!tells_picks(step) || token.heads[static_cast<size_t>(head)].segment == 0) return false;
    const int64_t group = setup_.shape(step.layer).group;
    for (int64_t q_head = head * group; q_head < (head + 1) * group; ++q_head)
        if (step.scores.get({0, q_head, query, token.token_id}) != -infinity) return false;
    return true;
}

// The rows of out of one query token for the query heads of one KV head.
std::string CacheOracle::attend_rows(const Step& step, OracleLayer& layer, int64_t head, int64_t query) {
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    const LayerShape shape = setup_.shape(step.layer);
    const int64_t position = layer.next - step.queries + query;
    std::vector<Seen> seen;
    const OracleToken* newest_packed = nullptr;
    bool is_newest_picked = true;
    for (OracleToken& token : layer.tokens) {
        HeadToken& own = token.heads[static_cast<size_t>(head)];
        const bool is_outside =
            setup_.cells == 0 && (token.position > position || (step.options.window_left != 0 &&
                                                                token.position <= position - step.options.window_left));
        if (!own.is_resident || is_outside) continue;
        const bool is_picked = !is_left_out(step, token, head, query);
        const bool is_shown = bias_of(step, head * shape.group, query, token.token_id).has_value();
        if (own.segment > 0) {
            if (is_shown && !is_picked && is_anchor(step.sequence, token.token_id))
                return "head " + std::to_string(head) + " did not pick the anchor " + std::to_string(token.token_id);
            newest_packed = &token;
            is_newest_picked = is_picked || !is_shown;
            picked_rows_ += is_shown && is_picked;
        }
        if (is_picked) seen.push_back({&token, &own});
    }
    if (!is_newest_picked)
        return "head " + std::to_string(head) + " did not pick the newest packed token " +
               std::to_string(newest_packed->token_id);
    std::vector<HeadView> views;
    const size_t v_size = static_cast<size_t>(shape.v_head_size);
    const bool is_counted =
        query < step.queries - step.options.draft_tokens && rules.counts(step.layer, step.queries, layer.next - 1);
    for (int64_t q_head = head * shape.group; q_head < (head + 1) * shape.group; ++q_head) {
        QueryOptions options;
        options.scale = step.scale(setup_);
        options.softcap = static_cast<double>(step.options.softcap);
        options.v_threshold = setup_.sparse_v;
        if (step.alibi) options.alibi_slope = step.alibi.get({0, 0, 0, q_head});
        if (step.head_sink) options.head_sink = step.head_sink.get({0, 0, 0, q_head});
        std::vector<double> q(static_cast<size_t>(shape.head_size));
        for (size_t d = 0; d < q.size(); ++d) q[d] = step.q.get({0, q_head, query, static_cast<int64_t>(d)});
        HeadView& view = views.emplace_back();
        std::vector<VisibleRow> rows;
        for (const Seen& each : seen)
            if (const std::optional<double> bias = bias_of(step, q_head, query, each.token->token_id))
                rows.push_back({&each.own->row, each.token->position, *bias});
        view.result = conformance::attend(q, position, rows, v_size, options);
        const QueryResult& result = view.result;
        size_t row = 0;
        for (const Seen& each : seen) {
            const bool is_seen = row < rows.size() && rows[row].row == &each.own->row;
            view.weights.push_back(is_seen ? std::optional(result.weights[row++]) : std::nullopt);
        }
        for (size_t d = 0; d < v_size; ++d) {
            const double got = step.out.get({0, q_head, query, static_cast<int64_t>(d)});
            const double unrounded = result.bound[d];
            const double bound = unrounded + rounding_error(step.out.type(), std::fabs(result.out[d]) + unrounded);
            if (!agrees(got, result.out[d], bound, largest(step.out.type())))
                return where_of("out", q_head, query, static_cast<int64_t>(d), got, result.out[d], bound);
            if (!is_counted || rules.ranking != Ranking::value_distance) continue;
            layer.output_sum[static_cast<size_t>(head)][d] += result.out[d];
            layer.output_slack[static_cast<size_t>(head)][d] += bound;
        }
        if (step.scores)
            if (const std::string wrong = check_scores(step, q_head, query, seen, view); !wrong.empty()) return wrong;
    }
    if (!is_counted || rules.statistic == Statistic::none) return "";
    for (size_t j = 0; j < seen.size(); ++j)
        if (const std::optional<Between> x = statistic_of_group(rules.statistic, views, j))
            accumulate(rules, step.queries > 1 ? 1 : rules.every, seen[j].own->importance, *x);
    return "";
}

} // namespace winnow::conformance
