// Rows by token, against those that the oracle keeps.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "cache_oracle.hpp"
#include "cache_rows.hpp"
#include "cache_token_rows.hpp"

namespace winnow::conformance {
namespace {

// Half a unit in the last place of a type, relative, and the least that counts.
double rounding_of(uint32_t type) { return type == WINNOW_TYPE_F16 ? 0x1p-11 : type == WINNOW_TYPE_BF16 ? 0x1p-8 : 0; }

// "" or what differs. stored: NULL where the head does not hold the token.
std::string compare(const TestTensor& rows, int64_t head, int64_t at, const std::vector<float>* stored,
                    const std::vector<float>& slack, const char* name) {
    for (int64_t d = 0; d < rows.shape()[3]; ++d) {
        const double got = rows.get({0, head, at, d});
        if (!stored && std::isnan(got)) continue;
        if (stored) {
            const double want = (*stored)[static_cast<size_t>(d)];
            // A mean is subtracted and added, each in single precision.
            const double off = slack.empty() ? 0 : slack[static_cast<size_t>(d)] + std::fabs(want) * 0x1p-22;
            if (std::fabs(got - want) <= off + std::fabs(want) * rounding_of(rows.type()) + 0x1p-25) continue;
        }
        return std::string(name) + " of head " + std::to_string(head) + " element " + std::to_string(d) + " is " +
               std::to_string(got) + ", expected " +
               (stored ? std::to_string((*stored)[static_cast<size_t>(d)])
                       : std::string("NaN, for the head does not hold it"));
    }
    return "";
}

} // namespace

TokenRows CacheOracle::read_rows(const OracleLayer& layer, int64_t sequence) {
    std::vector<int64_t> token_ids;
    for (const OracleToken& token : layer.tokens) token_ids.push_back(token.token_id);
    TokenRows now = make_token_rows(setup_, layer.number, sequence, token_ids, WINNOW_TYPE_F32);
    if (run(host_, host_.caches().read, now) != WINNOW_OK) throw std::runtime_error("cache_read: " + host_.message());
    return now;
}

std::string CacheOracle::read(int64_t sequence, int64_t layer_number, uint32_t type) {
    const OracleLayer& layer = at(sequence, layer_number);
    const int64_t end = setup_.cells > 0 ? setup_.cells : std::min(layer.next + 3, setup_.context);
    std::vector<int64_t> token_ids;
    for (int64_t each = end; each-- > 0;) token_ids.push_back(each); // in any order
    if (token_ids.empty()) return "";
    TokenRows rows = make_token_rows(setup_, layer_number, sequence, token_ids, type, Layout(type % 3));
    if (run(host_, host_.caches().read, rows) != WINNOW_OK) return "cache_read: " + host_.message();
    if (!rows.k.damage().empty() || !rows.v.damage().empty()) return "beside what is read: " + rows.k.damage();
    for (size_t i = 0; i < token_ids.size(); ++i) {
        const auto token = std::find_if(layer.tokens.begin(), layer.tokens.end(),
                                        [&](const OracleToken& each) { return each.token_id == token_ids[i]; });
        for (int64_t head = 0; head < rows.k.shape()[1]; ++head) {
            const bool is_resident = token != layer.tokens.end() && token->heads[static_cast<size_t>(head)].is_resident;
            const StoredRow none;
            const StoredRow& row = is_resident ? token->heads[static_cast<size_t>(head)].row : none;
            std::string wrong =
                compare(rows.k, head, static_cast<int64_t>(i), is_resident ? &row.k : nullptr, row.k_slack, "the key");
            if (wrong.empty())
                wrong = compare(rows.v, head, static_cast<int64_t>(i), is_resident ? &row.v : nullptr, row.v_slack,
                                "the value");
            if (!wrong.empty()) return "cache_read of " + std::to_string(token_ids[i]) + ": " + wrong;
        }
    }
    return "";
}

std::string CacheOracle::write(int64_t sequence, int64_t layer_number, std::mt19937_64& engine) {
    OracleLayer& layer = at(sequence, layer_number);
    const int64_t end = setup_.cells > 0 ? setup_.cells : std::min(layer.next + 3, setup_.context);
    std::vector<int64_t> token_ids;
    for (int64_t each = 0; each < end; ++each)
        if (engine() % 3 == 0) token_ids.push_back(each);
    if (token_ids.empty()) return "";
    TokenRows rows = make_token_rows(setup_, layer_number, sequence, token_ids, setup_.type);
    fill_token_rows(rows, engine, true);
    if (run(host_, host_.caches().write, rows) != WINNOW_OK) return "cache_write: " + host_.message();
    if (!rows.k.change().empty() || !rows.v.change().empty()) return "cache_write changed its input";
    const std::vector<CacheSetup> of_heads = setup_.of_heads(layer_number);
    for (size_t i = 0; i < token_ids.size(); ++i)
        for (OracleToken& token : layer.tokens) {
            if (token.token_id != token_ids[i]) continue;
            for (size_t head = 0; head < token.heads.size(); ++head) {
                HeadToken& own = token.heads[head];
                const RowPair row{row_of(rows.k, static_cast<int64_t>(head), static_cast<int64_t>(i)),
                                  row_of(rows.v, static_cast<int64_t>(head), static_cast<int64_t>(i)),
                                  layer.has_means ? &layer.means.k[head] : nullptr,
                                  layer.has_means ? &layer.means.v[head] : nullptr};
                if (!own.is_resident || std::isnan(row.k[0])) continue;
                const CacheSetup& its = of_heads[head];
                own.row = own.segment > 0 ? as_packed(host_.session(), its.of_segment(own.segment), {row})[0]
                                          : as_dense(its, row);
            }
        }
    return read(sequence, layer_number, WINNOW_TYPE_F32);
}

// Which older tokens are evicted where a head has too few slots, and when, is not told: none is where there are slots
// for all, and never a protected token or one that has just come.
std::string CacheOracle::restore(TokenRows& rows) {
    OracleLayer& layer = at(rows.sequence, rows.layer);
    const int64_t count = rows.k.shape()[2];
    std::vector<int64_t> token_ids;
    for (int64_t t = 0; t < count; ++t)
        token_ids.push_back(rows.tokens ? static_cast<int64_t>(rows.tokens.get({0, 0, 0, t})) : layer.next + t);
    if (rows.tokens) reuse_cells(layer, token_ids);
    if (run(host_, host_.caches().import_rows, rows) != WINNOW_OK) return "cache_import_rows: " + host_.message();
    sequences_[static_cast<size_t>(rows.sequence)].is_used = true;
    const uint64_t counted = host_.stats().eviction_passes;
    const bool has_pass = counted > std::exchange(passes_, counted);
    const int64_t first_id = layer.next_id;
    append(layer, token_ids, rows.k, rows.v);
    bool has_room = true;
    for (size_t head = 0; head < static_cast<size_t>(rows.k.shape()[1]); ++head) {
        int64_t resident = 0;
        for (OracleToken& token : layer.tokens) {
            token.heads[head].dense.reset();
            resident += token.heads[head].is_resident && (!token.is_sink || token.id >= first_id);
        }
        has_room = has_room && resident <= packed_capacity(rows.layer);
    }
    const std::vector<Holding> now = holdings_of(rows.sequence, rows.layer);
    if (setup_.center && !layer.has_means && has_pass) { // no row was packed yet
        const auto others = std::count_if(layer.tokens.begin(), layer.tokens.end(),
                                          [&](const OracleToken& each) { return !each.is_sink && each.id < first_id; });
        const int64_t room = setup_.sink + setup_.residual - others; // for as many as there may have been at the pass
        for (int64_t end = first_id; end <= std::min(first_id + room, layer.next_id); ++end)
            layer.possible_means.push_back(means_of(layer, end));
    }
    std::string wrong = drop_displaced(rows, layer, now, has_room);
    if (wrong.empty() && has_pass) wrong = check_leaving(layer, now, setup_.residual, setup_.residual);
    if (!wrong.empty()) return "after cache_import_rows, " + wrong;
    settle_means(layer, rows.sequence, now);
    if (has_pass) {
        pack_leaving(layer, rows.sequence, now);
        begin_outputs(layer);
        layer.shortfall.clear(); // another demand than a budget's
    }
    if (!setup_.lower.empty()) wrong = find_restored(rows, layer, now);
    if (wrong.empty()) wrong = check_holdings(layer, now);
    if (!wrong.empty()) return "after cache_import_rows, " + wrong;
    layer.forget_time();
    forget_gone(layer);
    return read(rows.sequence, rows.layer, WINNOW_TYPE_F32);
}

// Drops the tokens that the cache has evicted, or says which it may not have.
std::string CacheOracle::drop_displaced(const TokenRows& rows, OracleLayer& layer, const std::vector<Holding>& now,
                                        bool has_room) {
    const Rules& rules = rules_[static_cast<size_t>(rows.layer)];
    const int64_t count = rows.k.shape()[2], last = (count - 1) % setup_.chunk() + 1; // which came together
    for (size_t head = 0; head < now.size(); ++head)
        for (OracleToken& token : layer.tokens) {
            HeadToken& own = token.heads[head];
            if (!own.is_resident || now[head].contains(token.token_id)) continue;
            const std::string which =
                "head " + std::to_string(head) + " has not got position " + std::to_string(token.position);
            if (has_room) return which + ", though there is room for all";
            if (token.position >= layer.next - last) return which + ", which has just come";
            if (token.position < rules.sink || token.position >= layer.next - rules.recent ||
                is_anchor(rows.sequence, token.token_id))
                return which + ", which is protected";
            own.is_resident = false;
            ++evictions_;
        }
    return "";
}

} // namespace winnow::conformance
