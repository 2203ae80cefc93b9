// No eviction: the cache grows up to the context, and saves bytes by its formats alone.
#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {

constinit const PolicyKind none_policy = {"none", false, {}, make<Described<basic, false>>};

} // namespace winnow::cache
