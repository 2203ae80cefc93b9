// Rewriting rows in another format: the executable definition of winnow_kv_requantize_desc.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

std::string validate_kv_requantize(const KvRequantize& args); // the variant's name, or throws Error(UNSUPPORTED)
void kv_requantize(const KvRequantize& args);

} // namespace winnow::reference
