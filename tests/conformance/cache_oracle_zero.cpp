// Elastic zeroing as backend/cache/plan/policies/README.md has it: which elements become zero, and when.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "cache_oracle.hpp"
#include "formats.hpp"

namespace winnow::conformance {
namespace {

// What the threshold of a backend may differ by, relative: it is computed in single precision.
constexpr double threshold_off = 2e-6;

// One side of a head's rows that are not packed.
struct ZeroedSide {
    std::vector<std::vector<float>*> rows, slacks;
    std::vector<size_t> owners; // numbers of their tokens
};

// An element so near to the threshold that it may be zero or not.
struct Doubtful {
    size_t owner, element;
    float* value;
};

float slack_of(const std::vector<float>& slack, size_t element) { return slack.empty() ? 0 : slack[element]; }

std::vector<Doubtful> zero_side(const ZeroedSide& side, double scale) {
    double count = 0, sum = 0, squares = 0, slack = 0;
    for (size_t at = 0; at < side.rows.size(); ++at)
        for (size_t d = 0; d < side.rows[at]->size(); ++d) {
            const double x = std::fabs(static_cast<double>((*side.rows[at])[d]));
            ++count;
            sum += x;
            squares += x * x;
            slack += static_cast<double>(slack_of(*side.slacks[at], d));
        }
    if (count == 0) return {};
    const double mu = sum / count, sigma = std::sqrt(std::max(squares / count - mu * mu, 0.0));
    const double threshold = scale * std::max(sigma / 2, mu), doubt = threshold_off * threshold + scale * slack / count;
    std::vector<Doubtful> doubtful;
    for (size_t at = 0; at < side.rows.size(); ++at)
        for (size_t d = 0; d < side.rows[at]->size(); ++d) {
            float& x = (*side.rows[at])[d];
            const double magnitude = std::fabs(static_cast<double>(x)),
                         unsure = doubt + static_cast<double>(slack_of(*side.slacks[at], d));
            if (x == 0 && slack_of(*side.slacks[at], d) == 0) continue;
            if (magnitude > threshold + unsure) continue;
            if (magnitude >= threshold - unsure) {
                doubtful.push_back({side.owners[at], d, &x});
                continue;
            }
            x = 0;
            if (!side.slacks[at]->empty()) (*side.slacks[at])[d] = 0;
        }
    return doubtful;
}

ZeroedSide side_of(std::vector<OracleToken>& tokens, size_t head, bool is_key, int64_t sink,
                   const std::function<bool(const HeadToken&)>& is_dense) {
    ZeroedSide side;
    for (size_t at = 0; at < tokens.size(); ++at) {
        HeadToken& own = tokens[at].heads[head];
        if (!own.is_resident || tokens[at].position < sink || !is_dense(own)) continue;
        side.rows.push_back(is_key ? &own.row.k : &own.row.v);
        side.slacks.push_back(is_key ? &own.row.k_slack : &own.row.v_slack);
        side.owners.push_back(at);
    }
    return side;
}

} // namespace

// After the chunk in which the layer's number of tokens comes to its turn.
bool CacheOracle::has_zeroing(int64_t layer_number, int64_t before, int64_t after) const {
    if (!setup_.zeroing || after < setup_.zeroing->after) return false;
    const int64_t every = setup_.zeroing->every, turn = layer_number * every / setup_.layers;
    for (int64_t tokens = before + 1; tokens <= after; ++tokens)
        if (tokens % every == turn) return true;
    return false;
}

// Of an element that may be zero or not it is read which it is; where it was packed or zeroed since, it stays in doubt.
// before_packing: what the heads hold after the eviction pass; NULL where none follows.
void CacheOracle::zero(const Step& step, OracleLayer& layer, const std::vector<Holding>* before_packing) {
    const bool is_last = before_packing == nullptr || !has_zeroing(step.layer, layer.next, layer.next + step.tokens);
    std::optional<TokenRows> now;
    for (const bool is_key : {true, false}) {
        const double scale = is_key ? setup_.zeroing->k : setup_.zeroing->v;
        const std::vector<CacheSetup> of_heads = setup_.of_heads(step.layer);
        const auto type_of = [&](size_t head, int64_t segment) {
            return is_key ? of_heads[head].k_type_of(segment) : of_heads[head].v_type_of(segment);
        };
        if (scale == 0) continue;
        for (size_t head = 0; head < of_heads.size(); ++head) {
            bool is_packed_anywhere = false;
            for (int64_t segment = 1; segment <= 1 + static_cast<int64_t>(setup_.lower.size()); ++segment)
                is_packed_anywhere = is_packed_anywhere || is_packed(type_of(head, segment));
            if (before_packing != nullptr && !is_packed_anywhere) continue;
            const ZeroedSide side =
                side_of(layer.tokens, head, is_key, setup_.zeroing->sink,
                        [&](const HeadToken& own) { return !is_packed(type_of(head, own.segment)); });
            for (const Doubtful& each : zero_side(side, scale)) {
                const OracleToken& token = layer.tokens[each.owner];
                if (!now) now = read_rows(layer, step.sequence);
                const double got = (is_key ? now->k : now->v)
                                       .get({0, static_cast<int64_t>(head), static_cast<int64_t>(each.owner),
                                             static_cast<int64_t>(each.element)});
                HeadToken& own = layer.tokens[each.owner].heads[head];
                std::vector<float>& slack = is_key ? own.row.k_slack : own.row.v_slack;
                slack.resize((is_key ? own.row.k : own.row.v).size(), 0);
                const bool leaves_now = before_packing != nullptr && leaves(token, head, *before_packing);
                const bool is_told = is_last && !leaves_now && (got == 0 || got == static_cast<double>(*each.value));
                slack[each.element] = is_told ? 0 : std::max(slack[each.element], std::fabs(*each.value));
                if (is_told || before_packing == nullptr) *each.value = static_cast<float>(got);
                if (before_packing == nullptr) slack[each.element] = 0;
            }
        }
    }
}

void CacheOracle::zero_before_packing(const Step& step, OracleLayer& layer, const std::vector<Holding>& now) {
    if (setup_.zeroing && layer.next >= setup_.zeroing->after) zero(step, layer, &now);
}

} // namespace winnow::conformance
