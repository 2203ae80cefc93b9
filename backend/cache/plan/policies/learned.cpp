// A small network for each KV head predicts how much attention a token is going to get; the smallest prediction goes
// first. It is trained beforehand (winnow calibrate), on what the cache keeps of a token: a decayed sum of its
// probabilities, and its age. After the future work named by AtomGradient's article on H2O.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"network_file", Kind::text, "", "file of the networks, which the host reads"},
    Key{"recent", Kind::amount, "1/4", "newest tokens that stay: tokens, or a share of the budget"},
    grace_key,
};

// The decay is that of the importances on which networks are trained: hosts/ggml/attention_samples.hpp.
Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    description.importance = {Statistic::probability, Accumulation::decayed_sum, .99};
    description.ranking = Ranking::prediction;
    description.grace = config.count("grace");
    protect_recent(description, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

constinit const PolicyKind learned_policy = {
    .name = "learned", .evicts = true, .keys = keys, .make = make<Described<describe, true>>, .has_network = true};

} // namespace winnow::cache
