// Costs of rows and of what lies beside them.
#include "cache/plan/bytes.hpp"

#include <algorithm>

#include "device/device.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t slot_bytes = 4, importance_bytes = 4, mean_bytes = 4;

} // namespace

uint64_t checked_product(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) refuse("the cache would have more than 2^64 bytes");
    return result;
}

uint64_t checked_sum(uint64_t a, uint64_t b) {
    uint64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) refuse("the cache would have more than 2^64 bytes");
    return result;
}

Bytes operator*(const Bytes& bytes, uint64_t n) {
    checked_product(bytes.total(), n);
    return {bytes.k * n,        bytes.v * n,          bytes.dense_k * n, bytes.dense_v * n,
            bytes.slot_map * n, bytes.importance * n, bytes.means * n,   bytes.state * n};
}

Bytes& Bytes::operator+=(const Bytes& bytes) {
    checked_sum(total(), bytes.total());
    k += bytes.k;
    v += bytes.v;
    dense_k += bytes.dense_k;
    dense_v += bytes.dense_v;
    slot_map += bytes.slot_map;
    importance += bytes.importance;
    means += bytes.means;
    state += bytes.state;
    return *this;
}

Type dense_format(Type format) { return is_packed(format) ? Type::f16 : format; }

std::array<int64_t, most_tiers> divide(const std::vector<LowerTier>& lower, int64_t tokens, int64_t dense_rows) {
    std::array<int64_t, most_tiers> parts{std::max<int64_t>(tokens - dense_rows, 0), 0, 0};
    int64_t oldest = 0; // those below
    for (size_t i = lower.size(); i > 0; --i) {
        const LowerTier& tier = lower[i - 1];
        const int64_t its =
            tier.after > 0 ? std::max<int64_t>(tokens - oldest - tier.after, 0) : floor_of(tier.share, tokens);
        parts[i] = std::min(its, parts[0]);
        parts[0] -= parts[i];
        oldest += parts[i];
    }
    return parts;
}

Bytes bytes_of(const Layout& layout, int64_t tokens) {
    const auto all = static_cast<uint64_t>(tokens);
    const auto dense = static_cast<uint64_t>(std::min(tokens, layout.dense_rows));
    const auto parts = divide(layout.lower, tokens, layout.dense_rows);
    Bytes bytes;
    bytes.k = static_cast<uint64_t>(parts[0]) * row_bytes(layout.k, layout.head_size);
    bytes.v = static_cast<uint64_t>(parts[0]) * row_bytes(layout.v, layout.v_head_size);
    for (size_t i = 0; i < layout.lower.size(); ++i) {
        bytes.k += static_cast<uint64_t>(parts[i + 1]) * row_bytes(layout.lower[i].k, layout.head_size);
        bytes.v += static_cast<uint64_t>(parts[i + 1]) * row_bytes(layout.lower[i].v, layout.v_head_size);
    }
    const auto [dense_k, dense_v] = layout.dense.value_or(std::pair(dense_format(layout.k), dense_format(layout.v)));
    bytes.dense_k = dense * row_bytes(dense_k, layout.head_size);
    bytes.dense_v = dense * row_bytes(dense_v, layout.v_head_size);
    bytes.slot_map = all * slot_bytes;
    bytes.importance = layout.importance ? all * importance_bytes : 0;
    bytes.means = layout.center ? static_cast<uint64_t>(layout.head_size + layout.v_head_size) * mean_bytes : 0;
    bytes.state = layout.state;
    return bytes;
}

int64_t tokens_in(std::span<const HeadsOf> heads, uint64_t bytes, int64_t limit) {
    const auto fit = [&](int64_t tokens) {
        uint64_t sum = 0;
        for (const HeadsOf& each : heads) {
            uint64_t its = 0;
            if (__builtin_mul_overflow(bytes_of(each.layout, tokens).total(), static_cast<uint64_t>(each.count),
                                       &its) ||
                __builtin_add_overflow(sum, its, &sum))
                return false;
        }
        return sum <= bytes;
    };
    int64_t fits = 0, too_many = limit + 1; // bytes_of grows with the tokens
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        (fit(middle) ? fits : too_many) = middle;
    }
    return fits;
}

} // namespace winnow::cache
