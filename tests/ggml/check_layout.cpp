// The layout check alone, as a library, for layout_check_test.py: no more of the host than it needs is compiled for a
// tree, and that at once.
#include "ggml_api.cpp"
#include "layout_check.cpp"

namespace winnow::ggml {

// Is told of a node that ggml would compute.
bool has_work(const ggml_tensor *node) { return (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0; }

} // namespace winnow::ggml

// `caller` is an address in the process's ggml.
extern "C" const char *check_layout(const void *caller) {
    static std::string difference;
    difference = winnow::ggml::find_ggml(caller);
    if (difference.empty()) difference = winnow::ggml::layout_difference();
    return difference.c_str();
}
