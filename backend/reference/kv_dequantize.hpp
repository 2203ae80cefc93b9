// Giving dense rows back: the executable definition of winnow_kv_dequantize_desc.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

std::string validate_kv_dequantize(const KvDequantize& args); // the variant's name, or throws Error(UNSUPPORTED)
void kv_dequantize(const KvDequantize& args);

} // namespace winnow::reference
