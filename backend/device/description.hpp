// Which tokens a KV head evicts, in numbers: what is accumulated of a stored token, how tokens are ranked, who is
// protected, and how much an eviction pass takes. All that a select kernel needs; select.hpp is its definition in plain
// loops.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace winnow {

// An exact part of a whole, so that a kernel and a plain loop come to the same integer: part/whole in lowest terms.
struct Share {
    int64_t part = 0;
    int64_t whole = 1;
    friend bool operator==(const Share&, const Share&) = default;
};

int64_t floor_of(const Share& share, int64_t whole); // part and share.whole at most 2^31
int64_t ceil_of(const Share& share, int64_t whole);

// What one query token adds to the importance of a stored token j: the mean of this over the query group (the query
// heads that share a KV head), s the scaled score after the mask and p its probability. A masked entry adds nothing.
enum class Statistic : uint32_t {
    none,
    score_magnitude,     // s, and of the group's mean the absolute value
    probability,         // p
    probability_squared, // p^2
    above_mean,          // 1 where p is at least 1 / (tokens that the query sees), else 0
};

enum class Accumulation : uint32_t {
    ema,         // I <- decay^n I + (1 - decay^n) x, for each query token that sees the stored one
    decayed_sum, // I <- decay^n I + n x
};

struct Importance {
    Statistic statistic = Statistic::none;
    Accumulation accumulation = Accumulation::ema;
    double decay = 0;
    int64_t stands_for = 1; // n: for so many queries each one that is counted stands
    friend bool operator==(const Importance&, const Importance&) = default;
};

// What is compared; the smallest is evicted first. v is the token's value, o the mean attention output of the newest
// chunk over its queries and the query group.
enum class Ranking : uint32_t {
    age,                       // its position
    importance,                // I
    importance_value_distance, // I |v - o|
    random,                    // random_rank of its position
    prediction,                // what a network predicts (network.hpp)
};

// For one KV head of one layer. All counts are tokens, all positions those of the sequence; `seen` are the tokens of
// the sequence so far.
struct Description {
    Importance importance;
    Ranking ranking = Ranking::age;
    uint64_t seed = 0; // of Ranking::random

    // Protected, never evicted: positions below sink, positions from seen - recent, anchors named by the host, and
    // tokens that fewer than `grace` queries saw.
    int64_t sink = 0;
    int64_t recent = 0;
    int64_t grace = 0;

    int64_t context = std::numeric_limits<int64_t>::max(); // no sequence grows longer
    int64_t budget = 0;                                    // tokens that the head may hold
    int64_t cadence = 1;                                   // tokens from one eviction pass to the next
    Share trigger = {1, 1}; // of the budget: an eviction pass evicts nothing while the cadence's tokens fit below it
    int64_t target = 0;     // tokens that an eviction pass leaves, if protection and the limits below allow

    // Limits on what is evicted beyond what the budget requires; what it requires is chosen by the ranking alone.
    int64_t most = 0;                // tokens in one eviction pass; 0: any number
    Share most_share = {1, 1};       // of the tokens that the head holds, in one eviction pass
    Share eligible_from = {0, 1};    // positions from this share of `seen` on, rounded up ...
    Share eligible_until = {1, 1};   // ... and below this one, rounded up
    int64_t eligible_first = 0;      // not the first so many positions
    std::optional<double> threshold; // importance below threshold times its quantile over the head; none: any
    double quantile = .99;

    // Where there are several packed segments: whether the oldest tokens go down from the first, and not the smallest
    // by the ranking.
    bool moves_by_age = false;

    friend bool operator==(const Description&, const Description&) = default;
};

// 24 bits, which a float holds exactly, from the seed, the KV head and the position.
int64_t random_rank(uint64_t seed, int64_t head, int64_t position);

} // namespace winnow
