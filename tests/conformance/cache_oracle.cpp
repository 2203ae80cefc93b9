// A step of the oracle: make room, append, attend, accumulate.
#include "cache_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "cache_rows.hpp"
#include "elements.hpp"

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double smallest = 0x1p-120;

double norm_of(const std::vector<double>& row) {
    double sum = 0;
    for (const double each : row) sum += each * each;
    return std::sqrt(sum);
}

} // namespace

CacheOracle::CacheOracle(CacheHost& host) : host_(host), setup_(host.setup()) {
    for (int64_t layer = 0; layer < setup_.layers; ++layer) rules_.push_back(rules_of(setup_, layer, 0));
    keeps_importance_ = setup_.keeps_importance();
    sequences_.resize(static_cast<size_t>(setup_.sequences));
    for (OracleSequence& sequence : sequences_) sequence = empty_sequence();
}

OracleSequence CacheOracle::empty_sequence() const {
    OracleLayer layer;
    layer.sinks.assign(static_cast<size_t>(setup_.sink), -1);
    layer.shortfall.assign(static_cast<size_t>(setup_.kv_heads), 0);
    OracleSequence sequence{std::vector<OracleLayer>(static_cast<size_t>(setup_.layers), layer), {}, 0};
    for (size_t i = 0; i < sequence.layers.size(); ++i) sequence.layers[i].number = static_cast<int64_t>(i);
    return sequence;
}

// Whether an eviction pass falls before a chunk of which so many tokens are no sinks.
bool CacheOracle::has_pass(const OracleLayer& layer, int64_t layer_number, int64_t entering, bool is_decode) const {
    const int64_t occupancy = static_cast<int64_t>(layer.newest.size()), cadence = setup_.cadence_tokens();
    if (setup_.residual == 0) return entering > 0 && occupancy + entering > layer.free_listed;
    if (occupancy + entering > setup_.residual) return true;
    return is_decode && layer.next % cadence == layer_number * cadence / setup_.layers && occupancy > setup_.keep();
}

// How many residual rows an eviction pass moves into the packed segment.
int64_t CacheOracle::leaving(const OracleLayer& layer, int64_t layer_number, int64_t entering) const {
    if (setup_.residual == 0) return 0;
    const int64_t occupancy = static_cast<int64_t>(layer.newest.size());
    const int64_t usual = std::max(occupancy - setup_.keep(), occupancy + entering - setup_.residual);
    if (!setup_.covers_all(layer_number)) return usual;
    // Where no token is evicted, the last rows of a context stay in the residual window: the packed segment is no
    // larger than the rest.
    const int64_t most = setup_.cells > 0 ? setup_.cells : setup_.context - setup_.sink - setup_.residual;
    return std::min(usual, std::max({most - layer.most_in_packed, occupancy + entering - setup_.residual,
                                     static_cast<int64_t>(0)}));
}

// The most that the packed segment of a layer holds.
int64_t CacheOracle::most_packed(int64_t layer_number) const {
    if (!setup_.covers_all(layer_number))
        return rules_[static_cast<size_t>(layer_number)].budget - setup_.sink - setup_.residual;
    return setup_.cells == 0 ? setup_.context : setup_.cells + (setup_.residual == 0 ? setup_.cadence_tokens() : 0);
}

// What had one of these cells before is gone.
void CacheOracle::reuse_cells(OracleLayer& layer, const std::vector<int64_t>& token_ids) const {
    for (OracleToken& token : layer.tokens) {
        if (std::find(token_ids.begin(), token_ids.end(), token.token_id) == token_ids.end()) continue;
        for (HeadToken& head : token.heads) head.is_resident = false;
        token.token_id = -1;
    }
    for (const int64_t token_id : token_ids) {
        layer.original.erase(token_id);
        std::replace(layer.sinks.begin(), layer.sinks.end(), token_id, static_cast<int64_t>(-1));
        for (ResidualPlace& place : layer.newest) place.is_removed |= place.token_id == token_id;
    }
}

