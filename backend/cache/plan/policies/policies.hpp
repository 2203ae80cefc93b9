// The policies there are, one per file, and what they share.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "cache/plan/config.hpp"
#include "cache/plan/policy.hpp"

namespace winnow::cache {

extern const PolicyKind none_policy;
extern const PolicyKind window_policy;
extern const PolicyKind random_policy;
extern const PolicyKind scissorhands_policy;
extern const PolicyKind h2o_policy;
extern const PolicyKind tova_policy;
extern const PolicyKind hierarchical_policy;
extern const PolicyKind adaptive_budget_policy;
extern const PolicyKind mixed_policy;
extern const PolicyKind decay_policy;
extern const PolicyKind external_policy;
extern const PolicyKind moe_policy;
extern const PolicyKind learned_policy;
extern const PolicyKind winnow_policy;

// Keys that several policies have, with one meaning.
inline constexpr Key grace_key = {"grace", Kind::count, "8", "queries after which a new token may be evicted",
                                  "",      0,           1024};
inline constexpr Key every_key = {
    "every", Kind::count, "1", "when decoding, only each n-th token updates the importance, and counts n times",
    "",      1,           64};
// In the place of common keys: everything in 4 and 3 bits, unless somebody says otherwise.
inline constexpr Key whole_budget_key = {
    "budget", Kind::budget, "1/1",
    "limit for each KV head: share of the context, or tokens; or bytes of a whole sequence"};
inline constexpr Key turbo4_k_key = {"k", Kind::format, "turbo4", "storage format of keys"};
inline constexpr Key turbo3_v_key = {"v", Kind::format, "turbo3", "storage format of values"};
inline constexpr Key unit_slope_k_norm_key = {"k_norm", Kind::word, "unit_slope",
                                              "norm that turbo formats store for keys", "plain|corrected|unit_slope"};
inline constexpr Key inactive_key = {"inactive", Kind::share, "1/4",
                                     "an expert chosen less than this share of the average is inactive"};
inline constexpr Key evict_inactive_key = {
    "evict_inactive", Kind::word, "off", "evict tokens whose experts are all inactive, even if the budget is not full",
    "off|on"};
inline constexpr const char* statistic_choices = "score_magnitude|probability|probability_squared";

// What a PolicyKind makes its policy with.
template <class T>
std::unique_ptr<Policy> make(const Config& config) {
    return std::make_unique<T>(config);
}

// A policy that is a description and nothing else.
template <Description (*describe_by)(const Config&, const LayerContext&), bool has_importance>
class Described : public Policy {
public:
    explicit Described(Config config) : config_(std::move(config)) {}
    Description describe(const LayerContext& context) const override { return describe_by(config_, context); }
    bool keeps_importance(const LayerContext&) const override { return has_importance; }

private:
    Config config_;
};

Statistic statistic_of(std::string_view word);

// What all descriptions begin with: the sinks, the budget, and as recent what the residual window holds dense at any
// time.
Description basic(const Config& config, const LayerContext& context);

// Protects the newest `tokens`, counted when the cache is fullest: an eviction pass protects fewer by those that come
// before the next one.
void protect_recent(Description& description, int64_t tokens);

// Ranks by what the host tells of the experts that a router chose for a token, as `evict_inactive` says.
void rank_by_experts(Description& description, const Config& config);

} // namespace winnow::cache
