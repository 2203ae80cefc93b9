// One string chooses a policy, its budget and the formats: policy[:key=value,...]. docs/policies.md lists the keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/plan/policy.hpp"
#include "device/pages.hpp"

namespace winnow::cache {

// What elastic zeroing does: elements below a threshold become zero.
struct Zeroing {
    double k = 0, v = 0;          // scales of the thresholds; 0: that side stays as it is
    int64_t sink = 0;             // first positions that stay as they are
    int64_t every = 1, after = 0; // tokens from one pass to the next, and before the first
    explicit operator bool() const { return k > 0 || v > 0; }
};

// Layers, or KV heads of them, whose first packed segment has formats of its own.
struct FormatsOfLayers {
    const char* key;                // fine or coarse
    std::vector<LayerHeads> layers; // ascending
    Type k = Type::f16, v = Type::f16;
};

class Config {
public:
    const PolicyKind& policy() const { return *policy_; }

    // The value of a key, given or default. The key has to be one of the policy's, of that kind, and to have a value.
    const Value& at(std::string_view key) const;
    bool has(std::string_view key) const; // whether there is a value: not where it was left to depend on others
    bool differs(std::string_view key) const { return given_.contains(key); } // from the policy's default
    Amount amount(std::string_view key) const { return std::get<Amount>(at(key)); }
    int64_t count(std::string_view key) const { return amount(key).count; }
    double number(std::string_view key) const { return std::get<double>(at(key)); }
    const std::string& word(std::string_view key) const { return std::get<std::string>(at(key)); }

    // The common keys.
    Type k() const { return format_of(word("k")); } // where a layer has none of its own
    Type v() const { return format_of(word("v")); }
    Norm k_norm() const;
    Norm v_norm() const;
    bool center() const;
    SignatureKind signature_kind() const; // of recall
    bool recalls() const { return has("recall") && word("recall") != "off"; }
    std::optional<std::string> recall_folder() const; // none: what is not hot lies in memory
    int64_t sink() const { return count("sink"); }
    std::optional<int64_t> residual() const; // none: as large as the budget allows
    std::optional<int64_t> cadence() const;  // none: as the residual window allows
    Amount budget() const;                   // tokens that stay; where nothing is evicted: the whole context
    std::vector<LowerTier> lower() const;    // packed segments below the first: none to two
    std::vector<FormatsOfLayers> formats_of_layers() const;
    float v_threshold() const { return static_cast<float>(number("sparse_v")); } // of attention
    Zeroing zeroing() const;                                                     // false: none
    bool has_cold_budget() const;                             // under recall: whether the cold tier has a budget
    Amount recall_budget() const { return amount("budget"); } // bytes, or a share of what K and V would be in F16

    friend bool operator==(const Config& a, const Config& b) { return a.policy_ == b.policy_ && a.given_ == b.given_; }

private:
    friend Config parse(std::string_view text);
    friend std::string to_string(const Config& config);
    friend Config with_policy(const Config& config, std::string_view policy);
    friend Config storage_of(const Config& config);
    friend std::string without_folder(Config config);
    explicit Config(const PolicyKind& policy);

    const PolicyKind* policy_;
    std::map<std::string, Value, std::less<>> defaults_;
    std::map<std::string, Value, std::less<>> given_; // only what differs from the default
};

// Throws Error (invalid argument) that quotes what is wrong and names what there is instead.
Config parse(std::string_view text);
// The canonical string, which parse takes back: what differs from the defaults, in the order of keys_of.
std::string to_string(const Config& config);
// The same as files and states have it: where rows that are not hot lie, and the files of networks and codebooks, are
// not theirs to say.
std::string without_folder(Config config);
// Another policy with its own defaults and this configuration's values of the common keys.
Config with_policy(const Config& config, std::string_view policy);

// How a configuration stores rows, under the policy that evicts nothing.
Config storage_of(const Config& config);

} // namespace winnow::cache
