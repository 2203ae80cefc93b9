// What tokens cost, in exact integers: bytes of so many tokens, tokens of so many bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/plan/policy.hpp"

namespace winnow::cache {

// Both throw Error from 2^64 bytes on.
uint64_t checked_product(uint64_t a, uint64_t b);
uint64_t checked_sum(uint64_t a, uint64_t b);

// How one KV head of one layer stores its tokens.
struct Layout {
    Type k = Type::f16, v = Type::f16;
    int64_t head_size = 1, v_head_size = 1;
    int64_t dense_rows = 0;         // sinks and residual window
    bool importance = false;        // one f32 for each slot
    bool center = false;            // means of K and V in f32
    uint64_t state = 0;             // bytes of what else there is beside the rows
    std::vector<LowerTier> lower{}; // further packed segments
    // Formats of the dense rows, where they do not follow from k and v.
    std::optional<std::pair<Type, Type>> dense{};
    friend bool operator==(const Layout&, const Layout&) = default;
};

inline constexpr size_t most_tiers = 3; // packed segments

// How the tokens of a head that are not in dense rows are divided among its packed segments.
std::array<int64_t, most_tiers> divide(const std::vector<LowerTier>& lower, int64_t tokens, int64_t dense_rows);

Type dense_format(Type format); // of the dense rows beside it: f16, or what is not packed itself

// Bytes by part. Rows include all scales and norms.
struct Bytes {
    uint64_t k = 0, v = 0;             // packed segments
    uint64_t dense_k = 0, dense_v = 0; // sinks and residual window, all of their rows
    uint64_t slot_map = 0;             // an i32 for each slot: its position
    uint64_t importance = 0;
    uint64_t means = 0;
    uint64_t state = 0; // counts, sums, and what cells need
    Bytes& operator+=(const Bytes& bytes);
    uint64_t total() const { return k + v + dense_k + dense_v + slot_map + importance + means + state; }
    friend bool operator==(const Bytes&, const Bytes&) = default;
};
Bytes operator*(const Bytes& bytes, uint64_t n);

// The bytes of one KV head of one layer that holds up to `tokens` tokens.
Bytes bytes_of(const Layout& layout, int64_t tokens);
// So many KV heads that store alike.
struct HeadsOf {
    Layout layout;
    int64_t count = 1;
};
// The most tokens, at most `limit`, of which these KV heads, each with so many, have no more than `bytes` together; 0
// where not even one fits. Where there are several packed segments, one token more may take fewer bytes, as it changes
// how all are divided: then no fewer than these fit, and one more does not.
int64_t tokens_in(std::span<const HeadsOf> heads, uint64_t bytes, int64_t limit);

} // namespace winnow::cache
