// Attention of a prompt's chunk against the reference: 9 query tokens and more.
#include "registered_cases.hpp"
#include "sdpa_registration.hpp"

namespace winnow::conformance {

void register_sdpa_prefill_cases() { register_sdpa_cases("sdpa_prefill", __FILE__, __LINE__, 9, INT64_MAX); }

} // namespace winnow::conformance
