// What a policy is: its keys, the budgets it gives to layers, and for each layer a description of which tokens to
// evict. A description is all that a select kernel needs; select.hpp is its definition in plain loops.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/plan/config_value.hpp"
#include "device/description.hpp"

namespace winnow::cache {

class Config;

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
    int64_t context = 1;  // tokens for which the host made the cache
    int64_t budget = 1;   // tokens that a head of this layer may hold
    int64_t residual = 0; // newest tokens in the dense residual window
    int64_t cadence = 1;  // tokens from one eviction pass to the next
    double pressure = 0;  // of memory, 0..1, as the host reports it
};

// A further packed segment: its formats, and its share of the budget's tokens, or, where a schedule says it, how many
// newer tokens a head holds before the newest of its own.
struct LowerTier {
    Type k = Type::f16, v = Type::f16;
    Share share;
    int64_t after = 0; // 0: by share
    int number = 2;    // of its keys: k2, or k3
    friend bool operator==(const LowerTier&, const LowerTier&) = default;
};

// What a policy keeps of a context by itself, whatever the budget allows.
struct Schedule {
    int64_t tokens = 0;           // that stay, of each KV head; no more than the context
    std::vector<LowerTier> lower; // each has tokens
};

class Policy {
public:
    virtual ~Policy() = default;
    virtual Description describe(const LayerContext& context) const = 0;
    // Whether that description has an importance; known also for budgets that describe refuses.
    virtual bool keeps_importance(const LayerContext& context) const = 0;
    // None: the budget says how many tokens stay, and keys how they are divided among packed segments.
    virtual std::optional<Schedule> schedule(int64_t) const { return std::nullopt; }
    // Whether budgets() wants a profile.
    virtual bool divides_by_profile() const { return false; }
    // Tokens of each layer, which add up to layers * tokens exactly; none is less than `least` or more than `most`,
    // least <= tokens <= most. The same for all unless the policy says otherwise. Throws Error where the policy needs a
    // profile of another length.
    virtual std::vector<int64_t> budgets(int64_t layers, int64_t tokens, int64_t least, int64_t most,
                                         std::span<const LayerProfile> profile) const;
};

// One row of the list of policies.
struct PolicyKind {
    const char* name;
    bool evicts;                                    // takes a budget
    std::span<const Key> keys;                      // its own; one with the name of a common key takes that one's place
    std::unique_ptr<Policy> (*make)(const Config&); // throws Error where values contradict each other
    bool has_network = false;                       // ranks by predictions of networks that the host hands over
    bool has_schedule = false;                      // Policy::schedule is not none: no keys say how tokens are divided
};

std::span<const PolicyKind* const> policies();
const PolicyKind* find_policy(std::string_view name); // null: there is none
std::vector<Key> keys_of(const PolicyKind& kind);     // the common ones, then its own

std::unique_ptr<Policy> make_policy(const Config& config);

} // namespace winnow::cache
