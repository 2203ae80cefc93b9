// Rows of tokens.
#include "cache_token_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace winnow::conformance {

std::vector<int64_t> token_ids_to(int64_t end) {
    std::vector<int64_t> token_ids(static_cast<size_t>(end));
    std::iota(token_ids.begin(), token_ids.end(), 0);
    return token_ids;
}

TokenRows make_token_rows(const CacheSetup& setup, int64_t layer, int64_t sequence,
                          const std::vector<int64_t>& token_ids, uint32_t type, Layout layout) {
    TokenRows rows;
    rows.layer = layer;
    rows.sequence = sequence;
    const int64_t count = static_cast<int64_t>(token_ids.size());
    rows.tokens = TestTensor(count % 2 ? WINNOW_TYPE_I32 : WINNOW_TYPE_I64, {1, 1, 1, count});
    rows.tokens.each(
        [&](const Index& at) { rows.tokens.set(at, static_cast<double>(token_ids[static_cast<size_t>(at[3])])); });
    const LayerShape shape = setup.shape(layer);
    rows.k = TestTensor(type, {1, shape.kv_heads, count, shape.head_size}, layout);
    rows.v = TestTensor(type, {1, shape.kv_heads, count, shape.v_head_size}, layout);
    for (TestTensor* each : {&rows.k, &rows.v}) each->each([&](const Index& at) { each->set(at, -77); });
    return rows;
}

void fill_token_rows(TokenRows& rows, std::mt19937_64& engine, bool has_holes) {
    std::normal_distribution<double> draw;
    for (TestTensor* each : {&rows.k, &rows.v}) each->each([&](const Index& at) { each->set(at, draw(engine)); });
    rows.k.each_row([&](const Index& at) {
        if (!has_holes || engine() % 4 != 0) return;
        for (TestTensor* each : {&rows.k, &rows.v}) each->set(at, std::numeric_limits<double>::quiet_NaN());
    });
}

int32_t run(CacheHost& host, TokenRowsFunction function, TokenRows& rows) {
    for (TestTensor* each : {&rows.tokens, &rows.k, &rows.v})
        if (*each) each->bind(host.session());
    winnow_cache_rows_desc desc{};
    desc.struct_size = sizeof desc;
    desc.layer = rows.layer;
    desc.sequence = rows.sequence;
    desc.tokens = rows.tokens.view();
    desc.k = rows.k.view();
    desc.v = rows.v.view();
    const int32_t status = function(host.get(), &desc);
    for (TestTensor* each : {&rows.k, &rows.v})
        if (*each) each->fetch();
    return status;
}

double distance_of(const TokenRows& rows, size_t head, size_t at, const StoredRow& stored) {
    double sum = 0;
    for (const auto& [tensor, row] : {std::pair{&rows.k, &stored.k}, std::pair{&rows.v, &stored.v}}) {
        double most = 0;
        for (size_t d = 0; d < row->size(); ++d)
            most = std::max(most, std::fabs(tensor->get({0, static_cast<int64_t>(head), static_cast<int64_t>(at),
                                                         static_cast<int64_t>(d)}) -
                                            static_cast<double>((*row)[d])));
        sum += most;
    }
    return sum;
}

} // namespace winnow::conformance
