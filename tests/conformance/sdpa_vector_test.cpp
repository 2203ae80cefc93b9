// Attention of a decode step against the reference: 1 to 8 query tokens.
#include "registered_cases.hpp"
#include "sdpa_registration.hpp"

namespace winnow::conformance {

void register_sdpa_vector_cases() { register_sdpa_cases("sdpa_vector", __FILE__, __LINE__, 1, 8); }

} // namespace winnow::conformance
