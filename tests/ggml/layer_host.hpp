// A host of ggml's kind without llama.cpp: a layer's cache tensors in a buffer of a device's, and graphs over them.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace layer_host {

constexpr int64_t size = 64, heads = 2, cells = 256, tokens = 8;

inline void expect(bool condition, const std::string &text) {
    if (!condition) throw std::runtime_error(text);
}

inline std::vector<float> numbers(size_t count, int seed) {
    std::vector<float> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(seed));
    return all;
}

// What the plugin reports of all that has ended.
inline nlohmann::json report() {
    using Write = size_t (*)(char *, size_t);
    ggml_backend_dev_t device = ggml_backend_dev_by_name("Winnow");
    const auto write = reinterpret_cast<Write>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "winnow_ggml_report"));
    std::string text(write(nullptr, 0) + 1, '\0');
    text.resize(write(text.data(), text.size()));
    return nlohmann::json::parse(text);
}

// A layer's cache in a buffer of a device's, as llama.cpp makes it, and a scheduler for graphs over it.
class Host {
public:
    // `name`: of the device, beside which there is ggml's CPU backend, or which is that. Graphs use the first stream.
    explicit Host(const char *name = "Winnow", int layer = 0, int64_t its_cells = cells, int64_t streams = 1) {
        ggml_backend_dev_t device = ggml_backend_dev_by_name(name);
        expect(device != nullptr, std::string("no device ") + name);
        make_scheduler(device);
        lasting_ = ggml_init({ggml_tensor_overhead() * 8, nullptr, true});
        k = ggml_new_tensor_3d(lasting_, GGML_TYPE_F16, heads * size, its_cells, streams);
        v = ggml_new_tensor_3d(lasting_, GGML_TYPE_F16, heads * size, its_cells, streams);
        ggml_format_name(k, "cache_k_l%d", layer);
        ggml_format_name(v, "cache_v_l%d", layer);
        buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(lasting_, ggml_backend_dev_buffer_type(device));
        ggml_backend_buffer_clear(buffer_, 0);
    }
    // Another scheduler for graphs over an owner's cache, which has to stay.
    explicit Host(Host &owner) : k(owner.k), v(owner.v) { make_scheduler(ggml_backend_dev_by_name("Winnow")); }
    ~Host() {
        ggml_backend_sched_free(scheduler_);
        ggml_backend_buffer_free(buffer_);
        for (ggml_backend_t backend : backends_) ggml_backend_free(backend);
        ggml_free(lasting_);
        if (graph_context_) ggml_free(graph_context_);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    // The tensors of one graph.
    struct Graph {
        ggml_context *context;
        ggml_cgraph *graph;
        ggml_tensor *rows, *indices, *q, *mask;
        ggml_tensor *attention = nullptr; // not always there
    };

    // Stores `tokens` rows from a cell on.
    Graph begin() {
        Graph made = prepare();
        store(made);
        return made;
    }

    Graph prepare() {
        if (graph_context_) ggml_free(graph_context_);
        ggml_backend_sched_reset(scheduler_);
        graph_context_ = ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true});
        Graph made{};
        made.context = graph_context_;
        made.graph = ggml_new_graph(graph_context_);
        made.rows = input(ggml_new_tensor_2d(graph_context_, GGML_TYPE_F32, heads * size, tokens), "rows");
        made.indices = input(ggml_new_tensor_1d(graph_context_, GGML_TYPE_I64, tokens), "indices");
        made.q = input(ggml_new_tensor_3d(graph_context_, GGML_TYPE_F32, size, tokens, heads), "q");
        made.mask = input(ggml_new_tensor_2d(graph_context_, GGML_TYPE_F16, k->ne[1], tokens), "mask");
        return made;
    }

    void store(Graph &graph) {
        for (ggml_tensor *cache : {k, v}) {
            ggml_build_forward_expand(graph.graph,
                                      ggml_set_rows(graph.context, flat(cache), graph.rows, graph.indices));
        }
    }

    ggml_tensor *view(ggml_tensor *cache) {
        const size_t element = ggml_type_size(cache->type);
        ggml_tensor *all =
            ggml_view_3d(graph_context_, cache, size, heads, k->ne[1], size * element, heads * size * element, 0);
        return ggml_permute(graph_context_, all, 0, 2, 1, 3);
    }

    void attend(Graph &graph, ggml_tensor *mask) {
        graph.attention = ggml_flash_attn_ext(graph.context, graph.q, view(k), view(v), mask, 0.125F, 0, 0);
        ggml_set_output(graph.attention);
        ggml_build_forward_expand(graph.graph, graph.attention);
    }

    void give_to_cpu(ggml_tensor *node) { ggml_backend_sched_set_tensor_backend(scheduler_, node, backends_.back()); }

    void give_to_device(ggml_tensor *node) {
        ggml_backend_sched_set_tensor_backend(scheduler_, node, backends_.front());
    }

    bool plan(const Graph &graph) { return ggml_backend_sched_reserve(scheduler_, graph.graph); }

    // Tokens in the cells from `first` on, each of which sees those up to itself.
    enum ggml_status compute(const Graph &graph, int64_t first) {
        allocate(graph);
        return compute_allocated(graph, first);
    }

    void allocate(const Graph &graph) { ggml_backend_sched_alloc_graph(scheduler_, graph.graph); }

    enum ggml_status compute_allocated(const Graph &graph, int64_t first) {
        const int64_t columns = k->ne[1];
        set(graph.rows, numbers(static_cast<size_t>(heads * size * tokens), static_cast<int>(first)));
        if (graph.q->buffer) set(graph.q, numbers(static_cast<size_t>(heads * size * tokens), 5));
        std::vector<int64_t> its(tokens);
        std::vector<ggml_fp16_t> hidden(static_cast<size_t>(columns * tokens), ggml_fp32_to_fp16(-INFINITY));
        for (int64_t i = 0; i < tokens; ++i) {
            its[static_cast<size_t>(i)] = first + i;
            for (int64_t cell = 0; cell <= first + i; ++cell)
                hidden[static_cast<size_t>(i * columns + cell)] = ggml_fp32_to_fp16(0);
        }
        ggml_backend_tensor_set(graph.indices, its.data(), 0, ggml_nbytes(graph.indices));
        if (graph.mask->buffer) ggml_backend_tensor_set(graph.mask, hidden.data(), 0, ggml_nbytes(graph.mask));
        return ggml_backend_sched_graph_compute(scheduler_, graph.graph);
    }

    static std::vector<float> result(const ggml_tensor *tensor) {
        std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
        ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
        return values;
    }

    // Stores tokens from a cell on and attends; what comes out.
    std::vector<float> decode(int64_t first) {
        Graph graph = begin();
        attend(graph, graph.mask);
        expect(compute(graph, first) == GGML_STATUS_SUCCESS, "an attention failed");
        return result(graph.attention);
    }

    ggml_tensor *k = nullptr, *v = nullptr;

private:
    static ggml_tensor *input(ggml_tensor *tensor, const char *name) {
        ggml_set_input(tensor);
        ggml_set_name(tensor, name);
        return tensor;
    }
    ggml_tensor *flat(ggml_tensor *cache) {
        return ggml_view_2d(graph_context_, cache, heads * size, k->ne[1], cache->nb[1], 0);
    }
    void make_scheduler(ggml_backend_dev_t device) {
        if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU)
            backends_.push_back(ggml_backend_dev_init(device, nullptr));
        backends_.push_back(ggml_backend_cpu_init());
        scheduler_ =
            ggml_backend_sched_new(backends_.data(), nullptr, static_cast<int>(backends_.size()), 64, false, false);
    }
    static void set(ggml_tensor *tensor, const std::vector<float> &values) {
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }

    std::vector<ggml_backend_t> backends_;
    ggml_backend_sched_t scheduler_ = nullptr;
    ggml_context *lasting_ = nullptr, *graph_context_ = nullptr;
    ggml_backend_buffer_t buffer_ = nullptr;
};

} // namespace layer_host
