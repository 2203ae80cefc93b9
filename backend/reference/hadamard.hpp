// The rotation of the turbo formats on its own: the executable definition of winnow_hadamard_desc.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

std::string validate_hadamard(const Hadamard& args); // the variant's name, or throws Error(UNSUPPORTED)
void hadamard(const Hadamard& args);

} // namespace winnow::reference
