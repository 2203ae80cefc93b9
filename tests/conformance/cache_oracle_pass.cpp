// Eviction passes, by what they leave: which tokens a head has lost, which rows left the residual window, and how many
// tokens came since the pass before.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "cache_oracle.hpp"
#include "cache_rows.hpp"

namespace winnow::conformance {
namespace {

constexpr double single_unit = 0x1p-24; // half a unit in the last place of 1 in single precision

double norm_of(const std::vector<double>& row) {
    double sum = 0;
    for (const double each : row) sum += each * each;
    return std::sqrt(sum);
}

std::string named(const OracleToken& token) { return "token " + std::to_string(token.token_id); }

} // namespace

std::vector<Holding> CacheOracle::holdings_of(int64_t sequence, int64_t layer_number) const {
    std::vector<Holding> all(static_cast<size_t>(setup_.shape(layer_number).kv_heads));
    for (size_t head = 0; head < all.size(); ++head) {
        const auto number = static_cast<int64_t>(head);
        const std::vector<int64_t> token_ids = host_.positions(sequence, layer_number, number);
        const std::vector<int32_t> segments = host_.segments(sequence, layer_number, number);
        if (token_ids.size() != segments.size())
            throw std::runtime_error("cache_tokens tells another count of segments than of positions");
        if (!std::is_sorted(token_ids.begin(), token_ids.end()))
            throw std::runtime_error("head " + std::to_string(head) + ": positions are not ascending");
        for (size_t i = 0; i < token_ids.size(); ++i)
            if (!all[head].emplace(token_ids[i], segments[i]).second)
                throw std::runtime_error("head " + std::to_string(head) + ": positions are not unique");
    }
    return all;
}

// Takes the tokens of a step out: each head has them, and where such tokens come to.
std::string CacheOracle::take_new(const OracleLayer& layer, const std::vector<int64_t>& token_ids,
                                  std::vector<Holding>& now) const {
    for (size_t head = 0; head < now.size(); ++head)
        for (size_t at = 0; at < token_ids.size(); ++at) {
            const bool is_packed = layer.next + static_cast<int64_t>(at) >= setup_.sink && setup_.residual == 0;
            const auto found = now[head].find(token_ids[at]);
            const std::string where =
                "head " + std::to_string(head) + ": the new token " + std::to_string(token_ids[at]);
            if (found == now[head].end()) return where + " is not there";
            if (found->second != is_packed) return where + " is in segment " + std::to_string(found->second);
            now[head].erase(found);
        }
    return "";
}

// What became of the tokens that were there when those of a step came: judges what an eviction pass has left, if there
// was one, and takes it over.
std::string CacheOracle::make_room(const Step& step, OracleLayer& layer, const std::vector<int64_t>& token_ids) {
    std::vector<Holding> now = holdings_of(step.sequence, step.layer);
    if (const std::string wrong = take_new(layer, token_ids, now); !wrong.empty()) return wrong;
    const uint64_t counted = host_.stats().eviction_passes, passes = counted - std::exchange(passes_, counted);
    const int64_t entering = std::clamp<int64_t>(layer.next + step.tokens - setup_.sink, 0, step.tokens);
    if (passes > (step.tokens > 0 ? 1 : 0))
        return std::to_string(passes) + " eviction passes for " + std::to_string(step.tokens) + " tokens";
    if (passes == 1) {
        if (const std::string wrong = check_time(step, layer, entering); !wrong.empty()) return wrong;
        layer.since_pass = 0;
        zero_before_packing(step, layer, now);
        if (setup_.center && !layer.has_means && (layer.possible_means.empty() || setup_.covers_all(step.layer)))
            layer.possible_means.push_back(means_of(layer, layer.next_id));
        for (int64_t head = 0; head < static_cast<int64_t>(now.size()); ++head)
            if (const std::string wrong = check_pass(step, layer, head, now[static_cast<size_t>(head)]); !wrong.empty())
                return "head " + std::to_string(head) + ": " + wrong;
        // Rows that come with the step may need more of the residual window than a pass leaves free.
        const int64_t stay = setup_.residual > 0 ? setup_.keep() : 0;
        const std::string wrong = check_leaving(layer, now, std::min(stay, setup_.residual - entering),
                                                setup_.covers_all(step.layer) ? std::nullopt : std::optional(stay));
        if (!wrong.empty()) return wrong;
        settle_means(layer, step.sequence, now);
        for (int64_t head = 0; head < static_cast<int64_t>(now.size()); ++head)
            if (const std::string unlike = check_moves(step, layer, head, now); !unlike.empty())
                return "head " + std::to_string(head) + ": " + unlike;
        pack_leaving(layer, step.sequence, now);
        begin_outputs(layer);
    }
    if (layer.since_pass) *layer.since_pass += entering;
    return check_holdings(layer, now);
}

// Eviction passes of a layer are more than `cadence` tokens apart, those included that come with the second. Only a
// token that comes alone may have one earlier, and that at most once in `cadence` positions. Where all tokens find
// room, passes evict none, and may come at any time.
std::string CacheOracle::check_time(const Step& step, OracleLayer& layer, int64_t entering) const {
    const int64_t cadence = setup_.cadence_tokens();
    if (setup_.covers_all(step.layer) || !layer.since_pass || *layer.since_pass + entering > cadence) return "";
    if (setup_.residual > 0 && step.tokens == 1 && *layer.since_pass > 0 && layer.next - layer.last_turn >= cadence) {
        layer.last_turn = layer.next;
        return "";
    }
    return "an eviction pass comes " + std::to_string(*layer.since_pass) + " tokens after the one before, for " +
           std::to_string(entering) + " more, with a cadence of " + std::to_string(cadence);
}

// Judges which tokens a head has lost, and takes them from it.
std::string CacheOracle::check_pass(const Step& step, OracleLayer& layer, int64_t head, const Holding& now) {
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    const auto number = static_cast<size_t>(head);
    std::vector<Candidate> candidates;
    std::set<int64_t> victims;
    int64_t needed_slots = 0;
    for (OracleToken& token : layer.tokens) {
        HeadToken& own = token.heads[number];
        if (!own.is_resident) continue;
        const auto found = now.find(token.token_id);
        const bool is_victim = found == now.end();
        Candidate candidate = candidate_of(step, layer, token, head);
        // One that leaves the residual window needs a slot of a packed segment, unless it is evicted.
        candidate.frees_slot = own.segment > 0 || (is_in_window(token, number) && (is_victim || found->second > 0));
        needed_slots += candidate.frees_slot;
        candidates.push_back(candidate);
        if (is_victim) victims.insert(token.position);
    }
    EvictionPass pass = pass_of(layer, head);
    // Without a residual window, those that come until the next eviction pass need slots, too.
    if (setup_.residual == 0) needed_slots += std::min(pass.incoming, pass.context - layer.next);
    if (!setup_.covers_all(step.layer)) pass.needed_slots = needed_slots - packed_capacity(step.layer);
    int64_t shortfall = 0;
    const std::string wrong = check_victims(rules, pass, candidates, victims, &shortfall);
    layer.shortfall.resize(static_cast<size_t>(setup_.shape(step.layer).kv_heads), 0);
    layer.shortfall[number] = shortfall;
    for (OracleToken& token : layer.tokens)
        if (token.heads[number].is_resident && victims.contains(token.position))
            token.heads[number].is_resident = false;
    evictions_ += victims.size();
    if (wrong.empty() && shortfall > 0)
        return std::to_string(shortfall) + " more had to be evicted, and were protected";
    return wrong;
}

Candidate CacheOracle::candidate_of(const Step& step, const OracleLayer& layer, const OracleToken& token,
                                    int64_t head) const {
    const HeadToken& own = token.heads[static_cast<size_t>(head)];
    Candidate candidate{token.position, is_anchor(step.sequence, token.token_id), own.told};
    const Ranking ranking = rules_[static_cast<size_t>(step.layer)].ranking;
    candidate.value = value_of(layer, head, own, ranking, &candidate.value_slack);
    return candidate;
}

EvictionPass CacheOracle::pass_of(const OracleLayer& layer, int64_t head) const {
    EvictionPass pass{head, layer.next, setup_.coming(), rules_[static_cast<size_t>(layer.number)].context, 0};
    if (setup_.cells > 0) // appending has no end, but no more tokens than cells are resident
        pass.context = setup_.covers_all(layer.number)
                           ? layer.next + setup_.cells - static_cast<int64_t>(layer.appended.size())
                           : INT64_MAX;
    return pass;
}

int64_t CacheOracle::packed_capacity(int64_t layer_number) const {
    if (!setup_.covers_all(layer_number))
        return rules_[static_cast<size_t>(layer_number)].budget - setup_.sink - setup_.residual;
    return setup_.cells == 0 ? setup_.context : setup_.cells + (setup_.residual == 0 ? setup_.cadence_tokens() : 0);
}

bool CacheOracle::is_in_window(const OracleToken& token, size_t head) {
    return !token.is_sink && token.heads[head].is_resident && token.heads[head].segment == 0;
}

// Whether its row is in the residual window as far as the oracle knows, and in a packed segment now.
bool CacheOracle::leaves(const OracleToken& token, size_t head, const std::vector<Holding>& now) {
    if (!is_in_window(token, head)) return false;
    const auto found = now[head].find(token.token_id);
    return found != now[head].end() && found->second > 0;
}

// Rows that leave the residual window have `least` newer ones in it, also of tokens that were removed. `most`: those
// that stay have fewer newer ones than that, which are still there. All heads agree in this.
std::string CacheOracle::check_leaving(const OracleLayer& layer, const std::vector<Holding>& now, int64_t least,
                                       std::optional<int64_t> most) const {
    int64_t newer = 0;
    for (auto token = layer.tokens.rbegin(); token != layer.tokens.rend(); ++token) {
        int64_t leaving = 0, staying = 0;
        for (size_t head = 0; head < now.size(); ++head) {
            leaving += leaves(*token, head, now);
            staying += is_in_window(*token, head) && !leaves(*token, head, now);
        }
        if (leaving > 0 && staying > 0) return named(*token) + " left the residual window in some heads alone";
        if (leaving > 0 && layer.next_id - 1 - token->id < least)
            return named(*token) + " left the residual window, expected that the newest " + std::to_string(least) +
                   " stay";
        if (staying > 0 && most && newer >= *most)
            return named(*token) + " is in the residual window with " + std::to_string(newer) +
                   " newer ones, expected that all but " + std::to_string(*most) + " left it";
        newer += leaving > 0 || staying > 0;
    }
    return "";
}

// Each head holds what it is expected to, each token where it is expected to lie.
std::string CacheOracle::check_holdings(const OracleLayer& layer, const std::vector<Holding>& now) const {
    for (size_t head = 0; head < now.size(); ++head) {
        const std::string where = "head " + std::to_string(head) + " ";
        Holding unexpected = now[head];
        for (const OracleToken& token : layer.tokens) {
            const HeadToken& own = token.heads[head];
            if (!own.is_resident) continue;
            const auto found = unexpected.find(token.token_id);
            if (found == unexpected.end()) return where + "has not got " + named(token) + " any more";
            if (found->second != own.segment)
                return where + "has " + named(token) + " in segment " + std::to_string(found->second) + ", expected " +
                       std::to_string(own.segment);
            unexpected.erase(found);
        }
        if (!unexpected.empty())
            return where + "has token " + std::to_string(unexpected.begin()->first) + ", which it did not have";
    }
    return "";
}

// What a ranking multiplies the importance by.
double CacheOracle::value_of(const OracleLayer& layer, int64_t head, const HeadToken& token, Ranking ranking,
                             double* slack) const {
    if (ranking != Ranking::value_distance) return 1;
    const bool has_output = layer.outputs > 0 && !layer.output_sum.empty();
    std::vector<double> difference, doubt, size;
    for (size_t d = 0; d < token.row.v.size(); ++d) {
        const double o =
            has_output ? layer.output_sum[static_cast<size_t>(head)][d] / static_cast<double>(layer.outputs) : 0;
        const double own = token.row.v_slack.empty() ? 0 : static_cast<double>(token.row.v_slack[d]);
        difference.push_back(static_cast<double>(token.row.v[d]) - o);
        doubt.push_back(
            own +
            (has_output ? layer.output_slack[static_cast<size_t>(head)][d] / static_cast<double>(layer.outputs) : 0));
        size.push_back(static_cast<double>(token.row.v_size[d]) + std::fabs(o));
    }
    *slack = norm_of(doubt) + 64 * single_unit * norm_of(size);
    return norm_of(difference);
}

void CacheOracle::begin_outputs(OracleLayer& layer) {
    layer.output_sum.clear();
    layer.outputs = 0;
}

// Of the rows in the residual window, less those that came as `end_id` or later.
Means CacheOracle::means_of(const OracleLayer& layer, int64_t end_id) const {
    const LayerShape shape = setup_.shape(layer.number);
    const size_t heads = static_cast<size_t>(shape.kv_heads);
    const std::vector<float> no_k(static_cast<size_t>(shape.head_size), 0),
        no_v(static_cast<size_t>(shape.v_head_size), 0);
    Means means{std::vector(heads, no_k), std::vector(heads, no_v)};
    const auto take = [&](std::vector<float>& mean, size_t head, std::vector<float> StoredRow::*side) {
        std::vector<double> sum(mean.size(), 0);
        double rows = 0;
        for (const OracleToken& token : layer.tokens) {
            if (!is_in_window(token, head) || token.id >= end_id) continue;
            ++rows;
            for (size_t d = 0; d < sum.size(); ++d) sum[d] += static_cast<double>((token.heads[head].row.*side)[d]);
        }
        for (size_t d = 0; d < sum.size() && rows > 0; ++d) mean[d] = static_cast<float>(sum[d] / rows);
    };
    for (size_t head = 0; head < heads; ++head) {
        take(means.k[head], head, &StoredRow::k);
        take(means.v[head], head, &StoredRow::v);
    }
    return means;
}

// Means are taken at the first pass that moves rows. Whether a pass did is not told where no token was there any more
// that moved, nor in which part of a restored text it fell: then the rows of each head tell which means were
// subtracted.
void CacheOracle::settle_means(OracleLayer& layer, int64_t sequence, const std::vector<Holding>& now) {
    if (layer.possible_means.empty()) return;
    std::vector<std::pair<size_t, size_t>> places; // token and head
    for (size_t at = 0; at < layer.tokens.size(); ++at)
        for (size_t head = 0; head < now.size(); ++head)
            if (leaves(layer.tokens[at], head, now)) places.emplace_back(at, head);
    if (places.empty()) return;
    const TokenRows rows = read_rows(layer, sequence);
    double least = std::numeric_limits<double>::infinity();
    std::vector<Means> nearest; // several where they differ for heads alone of which no row leaves
    for (const Means& means : layer.possible_means) {
        std::vector<RowPair> pairs;
        std::vector<size_t> heads;
        for (const auto& [at, head] : places) {
            const StoredRow& row = layer.tokens[at].heads[head].row;
            pairs.push_back({row.k, row.v, &means.k[head], &means.v[head]});
            heads.push_back(head);
        }
        double distance = 0;
        const std::vector<StoredRow> stored = stored_in_packed(layer, pairs, heads);
        for (size_t i = 0; i < places.size(); ++i)
            distance += distance_of(rows, places[i].second, places[i].first, stored[i]);
        if (distance < least) nearest.clear();
        least = std::min(least, distance);
        if (distance == least) nearest.push_back(means);
    }
    layer.has_means = true;
    layer.means = nearest.front();
    layer.possible_means.clear();
    if (nearest.size() > 1) layer.possible_means = nearest;
}

// Rows that left the residual window become rows of the first packed segment, if check_moves did not find them further
// below.
void CacheOracle::pack_leaving(OracleLayer& layer, int64_t sequence, const std::vector<Holding>& now) {
    std::vector<RowPair> rows;
    std::vector<size_t> heads;
    std::vector<std::pair<size_t, HeadToken*>> owners; // with the number of the token
    for (size_t at = 0; at < layer.tokens.size(); ++at)
        for (size_t head = 0; head < now.size(); ++head) {
            if (!leaves(layer.tokens[at], head, now)) continue;
            HeadToken& own = layer.tokens[at].heads[head];
            own.segment = 1;
            if (!setup_.lower.empty()) own.dense = own.row;
            rows.push_back({own.row.k, own.row.v, layer.has_means ? &layer.means.k[head] : nullptr,
                            layer.has_means ? &layer.means.v[head] : nullptr});
            heads.push_back(head);
            owners.emplace_back(at, &own);
        }
    const std::vector<StoredRow> packed = stored_in_packed(layer, rows, heads);
    for (size_t i = 0; i < owners.size(); ++i) {
        const auto [at, own] = owners[i];
        const StoredRow before = std::exchange(own->row, packed[i]);
        if (!may_have_zeros(before)) continue;
        const StoredRow zeroed = stored_in_packed(layer, {with_zeros(rows[i], before)}, {heads[i]})[0];
        const TokenRows read = read_rows(layer, sequence);
        if (distance_of(read, heads[i], at, zeroed) < distance_of(read, heads[i], at, packed[i])) own->row = zeroed;
    }
}

// Rows of heads as the first packed segment stores them; those of heads that store alike at once.
std::vector<StoredRow> CacheOracle::stored_in_packed(const OracleLayer& layer, const std::vector<RowPair>& rows,
                                                     const std::vector<size_t>& heads) const {
    if (!setup_.has_formats_by_head()) return as_packed(host_.session(), setup_.of_head(layer.number, 0), rows);
    std::vector<StoredRow> all(rows.size());
    for (size_t head = 0; head < static_cast<size_t>(setup_.shape(layer.number).kv_heads); ++head) {
        std::vector<RowPair> its;
        std::vector<size_t> where;
        for (size_t i = 0; i < rows.size(); ++i)
            if (heads[i] == head) its.push_back(rows[i]), where.push_back(i);
        const std::vector<StoredRow> packed =
            as_packed(host_.session(), setup_.of_head(layer.number, static_cast<int64_t>(head)), its);
        for (size_t i = 0; i < where.size(); ++i) all[where[i]] = packed[i];
    }
    return all;
}

} // namespace winnow::conformance
