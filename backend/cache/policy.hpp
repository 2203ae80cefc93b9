// What a policy is: its keys, the budgets it gives to layers, and for each layer a description of whom to give up.
// A description is all that a select kernel needs; select.hpp is its definition in plain loops.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/value.hpp"

namespace winnow::cache {

class Config;

// What is observed of a stored token j by one query token, for each head of the query group (the query heads that share
// a KV head), s the scaled score after the mask and p its probability. A masked entry is not observed.
enum class Statistic : uint32_t {
    none,
    score_magnitude,     // |s|; under Group::mean the absolute value of the group's mean score
    probability,         // p
    probability_squared, // p^2
    above_mean,          // 1 where p is at least 1 / (tokens that the query sees), else 0
};

enum class Group : uint32_t { mean, maximum }; // how the heads of a query group become one x

enum class Accumulation : uint32_t {
    ema,         // I <- decay I + (1 - decay) x, for each query token that sees the stored one
    decayed_sum, // I <- decay I + x
};

struct Importance {
    Statistic statistic = Statistic::none;
    Accumulation accumulation = Accumulation::ema;
    Group group = Group::mean;
    double decay = 0;
    friend bool operator==(const Importance&, const Importance&) = default;
};

// What is compared; the smallest goes first. v is the token's value, o the mean attention output of the newest chunk
// over its queries and the query group.
enum class Ranking : uint32_t {
    age,                       // its position
    importance,                // I
    importance_per_query,      // I / queries that saw it
    importance_value_distance, // I |v - o|
    importance_value_norm,     // I |v|
    random,                    // random_rank of its position
};

// For one KV head of one layer. All counts are tokens, all positions those of the sequence; `seen` are the tokens of
// the sequence so far.
struct Description {
    Importance importance;
    Ranking ranking = Ranking::age;
    uint64_t seed = 0; // of Ranking::random

    // Protected, never given up: positions below sink, positions from seen - recent, anchors named by the host, and
    // tokens that fewer than `grace` queries saw.
    int64_t sink = 0;
    int64_t recent = 0;
    int64_t grace = 0;

    int64_t context = std::numeric_limits<int64_t>::max(); // no sequence grows longer
    int64_t budget = 0;                                    // tokens that the head may hold
    int64_t cadence = 1;                                   // tokens from one judgement to the next
    Share trigger = {1, 1}; // of the budget: a judgement gives up nothing while the cadence's tokens fit below it
    int64_t target = 0;     // tokens that a judgement leaves, if protection and the limits below allow

    // Limits on what is given up beyond what the budget demands; what it demands goes by the ranking alone.
    int64_t most = 0;                // tokens in one judgement; 0: any number
    Share most_share = {1, 1};       // of the tokens that the head holds, in one judgement
    Share eligible_from = {0, 1};    // positions from this share of `seen` on, rounded up ...
    Share eligible_until = {1, 1};   // ... and below this one, rounded up
    int64_t eligible_first = 0;      // not the first so many positions
    std::optional<double> threshold; // importance below threshold times its quantile over the head; none: any
    double quantile = .99;

    friend bool operator==(const Description&, const Description&) = default;
};

// 24 bits, which a float holds exactly, from the seed, the KV head and the position.
int64_t random_rank(uint64_t seed, int64_t head, int64_t position);

// What was measured of a layer's attention: the entropy of its probabilities, their concentration (the share of the
// largest ones) and the variance over time of what a token receives. Only differences between layers matter.
struct LayerProfile {
    double entropy = 0;
    double concentration = 0;
    double variance = 0;
};

struct LayerContext {
    int64_t layer = 0;
    int64_t layers = 1;
    int64_t context = 1; // tokens for which the host made the cache
    int64_t budget = 1;  // tokens that a head of this layer may hold
    int64_t ring = 0;    // newest tokens in the dense ring
    int64_t cadence = 1; // tokens from one judgement to the next
    double pressure = 0; // of memory, 0..1, as the host reports it
};

class Policy {
public:
    virtual ~Policy() = default;
    virtual Description describe(const LayerContext& context) const = 0;
    // Whether that description has an importance; known also for budgets that describe refuses.
    virtual bool keeps_importance(const LayerContext& context) const = 0;
    // Tokens of each layer, which add up to layers * tokens exactly; none is less than `least` or more than `most`,
    // least <= tokens <= most. The same for all unless the policy says otherwise. Throws Error where the policy needs a
    // profile of another length.
    virtual std::vector<int64_t> budgets(int64_t layers, int64_t tokens, int64_t least, int64_t most,
                                         std::span<const LayerProfile> profile) const;
};

// One row of the list of policies.
struct PolicyKind {
    const char* name;
    const char* summary;
    const char* source;
    bool evicts;                                    // takes a budget
    std::span<const Key> keys;                      // its own; one with the name of a common key takes that one's place
    std::unique_ptr<Policy> (*make)(const Config&); // throws Error where values contradict each other
};

std::span<const PolicyKind* const> policies();
const PolicyKind* find_policy(std::string_view name); // null: there is none
std::vector<Key> keys_of(const PolicyKind& kind);     // the common ones, then its own

std::unique_ptr<Policy> make_policy(const Config& config);

} // namespace winnow::cache
