// A graph of one node.
#include "cpu_rope.hpp"

#include <cstring>
#include <memory>
#include <stdexcept>

#include "ggml_api.hpp"

namespace winnow::ggml {

void rotate_on_cpu(const ggml_tensor* node, std::vector<float>& rows, int64_t heads, int64_t elements,
                   const std::vector<int32_t>& positions) {
    constexpr size_t beside = size_t{1} << 20; // descriptions of tensors and of the graph
    const size_t size = rows.size() * sizeof(float);
    ggml_backend_dev_t device = ggml().backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device) throw std::runtime_error("the host has no CPU backend, which is to rotate keys");
    const std::unique_ptr<ggml_context, decltype(ggml().free)> context(
        ggml().init({.mem_size = 2 * size + beside, .mem_buffer = nullptr, .no_alloc = false}), ggml().free);
    const std::unique_ptr<ggml_backend, decltype(ggml().backend_free)> backend(ggml().backend_dev_init(device, nullptr),
                                                                               ggml().backend_free);
    if (!context || !backend) throw std::runtime_error("no memory for rotating keys");
    const auto count = static_cast<int64_t>(positions.size());
    ggml_tensor* from = ggml().new_tensor_3d(context.get(), GGML_TYPE_F32, elements, heads, count);
    ggml_tensor* at = ggml().new_tensor_1d(context.get(), GGML_TYPE_I32, count);
    std::memcpy(from->data, rows.data(), size);
    std::memcpy(at->data, positions.data(), positions.size() * sizeof(int32_t));
    ggml_tensor* to =
        ggml().rope_ext(context.get(), from, at, node->src[2], static_cast<int>(elements), 0, 0, 1, 1, 0, 1, 0, 0);
    std::memcpy(to->op_params, node->op_params, sizeof to->op_params);
    ggml_cgraph* graph = ggml().new_graph(context.get());
    ggml().build_forward_expand(graph, to);
    if (ggml().backend_graph_compute(backend.get(), graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("the host's CPU backend failed to rotate keys");
    }
    std::memcpy(rows.data(), to->data, size);
}

} // namespace winnow::ggml
