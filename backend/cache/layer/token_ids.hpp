// Token ids that a host hands over.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace winnow::cache {

// Each of [0, limit), none twice, or Error with the tensor's name. Empty where the tensor is absent.
std::vector<int32_t> read_token_ids(const Tensor& tensor, const char* name, int64_t limit);

} // namespace winnow::cache
