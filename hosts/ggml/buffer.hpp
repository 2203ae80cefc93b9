// The buffer type of this backend: host memory that the CPU backend and Winnow both use where it lies.
#pragma once

#include "ggml-backend-impl.h"

namespace winnow::ggml {

// One buffer type for the one device. `device` is what ggml_backend_buft_get_device answers.
ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t device);

} // namespace winnow::ggml
