// Rows through a packed format and back.
#include "cache_rows.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "elements.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {
namespace {

using Rows = std::vector<std::vector<float>>;

float rounded(uint32_t type, float value) {
    if (type == WINNOW_TYPE_F16) return static_cast<float>(from_half(f16_format, to_half(f16_format, value)));
    if (type == WINNOW_TYPE_BF16) return static_cast<float>(from_half(bf16_format, to_half(bf16_format, value)));
    return value;
}

// Up or down, drawn for each element and trial.
float sign_of(size_t element, uint32_t trial) {
    const uint32_t drawn = (static_cast<uint32_t>(element) + 1) * 0x9e3779b1u * (2 * trial + 1);
    return (drawn ^ drawn >> 15) & 0x10000u ? 1.0f : -1.0f;
}

// Single precision less the mean, which is a sum over rows: it may be off by some units in the last place of what was
// added up. Trial 0: by nothing.
Rows less_means(const std::vector<RowPair>& rows, bool is_key, uint32_t trial) {
    Rows all;
    for (const RowPair& row : rows) {
        all.push_back(is_key ? row.k : row.v);
        const std::vector<float>* const mean = is_key ? row.k_mean : row.v_mean;
        if (mean)
            for (size_t d = 0; d < mean->size(); ++d) {
                float& element = all.back()[d];
                const float off = trial == 0 ? 0 : sign_of(d, trial) * 0x1p-20f;
                element -= (*mean)[d] + off * (std::fabs((*mean)[d]) + std::fabs(element));
            }
    }
    return all;
}

struct Side {
    TestTensor src, cache, back;
};

Side side_of(uint32_t type, const Rows& rows) {
    const int64_t count = static_cast<int64_t>(rows.size()), size = static_cast<int64_t>(rows[0].size());
    Side side{TestTensor(WINNOW_TYPE_F32, {1, 1, count, size}), TestTensor(type, {1, 1, count, size}),
              TestTensor(WINNOW_TYPE_F32, {1, 1, count, size})};
    side.src.each(
        [&](const Index& at) { side.src.set(at, rows[static_cast<size_t>(at[2])][static_cast<size_t>(at[3])]); });
    return side;
}

void expect_ok(Session& session, int32_t status, const char* what) {
    if (status != WINNOW_OK) throw std::runtime_error(std::string(what) + ": " + session.message());
}

Rows back_of(Session& session, Side& side) {
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = side.cache.view();
    desc.dst = side.back.view();
    expect_ok(session, session.run(desc), "kv_dequantize");
    expect_ok(session, session.api().finish(session.context()), "finish");
    side.back.fetch();
    Rows rows(static_cast<size_t>(side.back.shape()[2]));
    side.back.each(
        [&](const Index& at) { rows[static_cast<size_t>(at[2])].push_back(static_cast<float>(side.back.get(at))); });
    return rows;
}

// Keys and values there and back, in one append.
std::pair<Rows, Rows> round_trip(Session& session, const CacheSetup& setup, const Rows& k, const Rows& v) {
    Side key = side_of(setup.k_type, k), value = side_of(setup.v_type, v);
    TestTensor indices(WINNOW_TYPE_I32, {1, 1, 1, static_cast<int64_t>(k.size())});
    indices.each([&](const Index& at) { indices.set(at, static_cast<double>(at[3])); });
    for (TestTensor* each : {&key.src, &key.cache, &key.back, &value.src, &value.cache, &value.back, &indices})
        each->bind(session);
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = key.src.view();
    desc.v_src = value.src.view();
    desc.k_cache = key.cache.view();
    desc.v_cache = value.cache.view();
    desc.k_row_indices = indices.view();
    desc.k_norm = setup.k_norm;
    desc.v_norm = setup.v_norm;
    expect_ok(session, session.run(desc), "kv_append");
    return {back_of(session, key), back_of(session, value)};
}

double length(const std::vector<float>& row) {
    double sum = 0;
    for (const float each : row) sum += static_cast<double>(each) * static_cast<double>(each);
    return std::sqrt(sum);
}

// What the permitted errors of attention depend on; `extra`: the mean that is added, which is computed with apart.
void measure(const CacheSetup& setup, StoredRow& row, const RowPair& source, bool is_packed_segment) {
    row.k_size = length(row.k);
    if (source.k_mean && is_packed_segment) row.k_size += 2 * length(*source.k_mean);
    row.v_size.resize(row.v.size());
    const double least =
        is_packed_segment && is_turbo(setup.v_type) ? length(row.v) / std::sqrt(static_cast<double>(row.v.size())) : 0;
    for (size_t d = 0; d < row.v.size(); ++d) {
        row.v_size[d] = std::max(std::fabs(row.v[d]), static_cast<float>(least));
        if (source.v_mean && is_packed_segment)
            row.v_size[d] += 2 * std::fabs((*source.v_mean)[d]) + static_cast<float>(least);
    }
    if (!is_packed_segment || !has_bias(setup.v_type)) return;
    const size_t group = static_cast<size_t>(find_format(setup.v_type)->multiple);
    row.v_group.resize(row.v.size());
    for (size_t d = 0; d < row.v.size(); ++d) {
        const auto first = row.v_size.begin() + static_cast<std::ptrdiff_t>(d / group * group);
        row.v_group[d] = *std::max_element(first, first + static_cast<std::ptrdiff_t>(group));
    }
}

void add_mean(std::vector<float>& row, const std::vector<float>* mean) {
    if (mean)
        for (size_t d = 0; d < row.size(); ++d) row[d] += (*mean)[d];
}

void widen(std::vector<float>& slack, const std::vector<float>& row, const std::vector<float>& other,
           const std::vector<float>* mean) {
    if (!mean) return;
    slack.resize(row.size(), 0);
    for (size_t d = 0; d < row.size(); ++d)
        slack[d] = std::max(slack[d], std::fabs(row[d] - other[d]) + 0x1p-21f * std::fabs((*mean)[d]));
}

bool may_be_zero(float x, const std::vector<float>& slack, size_t d) {
    return x != 0 && d < slack.size() && slack[d] >= std::fabs(x);
}

// What lies in a packed segment becomes a row.
void put_means(const CacheSetup& setup, StoredRow& stored, const RowPair& source) {
    if (source.k_mean) stored.k_less_mean = stored.k;
    if (source.v_mean) stored.v_less_mean = stored.v;
    add_mean(stored.k, source.k_mean);
    add_mean(stored.v, source.v_mean);
    measure(setup, stored, source, true);
}

} // namespace

