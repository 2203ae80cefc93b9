// ggml's types that Winnow does not store: q1_0, q2_0, the K-quants and others. llama.cpp offers none of them for a
// cache, ggml's operations take them all the same. Their rows are converted on the host by ggml's own functions: stored
// by its quantizer, and read as f32 before the attention, which is Winnow's.
#pragma once

#include <vector>

#include "ggml.h"

namespace winnow::ggml {

// Whether rows of this type are converted here: those that ggml quantizes without further tables.
bool is_host_converted(enum ggml_type type);

// SET_ROWS into a tensor of such a type.
bool can_set_host_converted(const ggml_tensor* node);
void set_host_converted(const ggml_tensor* node);

// All elements as f32, [ne3][ne2][ne1][ne0] without gaps.
std::vector<float> convert_to_f32(const ggml_tensor* tensor);

} // namespace winnow::ggml
