// Finding ggml's functions in the host.
#include "ggml_api.hpp"

#include <cstdarg>
#include <cstdio>

#include "host_library.hpp"
#include "run_log.hpp"

namespace winnow::ggml {

namespace {

GgmlApi table;

// Adds the name to `missing` where the host has no such function.
template <typename Function>
void look_up(const HostLibrary& host, const char* name, Function& function, std::string& missing) {
    if (!host.find(name, function)) missing += (missing.empty() ? "" : ", ") + std::string(name);
}

} // namespace

const GgmlApi& ggml() { return table; }

std::string find_ggml(const void* caller) {
    const HostLibrary host(caller);
    std::string missing;
    look_up(host, "ggml_log_internal", table.log, missing);
    look_up(host, "ggml_version", table.version, missing);
    look_up(host, "ggml_commit", table.commit, missing);
    look_up(host, "ggml_backend_buffer_init", table.buffer_init, missing);
    look_up(host, "ggml_backend_buft_is_host", table.buft_is_host, missing);
    look_up(host, "ggml_nbytes", table.nbytes, missing);
    look_up(host, "ggml_get_type_traits", table.get_type_traits, missing);
    look_up(host, "ggml_op_name", table.op_name, missing);
    look_up(host, "ggml_graph_n_nodes", table.graph_n_nodes, missing);
    look_up(host, "ggml_graph_node", table.graph_node, missing);
    look_up(host, "ggml_init", table.init, missing);
    look_up(host, "ggml_free", table.free, missing);
    look_up(host, "ggml_new_tensor_1d", table.new_tensor_1d, missing);
    look_up(host, "ggml_new_tensor_3d", table.new_tensor_3d, missing);
    look_up(host, "ggml_rope_ext", table.rope_ext, missing);
    look_up(host, "ggml_new_graph", table.new_graph, missing);
    look_up(host, "ggml_build_forward_expand", table.build_forward_expand, missing);
    look_up(host, "ggml_backend_dev_by_type", table.backend_dev_by_type, missing);
    look_up(host, "ggml_backend_dev_init", table.backend_dev_init, missing);
    look_up(host, "ggml_backend_graph_compute", table.backend_graph_compute, missing);
    look_up(host, "ggml_backend_free", table.backend_free, missing);
    look_up(host, "ggml_get_mem_buffer", table.get_mem_buffer, missing);
    look_up(host, "ggml_get_mem_size", table.get_mem_size, missing);
    look_up(host, "ggml_get_no_alloc", table.get_no_alloc, missing);
    look_up(host, "ggml_tensor_overhead", table.tensor_overhead, missing);
    look_up(host, "ggml_type_name", table.type_name, missing);
    look_up(host, "ggml_blck_size", table.blck_size, missing);
    look_up(host, "ggml_type_size", table.type_size, missing);
    look_up(host, "ggml_set_name", table.set_name, missing);
    look_up(host, "ggml_new_tensor_4d", table.new_tensor_4d, missing);
    look_up(host, "ggml_view_1d", table.view_1d, missing);
    look_up(host, "ggml_set_rows", table.set_rows, missing);
    look_up(host, "ggml_flash_attn_ext", table.flash_attn_ext, missing);
    look_up(host, "ggml_flash_attn_ext_add_sinks", table.flash_attn_ext_add_sinks, missing);
    look_up(host, "ggml_backend_buffer_clear", table.backend_buffer_clear, missing);
    look_up(host, "ggml_backend_buffer_copy_tensor", table.backend_buffer_copy_tensor, missing);
    look_up(host, "ggml_backend_buffer_free", table.backend_buffer_free, missing);
    look_up(host, "ggml_backend_buffer_get_base", table.backend_buffer_get_base, missing);
    look_up(host, "ggml_backend_buffer_get_size", table.backend_buffer_get_size, missing);
    look_up(host, "ggml_backend_buffer_init_tensor", table.backend_buffer_init_tensor, missing);
    look_up(host, "ggml_backend_buft_alloc_buffer", table.backend_buft_alloc_buffer, missing);
    look_up(host, "ggml_backend_buft_get_alignment", table.backend_buft_get_alignment, missing);
    look_up(host, "ggml_backend_buft_get_device", table.backend_buft_get_device, missing);
    look_up(host, "ggml_backend_buft_name", table.backend_buft_name, missing);
    look_up(host, "ggml_backend_dev_backend_reg", table.backend_dev_backend_reg, missing);
    look_up(host, "ggml_backend_dev_buffer_type", table.backend_dev_buffer_type, missing);
    look_up(host, "ggml_backend_dev_description", table.backend_dev_description, missing);
    look_up(host, "ggml_backend_dev_get_props", table.backend_dev_get_props, missing);
    look_up(host, "ggml_backend_dev_memory", table.backend_dev_memory, missing);
    look_up(host, "ggml_backend_dev_name", table.backend_dev_name, missing);
    look_up(host, "ggml_backend_dev_supports_buft", table.backend_dev_supports_buft, missing);
    look_up(host, "ggml_backend_dev_supports_op", table.backend_dev_supports_op, missing);
    look_up(host, "ggml_backend_dev_type", table.backend_dev_type, missing);
    look_up(host, "ggml_backend_get_device", table.backend_get_device, missing);
    look_up(host, "ggml_backend_graph_compute_async", table.backend_graph_compute_async, missing);
    look_up(host, "ggml_backend_name", table.backend_name, missing);
    look_up(host, "ggml_backend_reg_dev_count", table.backend_reg_dev_count, missing);
    look_up(host, "ggml_backend_reg_get_proc_address", table.backend_reg_get_proc_address, missing);
    look_up(host, "ggml_backend_reg_name", table.backend_reg_name, missing);
    look_up(host, "ggml_backend_tensor_get", table.backend_tensor_get, missing);
    look_up(host, "ggml_backend_tensor_memset", table.backend_tensor_memset, missing);
    look_up(host, "ggml_backend_tensor_set", table.backend_tensor_set, missing);
    return missing;
}

std::string with_name(const ggml_tensor* node, const std::string& reason) {
    return std::string(node->name) + " (" + ggml().op_name(node->op) + "): " + reason;
}

void log_line(enum ggml_log_level level, const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (level == GGML_LOG_LEVEL_WARN) note_run("warning", text);
    if (level == GGML_LOG_LEVEL_ERROR) note_run("error", text);
    if (table.log) table.log(level, "winnow: %s\n", text);
}

} // namespace winnow::ggml
