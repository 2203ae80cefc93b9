// A step of the oracle: make room, append, attend, accumulate.
#include "cache_oracle.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cache_rows.hpp"
#include "elements.hpp"

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double smallest = 0x1p-120;

} // namespace

void forget_gone(OracleLayer& layer) {
    std::erase_if(layer.tokens, [](const OracleToken& token) {
        return std::none_of(token.heads.begin(), token.heads.end(),
                            [](const HeadToken& each) { return each.is_resident; });
    });
}

CacheOracle::CacheOracle(CacheHost& host) : host_(host), setup_(host.setup()) {
    for (int64_t layer = 0; layer < setup_.layers; ++layer) rules_.push_back(rules_of(setup_, layer, 0));
    keeps_importance_ = setup_.keeps_importance();
    sequences_.resize(static_cast<size_t>(setup_.sequences));
    for (OracleSequence& sequence : sequences_) sequence = empty_sequence();
}

OracleSequence CacheOracle::empty_sequence() const {
    OracleLayer layer;
    if (setup_.residual > 0) layer.since_pass = -setup_.keep(); // so many more find room at first
    OracleSequence sequence{std::vector<OracleLayer>(static_cast<size_t>(setup_.layers), layer), {}};
    for (size_t i = 0; i < sequence.layers.size(); ++i) {
        OracleLayer& its = sequence.layers[i];
        its.number = static_cast<int64_t>(i);
        its.shortfall.assign(static_cast<size_t>(setup_.shape(its.number).kv_heads), 0);
    }
    return sequence;
}

// What had one of these cells before is gone.
void CacheOracle::reuse_cells(OracleLayer& layer, const std::vector<int64_t>& token_ids) const {
    const std::set<int64_t> used(token_ids.begin(), token_ids.end());
    std::erase_if(layer.tokens, [&](const OracleToken& token) { return used.contains(token.token_id); });
    for (const int64_t token_id : token_ids) layer.appended.erase(token_id);
}

std::string CacheOracle::step(Step& step) {
    OracleLayer& layer = at(step.sequence, step.layer);
    std::vector<int64_t> token_ids;
    for (int64_t t = 0; t < step.tokens; ++t)
        token_ids.push_back(step.cells ? static_cast<int64_t>(step.cells.get({0, 0, 0, t})) : layer.next + t);
    if (step.cells) reuse_cells(layer, token_ids);
    const int64_t before = layer.next;
    const uint64_t picks = tells_picks(step) ? host_.stats().picks : 0;
    picked_rows_ = 0;
    const std::string portrait = step.options.no_wait ? host_.portrait() : "";
    int32_t status = host_.run(step);
    if (step.options.no_wait && status == WINNOW_ERROR_WOULD_WAIT) {
        if (host_.portrait() != portrait) return "a step that would wait changed the cache: " + host_.message();
        step.options.no_wait = false;
        status = host_.run(step);
    }
    if (status != WINNOW_OK) return "cache_step: " + host_.message();
    ++steps_;
    sequences_[static_cast<size_t>(step.sequence)].is_used = true;
    std::string wrong = make_room(step, layer, token_ids);
    if (!wrong.empty()) return wrong;
    append(layer, token_ids, step.k, step.v);
    if (step.queries > 0) wrong = attend(step, layer);
    if (wrong.empty() && tells_picks(step) && host_.stats().picks - picks > picked_rows_)
        wrong = "of the pages that were picked some have nothing that a query may see";
    if (wrong.empty()) wrong = check_importance(step.sequence, step.layer);
    if (wrong.empty() && has_zeroing(step.layer, before, layer.next)) zero(step, layer, nullptr);
    forget_gone(layer);
    return wrong;
}

std::vector<float> CacheOracle::row_of(const TestTensor& tensor, int64_t head, int64_t token) {
    std::vector<float> row(static_cast<size_t>(tensor.shape()[3]));
    for (size_t d = 0; d < row.size(); ++d)
        row[d] = static_cast<float>(tensor.get({0, head, token, static_cast<int64_t>(d)}));
    return row;
}

// Rows of k and v; a head does not get a token whose key begins with NaN.
void CacheOracle::append(OracleLayer& layer, const std::vector<int64_t>& token_ids, const TestTensor& k,
                         const TestTensor& v) {
    const std::vector<CacheSetup> of_heads = setup_.of_heads(layer.number);
    std::vector<RowPair> rows;
    std::vector<size_t> heads;
    for (int64_t t = 0; t < static_cast<int64_t>(token_ids.size()); ++t) {
        OracleToken token;
        token.token_id = token_ids[static_cast<size_t>(t)];
        token.position = layer.next++;
        token.id = layer.next_id++;
        token.is_sink = token.position < setup_.sink;
        const bool is_packed = !token.is_sink && setup_.residual == 0;
        token.heads.resize(of_heads.size());
        for (int64_t head = 0; head < static_cast<int64_t>(of_heads.size()); ++head) {
            HeadToken& own = token.heads[static_cast<size_t>(head)];
            const RowPair row{row_of(k, head, t), row_of(v, head, t)};
            own.is_resident = !std::isnan(row.k[0]);
            own.segment = is_packed;
            if (own.is_resident && is_packed) rows.push_back(row), heads.push_back(static_cast<size_t>(head));
            if (own.is_resident && !is_packed) own.row = as_dense(of_heads[static_cast<size_t>(head)], row);
        }
        layer.appended[token.token_id] = token.is_sink;
        layer.tokens.push_back(std::move(token));
    }
    const std::vector<StoredRow> packed = stored_in_packed(layer, rows, heads);
    size_t left = packed.size();
    for (auto token = layer.tokens.rbegin(); left > 0; ++token)
        for (size_t head = token->heads.size(); head-- > 0;)
            if (token->heads[head].is_resident && token->heads[head].segment > 0)
                token->heads[head].row = packed[--left];
}

std::string CacheOracle::attend(const Step& step, OracleLayer& layer) {
    const std::string beside = step.out.damage() + step.scores.damage();
    if (!beside.empty()) return "beside out or scores_out: " + beside;
    for (const TestTensor* input : {&step.k, &step.v, &step.q})
        if (*input && !input->change().empty()) return "an input: " + input->change();
    const LayerShape shape = setup_.shape(step.layer);
    if (layer.output_sum.empty()) {
        const std::vector<double> none(static_cast<size_t>(shape.v_head_size), 0);
        layer.output_sum.assign(static_cast<size_t>(shape.kv_heads), none);
        layer.output_slack = layer.output_sum;
    }
    for (int64_t query = 0; query < step.queries; ++query)
        for (int64_t head = 0; head < shape.kv_heads; ++head) {
            const std::string wrong = attend_rows(step, layer, head, query);
            if (!wrong.empty()) return wrong;
        }
    const Rules& rules = rules_[static_cast<size_t>(step.layer)];
    if (rules.ranking == Ranking::value_distance && rules.counts(step.layer, step.queries, layer.next - 1))
        layer.outputs += std::max<int64_t>(step.queries - step.options.draft_tokens, 0) * shape.group;
    return "";
}

std::string CacheOracle::check_importance(int64_t sequence, int64_t layer_number) {
    if (!keeps_importance_) return "";
    OracleLayer& layer = at(sequence, layer_number);
    for (int64_t head = 0; head < setup_.shape(layer_number).kv_heads; ++head) {
        const std::vector<float> told = host_.importance(sequence, layer_number, head);
        const std::vector<int64_t> positions = host_.positions(sequence, layer_number, head);
        if (told.size() != positions.size()) return "cache_tokens tells another count of importances than of positions";
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
