// The sinks and the newest tokens: MLX's RotatingKVCache, StreamingLLM (Xiao et al., 2023).
#include "cache/policies/policies.hpp"

namespace winnow::cache {
namespace {

class Window : public Policy {
public:
    explicit Window(Config config) : config_(std::move(config)) {}
    Description describe(const LayerContext& context) const override { return basic(config_, context); }
    bool keeps_importance(const LayerContext&) const override { return false; }

private:
    Config config_;
};

} // namespace

constinit const PolicyKind window_policy = {"window", true, {}, make<Window>};

} // namespace winnow::cache
