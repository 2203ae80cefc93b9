// Several packed segments: which tokens go down at an eviction pass, and what their rows then are.
#include <algorithm>
#include <cmath>

#include "cache_oracle.hpp"
#include "cache_rows.hpp"
#include "formats.hpp"

namespace winnow::conformance {
namespace {

// A row that comes from another format may differ in its last bit, as single precision holds it, and then become
// another number of 16 bits. `off`: what comes of it there; its slack is widened by what that differs by.
void widen_by_rounding(std::vector<float>& slack, const std::vector<float>& row, const std::vector<float>& off) {
    slack.resize(row.size(), 0);
    for (size_t d = 0; d < row.size(); ++d) slack[d] = std::max(slack[d], std::fabs(row[d] - off[d]));
}

StoredRow scaled(StoredRow row, float factor) {
    for (std::vector<float>* each : {&row.k, &row.v, &row.k_less_mean, &row.v_less_mean})
        for (float& element : *each) element *= factor;
    return row;
}

// Each element off by its slack, up or down.
StoredRow shifted(StoredRow row, float sign) {
    const auto shift = [&](std::vector<float>& values, const std::vector<float>& slack) {
        for (size_t d = 0; d < std::min(values.size(), slack.size()); ++d) values[d] += sign * slack[d];
    };
    shift(row.k, row.k_slack);
    shift(row.k_less_mean, row.k_slack);
    shift(row.v, row.v_slack);
    shift(row.v_less_mean, row.v_slack);
    return row;
}

// A row of a head as packed segment `segment` stores it.
StoredRow requantized(Session& session, const CacheSetup& setup, const OracleLayer& layer, size_t head,
                      const StoredRow& row, int64_t segment) {
    const CacheSetup its = setup.of_segment(segment);
    const RowPair pair{row.k, row.v, layer.has_means ? &layer.means.k[head] : nullptr,
                       layer.has_means ? &layer.means.v[head] : nullptr};
    const auto stored_as = [&](const StoredRow& given) {
        if (!given.k_less_mean.empty() && layer.has_means) return as_requantized(session, its, given, pair);
        return as_packed(session, its, {RowPair{given.k, given.v, pair.k_mean, pair.v_mean}})[0];
    };
    StoredRow stored = stored_as(row);
    for (const float factor : {1 - 0x1p-23f, 1 + 0x1p-23f}) {
        if (is_packed(its.k_type) && is_packed(its.v_type)) break;
        const StoredRow other = stored_as(scaled(row, factor));
        if (!is_packed(its.k_type)) widen_by_rounding(stored.k_slack, stored.k, other.k);
        if (!is_packed(its.v_type)) widen_by_rounding(stored.v_slack, stored.v, other.v);
    }
    // Of a row that may be off other codes may be the nearest.
    for (const float sign : {-1.0f, 1.0f}) {
        if (row.k_slack.empty() && row.v_slack.empty()) break;
        const StoredRow other = stored_as(shifted(row, sign));
        widen_by_rounding(stored.k_slack, stored.k, other.k);
        widen_by_rounding(stored.v_slack, stored.v, other.v);
    }
    if ((setup.zeroing || setup.is_zeroing_changed) && may_have_zeros(row))
        allow_zeros(stored, as_packed(session, setup.of_segment(segment), {with_zeros(pair, row)})[0]);
    // What the row before may have been off by is still in it.
    const auto widen = [](std::vector<float>& slack, const std::vector<float>& before) {
        slack.resize(std::max(slack.size(), before.size()), 0);
        for (size_t d = 0; d < before.size(); ++d) slack[d] += before[d];
    };
    widen(stored.k_slack, row.k_slack);
    widen(stored.v_slack, row.v_slack);
    return stored;
}

} // namespace

// As many rows go down from a segment as slots are lacking there. Where the segments below have not all of their slots
// yet, none are.
std::string CacheOracle::check_moves(const Step& step, OracleLayer& layer, int64_t head,
                                     const std::vector<Holding>& now) {
    if (setup_.lower.empty()) return "";
    const EvictionPass pass = pass_of(layer, head);
    const std::vector<int64_t> slots = setup_.packed_slots(step.layer);
    std::vector<int64_t> live(slots.size(), 0);
    int64_t needed = setup_.residual > 0 ? 0 : pass.incoming; // slots that are free-listed
    if (setup_.residual == 0 && setup_.cells == 0) needed = std::min(needed, setup_.context - layer.next);
    for (const OracleToken& token : layer.tokens) {
        const HeadToken& own = token.heads[static_cast<size_t>(head)];
        if (!own.is_resident) continue;
        if (own.segment > 0) ++live[static_cast<size_t>(own.segment) - 1];
        needed += leaves(token, static_cast<size_t>(head), now);
    }
    std::vector<int64_t> counts;
    for (size_t at = 0; at + 1 < slots.size(); ++at)
        counts.push_back(needed = std::max<int64_t>(needed - (slots[at] - live[at]), 0));
    for (size_t at = counts.size(); at > 0; --at) {
        const std::string wrong = check_moves_of(step, layer, head, static_cast<int64_t>(at), counts[at - 1], now);
        if (!wrong.empty()) return "from packed segment " + std::to_string(at) + ": " + wrong;
    }
    return "";
}

// `count` rows of packed segment `from`, or of those that leave the residual window for it, go down.
std::string CacheOracle::check_moves_of(const Step& step, OracleLayer& layer, int64_t head, int64_t from, int64_t count,
                                        const std::vector<Holding>& now) {
    const auto number = static_cast<size_t>(head);
    const Holding& told = now[number];
    std::vector<Candidate> candidates;
    std::vector<HeadToken*> owners;
    std::set<int64_t> moved;
    for (OracleToken& token : layer.tokens) {
        HeadToken& own = token.heads[static_cast<size_t>(head)];
        if (!own.is_resident) continue;
        if (own.segment != from && !(from == 1 && leaves(token, number, now))) continue;
        candidates.push_back(candidate_of(step, layer, token, head));
        const auto at = told.find(token.token_id);
        if (at == told.end()) return "token " + std::to_string(token.token_id) + " has no segment";
        if (at->second != from && at->second != from + 1)
            return "token " + std::to_string(token.token_id) + " is in segment " + std::to_string(at->second) +
                   ", expected " + std::to_string(from) + " or the next";
        if (at->second == from) continue;
        moved.insert(token.position);
        owners.push_back(&own);
    }
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    std::string wrong =
        check_moved(rules, pass_of(layer, head), candidates, moved, count, from == 1 && rules.moves_by_age);
    for (HeadToken* own : owners) {
        own->segment = from + 1;
        own->row = requantized(host_.session(), setup_, layer, number, own->row, from + 1);
    }
    return wrong;
}

// After a restore: by which segments a row came to where it is now is not told, but it came by some.
std::string CacheOracle::find_restored(const TokenRows& rows, OracleLayer& layer, const std::vector<Holding>& now) {
    const TokenRows read = read_rows(layer, rows.sequence);
    for (size_t head = 0; head < now.size(); ++head) {
        for (size_t at = 0; at < layer.tokens.size(); ++at) {
            OracleToken& token = layer.tokens[at];
            HeadToken& own = token.heads[head];
            if (!own.is_resident || own.segment == 0) continue;
            const auto found = now[head].find(token.token_id);
            if (found == now[head].end() || found->second < own.segment)
                return "token " + std::to_string(token.token_id) + " came up";
            const auto lower = [&](StoredRow row, int64_t from) { // through each segment up to where it is
                while (from < found->second) row = requantized(host_.session(), setup_, layer, head, row, ++from);
                return row;
            };
            std::vector<StoredRow> ways{lower(own.row, own.segment)};
            if (own.dense && found->second > 1) // a row that leaves the residual window may pass the first segment by
                ways.push_back(lower(*own.dense, 1));
            own.dense.reset();
            own.segment = found->second;
            own.row = *std::min_element(ways.begin(), ways.end(), [&](const StoredRow& a, const StoredRow& b) {
                return distance_of(read, head, at, a) < distance_of(read, head, at, b);
            });
        }
    }
    return "";
}

} // namespace winnow::conformance
