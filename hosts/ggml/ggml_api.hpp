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
    decltype(&ggml_commit) commit = nullptr;
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
    // For comparing ggml's layouts when this is loaded.
    decltype(&ggml_get_mem_buffer) get_mem_buffer = nullptr;
    decltype(&ggml_get_mem_size) get_mem_size = nullptr;
    decltype(&ggml_get_no_alloc) get_no_alloc = nullptr;
    decltype(&ggml_tensor_overhead) tensor_overhead = nullptr;
    decltype(&ggml_type_name) type_name = nullptr;
    decltype(&ggml_blck_size) blck_size = nullptr;
    decltype(&ggml_type_size) type_size = nullptr;
    decltype(&ggml_set_name) set_name = nullptr;
    decltype(&ggml_new_tensor_4d) new_tensor_4d = nullptr;
    decltype(&ggml_view_1d) view_1d = nullptr;
    decltype(&ggml_set_rows) set_rows = nullptr;
    decltype(&ggml_flash_attn_ext) flash_attn_ext = nullptr;
    decltype(&ggml_flash_attn_ext_add_sinks) flash_attn_ext_add_sinks = nullptr;
    decltype(&ggml_backend_buffer_clear) backend_buffer_clear = nullptr;
    decltype(&ggml_backend_buffer_copy_tensor) backend_buffer_copy_tensor = nullptr;
    decltype(&ggml_backend_buffer_free) backend_buffer_free = nullptr;
    decltype(&ggml_backend_buffer_get_base) backend_buffer_get_base = nullptr;
    decltype(&ggml_backend_buffer_get_size) backend_buffer_get_size = nullptr;
    decltype(&ggml_backend_buffer_init_tensor) backend_buffer_init_tensor = nullptr;
    decltype(&ggml_backend_buft_alloc_buffer) backend_buft_alloc_buffer = nullptr;
    decltype(&ggml_backend_buft_get_alignment) backend_buft_get_alignment = nullptr;
    decltype(&ggml_backend_buft_get_device) backend_buft_get_device = nullptr;
    decltype(&ggml_backend_buft_name) backend_buft_name = nullptr;
    decltype(&ggml_backend_dev_backend_reg) backend_dev_backend_reg = nullptr;
    decltype(&ggml_backend_dev_buffer_type) backend_dev_buffer_type = nullptr;
    decltype(&ggml_backend_dev_description) backend_dev_description = nullptr;
    decltype(&ggml_backend_dev_get_props) backend_dev_get_props = nullptr;
    decltype(&ggml_backend_dev_memory) backend_dev_memory = nullptr;
    decltype(&ggml_backend_dev_name) backend_dev_name = nullptr;
    decltype(&ggml_backend_dev_supports_buft) backend_dev_supports_buft = nullptr;
    decltype(&ggml_backend_dev_supports_op) backend_dev_supports_op = nullptr;
    decltype(&ggml_backend_dev_type) backend_dev_type = nullptr;
    decltype(&ggml_backend_get_device) backend_get_device = nullptr;
    decltype(&ggml_backend_graph_compute_async) backend_graph_compute_async = nullptr;
    decltype(&ggml_backend_name) backend_name = nullptr;
    decltype(&ggml_backend_reg_dev_count) backend_reg_dev_count = nullptr;
    decltype(&ggml_backend_reg_get_proc_address) backend_reg_get_proc_address = nullptr;
    decltype(&ggml_backend_reg_name) backend_reg_name = nullptr;
    decltype(&ggml_backend_tensor_get) backend_tensor_get = nullptr;
    decltype(&ggml_backend_tensor_memset) backend_tensor_memset = nullptr;
    decltype(&ggml_backend_tensor_set) backend_tensor_set = nullptr;
    void (*log)(enum ggml_log_level level, const char* format, ...) = nullptr;
};

// Valid after find_ggml found all of them.
const GgmlApi& ggml();

// Looks the functions up, `caller` being an address inside the library that loads this backend. Returns the names of
// those that are missing, "" if none is.
std::string find_ggml(const void* caller);

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
