// Storing dense rows into a cache, one element at a time: the executable definition of winnow_kv_append_desc.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

std::string validate_kv_append(const KvAppend& args); // the variant's name, or throws Error(UNSUPPORTED)
void kv_append(const KvAppend& args);

} // namespace winnow::reference