std::string CacheOracle::step(Step& step) {
    OracleLayer& layer = at(step.sequence, step.layer);
    std::vector<int64_t> token_ids;
    int64_t entering = 0;
    for (int64_t t = 0; t < step.tokens; ++t) {
        token_ids.push_back(step.cells ? static_cast<int64_t>(step.cells.get({0, 0, 0, t})) : layer.next + t);
        entering += layer.next + t >= setup_.sink;
    }
    if (step.cells) reuse_cells(layer, token_ids);
    // A prompt, a pass and a pick move together what gaps have come between.
    if (setup_.recalls && step.queries > most_picking) layer.most_in_packed = packed_rows(layer);
    const bool is_due = step.tokens > 0 && has_pass(layer, step.layer, entering, step.tokens == 1);
    const int64_t leave = is_due ? leaving(layer, step.layer, entering) : 0, before = layer.next;

    const uint64_t picks = tells_picks(step) ? host_.stats().picks : 0;
    picked_rows_ = 0;
    if (host_.run(step) != WINNOW_OK) return "cache_step: " + host_.message();
    ++steps_;
    layer.has_memory = true;
    std::vector<std::set<int64_t>> left;
    std::string wrong = read_resident(step, token_ids, left);
    if (!wrong.empty()) return wrong;
    if (is_due) ++passes_;
    if (is_due) zero_before_packing(step, layer, leave);
    if (setup_.center && !layer.has_means && leave > 0) set_means(layer);
    std::vector<std::set<int64_t>> gone(static_cast<size_t>(setup_.kv_heads));
    for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        std::set<int64_t>& victims = gone[static_cast<size_t>(head)];
        for (const OracleToken& token : layer.tokens)
            if (token.heads[static_cast<size_t>(head)].is_resident &&
                !left[static_cast<size_t>(head)].contains(token.token_id))
                victims.insert(token.position);
        evictions_ += victims.size();
        if (is_due) wrong = check_pass(step, layer, head, victims, leave);
        if (!is_due && !victims.empty())
            wrong = "position " + std::to_string(*victims.begin()) + " went, though no eviction pass was due";
        if (!wrong.empty()) return "head " + std::to_string(head) + ": " + wrong;
    }
    for (OracleToken& token : layer.tokens)
        for (size_t head = 0; head < gone.size(); ++head)
            if (gone[head].contains(token.position)) token.heads[head].is_resident = false;
    if (is_due) {
        for (int64_t head = 0; head < setup_.kv_heads; ++head)
            if (wrong = check_moves(step, layer, head, leave); !wrong.empty())
                return "head " + std::to_string(head) + ": " + wrong;
        leave_residual(layer, step.sequence, step.layer, leave);
        layer.free_listed = setup_.cadence_tokens();
        if (setup_.cells == 0) layer.free_listed = std::min(layer.free_listed, setup_.context - layer.next);
        layer.output_sum.clear();
        layer.outputs = 0;
    }
    append(layer, token_ids, step.k, step.v);
    if (setup_.recalls && (step.queries > 0 || is_due)) layer.most_in_packed = packed_rows(layer);
    note_packed(layer, 0);
    if (step.queries > 0) wrong = attend(step, layer);
    if (wrong.empty() && tells_picks(step) && host_.stats().picks - picks > picked_rows_)
        wrong = "of the pages that were picked some have nothing that a query may see";
    if (wrong.empty()) wrong = check_importance(step.sequence, step.layer);
    if (wrong.empty() && has_zeroing(step.layer, before, layer.next)) zero(step, layer, false, 0);
    std::erase_if(layer.tokens, [](const OracleToken& token) {
        return std::none_of(token.heads.begin(), token.heads.end(),
                            [](const HeadToken& each) { return each.is_resident; });
    });
    return wrong;
}

// Which tokens each head holds now: those of before or fewer, and the new ones.
std::string CacheOracle::read_resident(const Step& step, const std::vector<int64_t>& token_ids,
                                       std::vector<std::set<int64_t>>& left) {
    const OracleLayer& layer = at(step.sequence, step.layer);
    for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        const std::string where = "head " + std::to_string(head) + ": ";
        const std::vector<int32_t> positions = host_.positions(step.sequence, step.layer, head);
        std::set<int64_t> unexpected(positions.begin(), positions.end());
        left.push_back(unexpected);
        if (unexpected.size() != positions.size() || !std::is_sorted(positions.begin(), positions.end()))
            return where + "positions are not ascending, or not unique";
        for (const int64_t token_id : token_ids)
            if (unexpected.erase(token_id) == 0)
                return where + "the new token " + std::to_string(token_id) + " is not there";
        for (const OracleToken& token : layer.tokens)
            if (token.heads[static_cast<size_t>(head)].is_resident) unexpected.erase(token.token_id);
        if (!unexpected.empty())
            return where + "token " + std::to_string(*unexpected.begin()) + " is there, though it was not before";
    }
    return "";
}

