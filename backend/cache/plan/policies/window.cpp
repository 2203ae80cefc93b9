// The sinks and the newest tokens: MLX's RotatingKVCache, StreamingLLM (Xiao et al., 2023).
#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {

constinit const PolicyKind window_policy = {"window", true, {}, make<Described<basic, false>>};

} // namespace winnow::cache
