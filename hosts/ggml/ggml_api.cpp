// Finding ggml's functions in the host.
#include "ggml_api.hpp"

#include <cstdarg>
#include <cstdio>

#include "host_library.hpp"

namespace winnow::ggml {

namespace {

GgmlApi table;

template <typename Function>
bool look_up(const HostLibrary& host, const char* name, Function& function) {
    if (host.find(name, function)) return true;
    log_line(GGML_LOG_LEVEL_ERROR, "the host has no function %s", name);
    return false;
}

} // namespace

const GgmlApi& ggml() { return table; }

bool find_ggml(const void* caller) {
    const HostLibrary host(caller);
    bool found = look_up(host, "ggml_log_internal", table.log);
    found &= look_up(host, "ggml_version", table.version);
    found &= look_up(host, "ggml_commit", table.commit);
    found &= look_up(host, "ggml_backend_buffer_init", table.buffer_init);
    found &= look_up(host, "ggml_backend_buft_is_host", table.buft_is_host);
    found &= look_up(host, "ggml_nbytes", table.nbytes);
    found &= look_up(host, "ggml_get_type_traits", table.get_type_traits);
    found &= look_up(host, "ggml_op_name", table.op_name);
    found &= look_up(host, "ggml_graph_n_nodes", table.graph_n_nodes);
    found &= look_up(host, "ggml_graph_node", table.graph_node);
    found &= look_up(host, "ggml_init", table.init);
    found &= look_up(host, "ggml_free", table.free);
    found &= look_up(host, "ggml_new_tensor_1d", table.new_tensor_1d);
    found &= look_up(host, "ggml_new_tensor_3d", table.new_tensor_3d);
    found &= look_up(host, "ggml_rope_ext", table.rope_ext);
    found &= look_up(host, "ggml_new_graph", table.new_graph);
    found &= look_up(host, "ggml_build_forward_expand", table.build_forward_expand);
    found &= look_up(host, "ggml_backend_dev_by_type", table.backend_dev_by_type);
    found &= look_up(host, "ggml_backend_dev_init", table.backend_dev_init);
    found &= look_up(host, "ggml_backend_graph_compute", table.backend_graph_compute);
    found &= look_up(host, "ggml_backend_free", table.backend_free);
    found &= look_up(host, "ggml_tensor_overhead", table.tensor_overhead);
    found &= look_up(host, "ggml_type_name", table.type_name);
    found &= look_up(host, "ggml_blck_size", table.blck_size);
    found &= look_up(host, "ggml_type_size", table.type_size);
    found &= look_up(host, "ggml_set_name", table.set_name);
    found &= look_up(host, "ggml_new_tensor_4d", table.new_tensor_4d);
    found &= look_up(host, "ggml_view_1d", table.view_1d);
    found &= look_up(host, "ggml_set_rows", table.set_rows);
    found &= look_up(host, "ggml_flash_attn_ext", table.flash_attn_ext);
    found &= look_up(host, "ggml_flash_attn_ext_add_sinks", table.flash_attn_ext_add_sinks);
    found &= look_up(host, "ggml_backend_buffer_clear", table.backend_buffer_clear);
    found &= look_up(host, "ggml_backend_buffer_copy_tensor", table.backend_buffer_copy_tensor);
    found &= look_up(host, "ggml_backend_buffer_free", table.backend_buffer_free);
    found &= look_up(host, "ggml_backend_buffer_get_base", table.backend_buffer_get_base);
    found &= look_up(host, "ggml_backend_buffer_get_size", table.backend_buffer_get_size);
    found &= look_up(host, "ggml_backend_buffer_init_tensor", table.backend_buffer_init_tensor);
    found &= look_up(host, "ggml_backend_buft_alloc_buffer", table.backend_buft_alloc_buffer);
    found &= look_up(host, "ggml_backend_buft_get_alignment", table.backend_buft_get_alignment);
    found &= look_up(host, "ggml_backend_buft_get_device", table.backend_buft_get_device);
    found &= look_up(host, "ggml_backend_buft_name", table.backend_buft_name);
    found &= look_up(host, "ggml_backend_dev_backend_reg", table.backend_dev_backend_reg);
    found &= look_up(host, "ggml_backend_dev_buffer_type", table.backend_dev_buffer_type);
    found &= look_up(host, "ggml_backend_dev_description", table.backend_dev_description);
    found &= look_up(host, "ggml_backend_dev_get_props", table.backend_dev_get_props);
    found &= look_up(host, "ggml_backend_dev_memory", table.backend_dev_memory);
    found &= look_up(host, "ggml_backend_dev_name", table.backend_dev_name);
    found &= look_up(host, "ggml_backend_dev_supports_buft", table.backend_dev_supports_buft);
    found &= look_up(host, "ggml_backend_dev_supports_op", table.backend_dev_supports_op);
    found &= look_up(host, "ggml_backend_dev_type", table.backend_dev_type);
    found &= look_up(host, "ggml_backend_get_device", table.backend_get_device);
    found &= look_up(host, "ggml_backend_graph_compute_async", table.backend_graph_compute_async);
    found &= look_up(host, "ggml_backend_name", table.backend_name);
    found &= look_up(host, "ggml_backend_reg_dev_count", table.backend_reg_dev_count);
    found &= look_up(host, "ggml_backend_reg_get_proc_address", table.backend_reg_get_proc_address);
    found &= look_up(host, "ggml_backend_reg_name", table.backend_reg_name);
    found &= look_up(host, "ggml_backend_tensor_get", table.backend_tensor_get);
    found &= look_up(host, "ggml_backend_tensor_memset", table.backend_tensor_memset);
    found &= look_up(host, "ggml_backend_tensor_set", table.backend_tensor_set);
    return found;
}

std::string with_name(const ggml_tensor* node, const std::string& reason) {
    return std::string(node->name) + " (" + ggml().op_name(node->op) + "): " + reason;
}

void log_line(enum ggml_log_level level, const char* format, ...) {
    if (!table.log) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    table.log(level, "winnow: %s\n", text);
}

} // namespace winnow::ggml
