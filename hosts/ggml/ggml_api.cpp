// Finding ggml in the host: in the library that called us and what it depends on, else in the global scope. A process
// may hold two copies of ggml; the caller's is ours.
#include "ggml_api.hpp"

#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>

namespace winnow::ggml {

namespace {

GgmlApi table;

template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
    void* symbol = library ? dlsym(library, name) : nullptr;
    if (!symbol) symbol = dlsym(RTLD_DEFAULT, name);
    function = reinterpret_cast<Function>(symbol);
    if (!function) log_line(GGML_LOG_LEVEL_ERROR, "the host has no function %s", name);
    return function != nullptr;
}

} // namespace

const GgmlApi& ggml() { return table; }

bool find_ggml(const void* caller) {
    Dl_info info{};
    void* library = nullptr;
    if (dladdr(caller, &info) && info.dli_fname) library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool found = look_up(library, "ggml_log_internal", table.log);
    found &= look_up(library, "ggml_version", table.version);
    found &= look_up(library, "ggml_backend_buffer_init", table.buffer_init);
    found &= look_up(library, "ggml_backend_buft_is_host", table.buft_is_host);
    found &= look_up(library, "ggml_nbytes", table.nbytes);
    found &= look_up(library, "ggml_get_type_traits", table.get_type_traits);
    found &= look_up(library, "ggml_op_name", table.op_name);
    found &= look_up(library, "ggml_graph_n_nodes", table.graph_n_nodes);
    found &= look_up(library, "ggml_graph_node", table.graph_node);
    found &= look_up(library, "ggml_init", table.init);
    found &= look_up(library, "ggml_free", table.free);
    found &= look_up(library, "ggml_new_tensor_1d", table.new_tensor_1d);
    found &= look_up(library, "ggml_new_tensor_3d", table.new_tensor_3d);
    found &= look_up(library, "ggml_rope_ext", table.rope_ext);
    found &= look_up(library, "ggml_new_graph", table.new_graph);
    found &= look_up(library, "ggml_build_forward_expand", table.build_forward_expand);
    found &= look_up(library, "ggml_backend_dev_by_type", table.backend_dev_by_type);
    found &= look_up(library, "ggml_backend_dev_init", table.backend_dev_init);
    found &= look_up(library, "ggml_backend_graph_compute", table.backend_graph_compute);
    found &= look_up(library, "ggml_backend_free", table.backend_free);
    if (library) dlclose(library);
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
