// The few functions of ggml's that this backend calls, looked up in the running host.
//
// Nothing of ggml is linked: a host may have opened libggml-base with RTLD_LOCAL (Python does), under any file name, or
// carry it inside the program, and a second copy loaded by name would have its own registry and its own log.
#pragma once

#include <string>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "host_library.hpp"

namespace winnow::ggml {

class GgmlApi {
    const HostLibrary* host_; // while it is searched
    std::string missing_;

    template <typename Function>
    Function find(const char* name) {
        Function function = nullptr;
        if (host_ && !host_->find(name, function)) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
        return function;
    }

public:
    explicit GgmlApi(const HostLibrary* host = nullptr) : host_(host) {}
    const std::string& missing() const { return missing_; } // names of functions that the host does not have

// NOLINTNEXTLINE(bugprone-macro-parentheses): it declares the name
#define WINNOW_GGML(name) decltype(&ggml_##name) name = find<decltype(&ggml_##name)>("ggml_" #name)
    WINNOW_GGML(version);
    WINNOW_GGML(backend_buffer_init);
    WINNOW_GGML(backend_buft_is_host);
    WINNOW_GGML(nbytes);
    WINNOW_GGML(op_name);
    WINNOW_GGML(graph_n_nodes);
    WINNOW_GGML(graph_node);
    // For work that only the host's CPU backend knows how to do.
    WINNOW_GGML(init);
    WINNOW_GGML(free);
    WINNOW_GGML(new_tensor_1d);
    WINNOW_GGML(new_tensor_3d);
    WINNOW_GGML(rope_ext);
    WINNOW_GGML(new_graph);
    WINNOW_GGML(build_forward_expand);
    WINNOW_GGML(backend_dev_by_type);
    WINNOW_GGML(backend_dev_init);
    WINNOW_GGML(backend_graph_compute);
    WINNOW_GGML(backend_free);
    // For comparing ggml's layouts when this is loaded.
    WINNOW_GGML(get_mem_buffer);
    WINNOW_GGML(get_mem_size);
    WINNOW_GGML(get_no_alloc);
    WINNOW_GGML(tensor_overhead);
    WINNOW_GGML(type_name);
    WINNOW_GGML(blck_size);
    WINNOW_GGML(type_size);
    WINNOW_GGML(set_name);
    WINNOW_GGML(new_tensor_4d);
    WINNOW_GGML(view_1d);
    WINNOW_GGML(set_rows);
    WINNOW_GGML(flash_attn_ext);
    WINNOW_GGML(flash_attn_ext_add_sinks);
    WINNOW_GGML(backend_buffer_clear);
    WINNOW_GGML(backend_buffer_copy_tensor);
    WINNOW_GGML(backend_buffer_free);
    WINNOW_GGML(backend_buffer_get_base);
    WINNOW_GGML(backend_buffer_get_size);
    WINNOW_GGML(backend_buffer_init_tensor);
    WINNOW_GGML(backend_buft_alloc_buffer);
    WINNOW_GGML(backend_buft_get_alignment);
    WINNOW_GGML(backend_buft_get_device);
    WINNOW_GGML(backend_buft_name);
    WINNOW_GGML(backend_dev_backend_reg);
    WINNOW_GGML(backend_dev_buffer_type);
    WINNOW_GGML(backend_dev_description);
    WINNOW_GGML(backend_dev_get_props);
    WINNOW_GGML(backend_dev_memory);
    WINNOW_GGML(backend_dev_name);
    WINNOW_GGML(backend_dev_supports_buft);
    WINNOW_GGML(backend_dev_supports_op);
    WINNOW_GGML(backend_dev_type);
    WINNOW_GGML(backend_get_device);
    WINNOW_GGML(backend_graph_compute_async);
    WINNOW_GGML(backend_name);
    WINNOW_GGML(backend_reg_dev_count);
    WINNOW_GGML(backend_reg_get_proc_address);
    WINNOW_GGML(backend_reg_name);
    WINNOW_GGML(backend_tensor_get);
    WINNOW_GGML(backend_tensor_memset);
    WINNOW_GGML(backend_tensor_set);
#undef WINNOW_GGML
    using Log = void (*)(enum ggml_log_level level, const char* format, ...);
    Log log = find<Log>("ggml_log_internal");
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
