// Finding ggml's functions in the host.
#include "ggml_api.hpp"

#include <cstdarg>
#include <cstdio>

#include "run_log.hpp"

namespace winnow::ggml {

namespace {

GgmlApi table;

} // namespace

const GgmlApi& ggml() { return table; }

std::string find_ggml(const void* caller) {
    const HostLibrary host(caller);
    table = GgmlApi(&host);
    return table.missing();
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
