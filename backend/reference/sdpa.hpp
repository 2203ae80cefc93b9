// Scaled dot product attention in plain double-precision loops: the executable definition of winnow_sdpa_desc.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

std::string validate_sdpa(const Sdpa& args); // the variant's name, or throws Error(UNSUPPORTED)
void sdpa(const Sdpa& args);

} // namespace winnow::reference
