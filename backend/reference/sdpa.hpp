// Scaled dot product attention in plain double-precision loops: the executable definition of winnow_sdpa_desc, and of
// attention over the segments of a cache.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"

namespace winnow::reference {

// Of a row of Carry: maximum, sum, and the sum of weights times values, in double.
constexpr int64_t carried_floats_of(int64_t v_head_size) { return 2 * (v_head_size + 2); }

std::string validate_sdpa(const Sdpa& args); // the variant's name, or throws Error(UNSUPPORTED)
void sdpa(const Sdpa& args);

} // namespace winnow::reference
