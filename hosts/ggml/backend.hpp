// A ggml backend instance ("stream"): carries out its parts of a graph.
#pragma once

#include "device.hpp"
#include "ggml-backend-impl.h"

namespace winnow::ggml {

// NULL, with a line in the log, if no Winnow context can be made.
ggml_backend_t make_backend(Registration& registration);

// Found by the host through ggml_backend_reg_get_proc_address, under ggml's names for them.
void set_n_threads(ggml_backend_t backend, int threads);
void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data);

} // namespace winnow::ggml