StoredRow as_dense(const CacheSetup& setup, const RowPair& row) {
    StoredRow stored;
    for (const float each : row.k) stored.k.push_back(rounded(setup.k_type_of(0), each));
    for (const float each : row.v) stored.v.push_back(rounded(setup.v_type_of(0), each));
    measure(setup, stored, row, false);
    return stored;
}

bool may_have_zeros(const StoredRow& row) {
    for (const auto& [values, slack] : {std::pair{&row.k, &row.k_slack}, std::pair{&row.v, &row.v_slack}})
        for (size_t d = 0; d < slack->size(); ++d)
            if (may_be_zero((*values)[d], *slack, d)) return true;
    return false;
}

RowPair with_zeros(RowPair pair, const StoredRow& row) {
    for (size_t d = 0; d < row.k.size(); ++d)
        if (may_be_zero(row.k[d], row.k_slack, d)) pair.k[d] = 0;
    for (size_t d = 0; d < row.v.size(); ++d)
        if (may_be_zero(row.v[d], row.v_slack, d)) pair.v[d] = 0;
    return pair;
}

void allow_zeros(StoredRow& stored, const StoredRow& with_zeros) {
    stored.k_slack.resize(stored.k.size(), 0);
    stored.v_slack.resize(stored.v.size(), 0);
    for (size_t d = 0; d < stored.k.size(); ++d) stored.k_slack[d] += std::fabs(stored.k[d] - with_zeros.k[d]);
    for (size_t d = 0; d < stored.v.size(); ++d) stored.v_slack[d] += std::fabs(stored.v[d] - with_zeros.v[d]);
}

std::vector<StoredRow> as_packed(Session& session, const CacheSetup& setup, const std::vector<RowPair>& rows) {
    std::vector<StoredRow> stored(rows.size());
    if (rows.empty()) return stored;
    const auto [k, v] = round_trip(session, setup, less_means(rows, true, 0), less_means(rows, false, 0));
    for (size_t at = 0; at < rows.size(); ++at) {
        stored[at].k = k[at];
        stored[at].v = v[at];
    }
    // A mean is a sum in an order of the backend's own. What quantizing makes of that is tried, not derived.
    for (uint32_t trial = 1; trial <= 6; ++trial) {
        if (!rows[0].k_mean) break;
        const auto [k_off, v_off] =
            round_trip(session, setup, less_means(rows, true, trial), less_means(rows, false, trial));
        for (size_t at = 0; at < rows.size(); ++at) {
            widen(stored[at].k_slack, k[at], k_off[at], rows[at].k_mean);
            widen(stored[at].v_slack, v[at], v_off[at], rows[at].v_mean);
        }
    }
    for (size_t at = 0; at < rows.size(); ++at) put_means(setup, stored[at], rows[at]);
    return stored;
}

StoredRow as_requantized(Session& session, const CacheSetup& setup, const StoredRow& row, const RowPair& means) {
    const auto [k, v] = round_trip(session, setup, {row.k_less_mean}, {row.v_less_mean});
    StoredRow stored;
    stored.k = k[0];
    stored.v = v[0];
    put_means(setup, stored, means);
    return stored;
}

} // namespace winnow::conformance
