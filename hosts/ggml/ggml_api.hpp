// The few functions of ggml's that this backend calls, looked up in the running host.
//
// Nothing of ggml is linked: a host may have opened libggml-base with RTLD_LOCAL (Python does), under any file name, or
// carry it inside the program, and a second copy loaded by name would have its own registry and its own log.
#pragma once

#include <string>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace winnow::ggml {

struct GgmlApi {
    decltype(&ggml_version) version = nullptr;
    decltype(&ggml_backend_buffer_init) buffer_init = nullptr;
    decltype(&ggml_backend_buft_is_host) buft_is_host = nullptr;
    decltype(&ggml_nbytes) nbytes = nullptr;
    decltype(&ggml_get_type_traits) get_type_traits = nullptr;
    decltype(&ggml_op_name) op_name = nullptr;
    decltype(&ggml_graph_n_nodes) graph_n_nodes = nullptr;
    decltype(&ggml_graph_node) graph_node = nullptr;
    // For work that only the host's CPU backend knows how to do.
    decltype(&ggml_init) init = nullptr;
    decltype(&ggml_free) free = nullptr;
    decltype(&ggml_new_tensor_1d) new_tensor_1d = nullptr;
    decltype(&ggml_new_tensor_3d) new_tensor_3d = nullptr;
    decltype(&ggml_rope_ext) rope_ext = nullptr;
    decltype(&ggml_new_graph) new_graph = nullptr;
    decltype(&ggml_build_forward_expand) build_forward_expand = nullptr;
    decltype(&ggml_backend_dev_by_type) backend_dev_by_type = nullptr;
    decltype(&ggml_backend_dev_init) backend_dev_init = nullptr;
    decltype(&ggml_backend_graph_compute) backend_graph_compute = nullptr;
    decltype(&ggml_backend_free) backend_free = nullptr;
    void (*log)(enum ggml_log_level level, const char* format, ...) = nullptr;
};

// Valid after find_ggml returned true.
const GgmlApi& ggml();

// Looks the functions up, `caller` being an address inside the library that loads this backend. False if one is
// missing; its name is then logged if a log was found.
bool find_ggml(const void* caller);

// The tensor that has the memory of a view, or the tensor itself.
inline const ggml_tensor* root_of(const ggml_tensor* tensor) { return tensor->view_src ? tensor->view_src : tensor; }

// Bytes from a tensor's beginning to an address in it.
inline int64_t offset_in(const ggml_tensor* root, const void* data) {
    return static_cast<const char*>(data) - static_cast<const char*>(root->data);
}

// A reason with the node and its operation before it.
std::string with_name(const ggml_tensor* node, const std::string& reason);

// One line into ggml's log, "winnow: " before and a newline after it.
void log_line(enum ggml_log_level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

} // namespace winnow::ggml