std::string CacheOracle::check_pass(const Step& step, OracleLayer& layer, int64_t head,
                                    const std::set<int64_t>& victims, int64_t leave) {
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    std::vector<Candidate> candidates;
    int64_t needed_slots = 0;
    for (const OracleToken& token : layer.tokens) {
        const HeadToken& own = token.heads[static_cast<size_t>(head)];
        if (!own.is_resident) continue;
        Candidate candidate = candidate_of(step, layer, token, head);
        candidate.frees_slot = token.is_in_packed || leaves(layer, token, leave);
        needed_slots += candidate.frees_slot;
        candidates.push_back(candidate);
    }
    EvictionPass pass = pass_of(layer, step.layer, head);
    // Rows that leave the residual window need a place in the packed segment; without a residual window, those that
    // come until the next eviction pass do.
    if (setup_.residual == 0) needed_slots += std::min(pass.incoming, pass.context - layer.next);
    if (!setup_.covers_all(step.layer))
        pass.needed_slots = needed_slots - (rules.budget - setup_.sink - setup_.residual);
    int64_t shortfall = 0;
    const std::string wrong = check_victims(rules, pass, candidates, victims, &shortfall);
    layer.shortfall.resize(static_cast<size_t>(setup_.kv_heads), 0);
    layer.shortfall[static_cast<size_t>(head)] = shortfall;
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

EvictionPass CacheOracle::pass_of(const OracleLayer& layer, int64_t layer_number, int64_t head) const {
    EvictionPass pass{head, layer.next, setup_.coming(), rules_[static_cast<size_t>(layer_number)].context, 0};
    if (setup_.cells > 0) // appending has no end, but no more tokens than cells are resident
        pass.context = setup_.covers_all(layer_number)
                           ? layer.next + setup_.cells - static_cast<int64_t>(layer.original.size())
                           : INT64_MAX;
    return pass;
}

// Whether a token is among the oldest `leave` rows of the residual window.
bool CacheOracle::leaves(const OracleLayer& layer, const OracleToken& token, int64_t leave) {
    return leave > 0 && token.is_in_residual && token.id <= layer.newest[static_cast<size_t>(leave) - 1].id;
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
    *slack = norm_of(doubt) + 64 * unit * norm_of(size);
    return norm_of(difference);
}

void CacheOracle::set_means(OracleLayer& layer) {
    layer.has_means = true;
    const size_t heads = static_cast<size_t>(setup_.kv_heads);
    layer.k_mean.assign(heads, std::vector<float>(static_cast<size_t>(setup_.head_size), 0));
    layer.v_mean.assign(heads, std::vector<float>(static_cast<size_t>(setup_.v_head_size), 0));
    for (size_t head = 0; head < heads; ++head) {
        std::vector<double> k(layer.k_mean[head].size(), 0), v(layer.v_mean[head].size(), 0);
        double rows = 0;
        for (const OracleToken& token : layer.tokens) {
            if (!token.is_in_residual || !token.heads[head].is_resident) continue;
            ++rows;
            for (size_t d = 0; d < k.size(); ++d) k[d] += static_cast<double>(token.heads[head].row.k[d]);
            for (size_t d = 0; d < v.size(); ++d) v[d] += static_cast<double>(token.heads[head].row.v[d]);
        }
        if (rows == 0) continue;
        for (size_t d = 0; d < k.size(); ++d) layer.k_mean[head][d] = static_cast<float>(k[d] / rows);
        for (size_t d = 0; d < v.size(); ++d) layer.v_mean[head][d] = static_cast<float>(v[d] / rows);
    }
}

std::vector<float> CacheOracle::row_of(const TestTensor& tensor, int64_t head, int64_t token) {
    std::vector<float> row(static_cast<size_t>(tensor.shape()[3]));
    for (size_t d = 0; d < row.size(); ++d)
        row[d] = static_cast<float>(tensor.get({0, head, token, static_cast<int64_t>(d)}));
    return row;
}

// The oldest residual rows become rows of the first packed segment, if check_moves did not find them further below.
void CacheOracle::leave_residual(OracleLayer& layer, int64_t sequence, int64_t layer_number, int64_t leave) {
    std::vector<RowPair> rows;
    std::vector<HeadToken*> owners;
    std::vector<std::pair<size_t, size_t>> places; // token and head
    for (OracleToken& token : layer.tokens) {
        if (!leaves(layer, token, leave)) continue;
        token.is_in_residual = false;
        token.is_in_packed = true;
        for (size_t head = 0; head < token.heads.size(); ++head) {
            HeadToken& own = token.heads[head];
            if (!own.is_resident || own.segment > 0) continue;
            own.segment = 1;
            if (!setup_.lower.empty()) own.dense = own.row;
            rows.push_back({own.row.k, own.row.v, layer.has_means ? &layer.k_mean[head] : nullptr,
                            layer.has_means ? &layer.v_mean[head] : nullptr});
            owners.push_back(&own);
            places.emplace_back(static_cast<size_t>(&token - layer.tokens.data()), head);
        }
    }
    layer.most_in_packed += setup_.residual > 0 ? leave : static_cast<int64_t>(layer.newest.size());
    layer.most_in_packed = std::min(layer.most_in_packed, most_packed(layer_number));
    // Without a residual window the rows are in the packed segment already, and a new list begins.
    layer.newest.erase(layer.newest.begin(),
                       layer.newest.begin() +
                           (setup_.residual > 0 ? leave : static_cast<int64_t>(layer.newest.size())));
    if (setup_.cells > 0) { // tokens whose cells others got are in no packed segment any more
        const auto in_sinks = std::count_if(layer.sinks.begin(), layer.sinks.end(), [](int64_t id) { return id >= 0; });
        const auto newest = std::count_if(layer.newest.begin(), layer.newest.end(),
                                          [](const ResidualPlace& place) { return !place.is_removed; });
        layer.most_in_packed =
            std::min<int64_t>(layer.most_in_packed, static_cast<int64_t>(layer.original.size()) - in_sinks - newest);
    }
    std::vector<size_t> heads;
    for (const auto& [token, head] : places) heads.push_back(head);
    const std::vector<StoredRow> packed = stored_in_packed(layer, rows, heads);
    for (size_t i = 0; i < owners.size(); ++i) {
        const StoredRow before = std::exchange(owners[i]->row, packed[i]);
        if (!may_have_zeros(before)) continue;
        const auto [token, head] = places[i];
        const StoredRow zeroed = stored_in_packed(layer, {with_zeros(rows[i], before)}, {head})[0];
        const TokenRows now = read_rows(layer, sequence, layer_number);
        if (distance_of(now, head, token, zeroed) < distance_of(now, head, token, packed[i])) owners[i]->row = zeroed;
    }
}

// Rows of heads as the first packed segment stores them; those of heads that store alike at once.
std::vector<StoredRow> CacheOracle::stored_in_packed(const OracleLayer& layer, const std::vector<RowPair>& rows,
                                                     const std::vector<size_t>& heads) const {
    if (!setup_.has_formats_by_head()) return as_packed(host_.session(), setup_.of_head(layer.number, 0), rows);
    std::vector<StoredRow> all(rows.size());
    for (size_t head = 0; head < static_cast<size_t>(setup_.kv_heads); ++head) {
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

// Rows of k and v from `first` on; a head does not get a token whose key begins with NaN.
void CacheOracle::append(OracleLayer& layer, const std::vector<int64_t>& token_ids, const TestTensor& k,
                         const TestTensor& v, int64_t first) {
    const std::vector<CacheSetup> of_heads = setup_.of_heads(layer.number);
    std::vector<RowPair> rows;
    std::vector<size_t> heads;
    for (int64_t t = 0; t < static_cast<int64_t>(token_ids.size()); ++t) {
        OracleToken token;
        token.token_id = token_ids[static_cast<size_t>(t)];
        token.position = layer.next++;
        token.id = layer.next_id++;
        const bool is_sink = token.position < setup_.sink;
        token.is_in_packed = !is_sink && setup_.residual == 0;
        token.is_in_residual = !is_sink && setup_.residual > 0;
        if (is_sink) // any slot of a sink does
            *std::find(layer.sinks.begin(), layer.sinks.end(), -1) = token.token_id;
        else
            layer.newest.push_back({token.id, token.token_id});
        token.heads.resize(static_cast<size_t>(setup_.kv_heads));
        for (int64_t head = 0; head < setup_.kv_heads; ++head) {
            HeadToken& own = token.heads[static_cast<size_t>(head)];
            const RowPair row{row_of(k, head, first + t), row_of(v, head, first + t)};
            own.is_resident = !std::isnan(row.k[0]);
            own.segment = token.is_in_packed;
            if (own.is_resident && token.is_in_packed) rows.push_back(row), heads.push_back(static_cast<size_t>(head));
            if (own.is_resident && !token.is_in_packed) own.row = as_dense(of_heads[static_cast<size_t>(head)], row);
        }
        layer.original.insert(token.token_id);
        layer.tokens.push_back(std::move(token));
    }
    const std::vector<StoredRow> packed = stored_in_packed(layer, rows, heads);
    size_t left = packed.size();
    for (auto token = layer.tokens.rbegin(); left > 0; ++token)
        if (token->is_in_packed)
            for (size_t head = token->heads.size(); head-- > 0;)
                if (token->heads[head].is_resident) token->heads[head].row = packed[--left];
}

std::string CacheOracle::attend(const Step& step, OracleLayer& layer) {
    const std::string beside = step.out.damage() + step.scores.damage();
    if (!beside.empty()) return "beside out or scores_out: " + beside;
    for (const TestTensor* input : {&step.k, &step.v, &step.q})
        if (*input && !input->change().empty()) return "an input: " + input->change();
    const size_t heads = static_cast<size_t>(setup_.kv_heads), v_size = static_cast<size_t>(setup_.v_head_size);
    if (layer.output_sum.empty()) {
        layer.output_sum.assign(heads, std::vector<double>(v_size, 0));
        layer.output_slack = layer.output_sum;
    }
    for (int64_t query = 0; query < step.queries; ++query)
        for (int64_t head = 0; head < setup_.kv_heads; ++head) {
            const std::string wrong = attend_rows(step, layer, head, query);
            if (!wrong.empty()) return wrong;
        }
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    if (rules.ranking == Ranking::value_distance && rules.counts(step.layer, step.queries, layer.next - 1))
        layer.outputs += std::max<int64_t>(step.queries - step.options.draft_tokens, 0) * setup_.group;
    return "";
}

std::string CacheOracle::check_importance(int64_t sequence, int64_t layer_number) {
    if (!keeps_importance_) return "";
    OracleLayer& layer = at(sequence, layer_number);
    for (int64_t head = 0; head < setup_.kv_heads; ++head) {
        const std::vector<float> told = host_.importance(sequence, layer_number, head);
        const std::vector<int32_t> positions = host_.positions(sequence, layer_number, head);
        if (told.size() != positions.size()) return "cache_importance has another count than cache_positions";
        std::map<int64_t, double> by_token_id;
        for (size_t i = 0; i < told.size(); ++i) by_token_id[positions[i]] = static_cast<double>(told[i]);
        for (OracleToken& token : layer.tokens) {
            HeadToken& own = token.heads[static_cast<size_t>(head)];
            if (!own.is_resident) continue;
            own.told = by_token_id.at(token.token_id);
            const double slack = smallest + 4 * unit * std::fabs(own.importance.high);
            if (own.told >= own.importance.low - slack && own.told <= own.importance.high + slack) continue;
            std::ostringstream text;
            text << "head " << head << ": the importance of token " << token.token_id << " is " << own.told
                 << ", expected " << own.importance.low << " to " << own.importance.high;
            return text.str();
        }
    }
    return "";
}

} // namespace winnow::conformance
