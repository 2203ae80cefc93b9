// A bound tensor as kernels see it.
#pragma once

#include <algorithm>

#include "opencl/runtime.hpp"
#include "tensor_view.h"

namespace winnow::opencl {

inline tensor_view view(const Tensor& tensor, const Bound& bound) {
    tensor_view result{};
    result.offset = bound.offset;
    std::copy_n(tensor.stride.begin(), 3, result.stride);
    return result;
}

} // namespace winnow::opencl
