// No eviction: the cache grows up to the context, and saves bytes by its formats alone.
#include "cache/policies/policies.hpp"

namespace winnow::cache {
namespace {

class None : public Policy {
public:
    explicit None(Config config) : config_(std::move(config)) {}
    Description describe(const LayerContext& context) const override { return basic(config_, context); }
    bool keeps_importance(const LayerContext&) const override { return false; }

private:
    Config config_;
};

} // namespace

constinit const PolicyKind none_policy = {"none", false, {}, make<None>};

} // namespace winnow::cache
