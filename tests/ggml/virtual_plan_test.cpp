// Graphs over cache tensors that no virtual cache can carry out, with ggml's own scheduler: planned before a token is
// stored, they leave the cache in place; after that they fail, and what is stored stays.
//
//   virtual_plan_test <libwinnow_ggml.so>, with WINNOW_KV=none:k=f16,v=f16
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

constexpr int64_t size = 64, heads = 2, cells = 256, tokens = 8;
constexpr float tolerance = 2e-3F;

void expect(bool condition, const std::string &text) {
    if (!condition) throw std::runtime_error(text);
}

std::vector<float> numbers(size_t count, int seed) {
    std::vector<float> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = std::sin(static_cast<float>(i) * 0.37F + static_cast<float>(seed));
    return all;
}

// What the report says of caches that stayed in place: a line for each, "OPERATION node: reason".
std::string said() {
    using Write = size_t (*)(char *, size_t);
    ggml_backend_dev_t device = ggml_backend_dev_by_name("Winnow");
    const auto write = reinterpret_cast<Write>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "winnow_ggml_report"));
    std::string text(write(nullptr, 0) + 1, '\0');
    text.resize(write(text.data(), text.size()));
    const nlohmann::json report = nlohmann::json::parse(text);
    std::string lines;
    for (const auto &cache : report.at("in_place")) {
        const auto field = [&](const char *name) { return cache.at(name).get<std::string>(); };
        lines += field("operation") + " " + field("node") + ": " + field("reason") + "\n";
    }
    return lines;
}

// A layer's cache in a buffer of a device's, as llama.cpp makes it, and a scheduler for graphs over it.
class Host {
public:
    // `name`: of the device, beside which there is ggml's CPU backend, or which is that.
    explicit Host(const char *name = "Winnow") {
        ggml_backend_dev_t device = ggml_backend_dev_by_name(name);
        expect(device != nullptr, std::string("no device ") + name);
        if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU)
            backends_.push_back(ggml_backend_dev_init(device, nullptr));
        backends_.push_back(ggml_backend_cpu_init());
        scheduler_ =
            ggml_backend_sched_new(backends_.data(), nullptr, static_cast<int>(backends_.size()), 64, false, false);
        lasting_ = ggml_init({ggml_tensor_overhead() * 8, nullptr, true});
        k = ggml_new_tensor_3d(lasting_, GGML_TYPE_F16, heads * size, cells, 1);
        v = ggml_new_tensor_3d(lasting_, GGML_TYPE_F16, heads * size, cells, 1);
        ggml_set_name(k, "cache_k_l0");
        ggml_set_name(v, "cache_v_l0");
        buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(lasting_, ggml_backend_dev_buffer_type(device));
        ggml_backend_buffer_clear(buffer_, 0);
    }
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
        if (graph_context_) ggml_free(graph_context_);
        ggml_backend_sched_reset(scheduler_);
        graph_context_ = ggml_init({ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true});
        Graph made{};
        made.context = graph_context_;
        made.graph = ggml_new_graph(graph_context_);
        made.rows = input(ggml_new_tensor_2d(graph_context_, GGML_TYPE_F32, heads * size, tokens), "rows");
        made.indices = input(ggml_new_tensor_1d(graph_context_, GGML_TYPE_I64, tokens), "indices");
        made.q = input(ggml_new_tensor_3d(graph_context_, GGML_TYPE_F32, size, tokens, heads), "q");
        made.mask = input(ggml_new_tensor_2d(graph_context_, GGML_TYPE_F16, cells, tokens), "mask");
        for (ggml_tensor *cache : {k, v}) {
            ggml_build_forward_expand(made.graph, ggml_set_rows(graph_context_, flat(cache), made.rows, made.indices));
        }
        return made;
    }

    ggml_tensor *view(ggml_tensor *cache) {
        const size_t element = ggml_type_size(cache->type);
        ggml_tensor *all =
            ggml_view_3d(graph_context_, cache, size, heads, cells, size * element, heads * size * element, 0);
        return ggml_permute(graph_context_, all, 0, 2, 1, 3);
    }

    void attend(Graph &graph, ggml_tensor *mask) {
        graph.attention = ggml_flash_attn_ext(graph.context, graph.q, view(k), view(v), mask, 0.125F, 0, 0);
        ggml_set_output(graph.attention);
        ggml_build_forward_expand(graph.graph, graph.attention);
    }

    void give_to_cpu(ggml_tensor *node) { ggml_backend_sched_set_tensor_backend(scheduler_, node, backends_.back()); }

    bool plan(const Graph &graph) { return ggml_backend_sched_reserve(scheduler_, graph.graph); }

    // Tokens in the cells from `first` on, each of which sees those up to itself.
    enum ggml_status compute(const Graph &graph, int64_t first) {
        ggml_backend_sched_alloc_graph(scheduler_, graph.graph);
        set(graph.rows, numbers(static_cast<size_t>(heads * size * tokens), static_cast<int>(first)));
        if (graph.q->buffer) set(graph.q, numbers(static_cast<size_t>(heads * size * tokens), 5));
        std::vector<int64_t> its(tokens);
        std::vector<ggml_fp16_t> hidden(static_cast<size_t>(cells * tokens), ggml_fp32_to_fp16(-INFINITY));
        for (int64_t i = 0; i < tokens; ++i) {
            its[static_cast<size_t>(i)] = first + i;
            for (int64_t cell = 0; cell <= first + i; ++cell)
                hidden[static_cast<size_t>(i * cells + cell)] = ggml_fp32_to_fp16(0);
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
        return ggml_view_2d(graph_context_, cache, heads * size, cells, cache->nb[1], 0);
    }
    static void set(ggml_tensor *tensor, const std::vector<float> &values) {
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }

    std::vector<ggml_backend_t> backends_;
    ggml_backend_sched_t scheduler_ = nullptr;
    ggml_context *lasting_ = nullptr, *graph_context_ = nullptr;
    ggml_backend_buffer_t buffer_ = nullptr;
};

using Graph = Host::Graph;

// What graphs do with a cache, and what is said of it.
struct Use {
    const char *name;
    std::function<void(Host &, Graph &)> build; // adds nodes, the last of which is the attention or stands for it
    const char *said;
};

const std::vector<Use> &uses() {
    static const std::vector<Use> all = {
        {"scores by a matrix product",
         [](Host &host, Graph &graph) {
             graph.attention = ggml_mul_mat(graph.context, host.view(host.k), graph.q);
             ggml_set_name(graph.attention, "scores");
             ggml_set_output(graph.attention);
             ggml_build_forward_expand(graph.graph, graph.attention);
         },
         "MUL_MAT scores: "},
        {"an attention that another backend has",
         [](Host &host, Graph &graph) {
             host.attend(graph, graph.mask);
             host.give_to_cpu(graph.attention);
         },
         "gives the node to another backend than Winnow"},
        {"a mask that is computed",
         [](Host &host, Graph &graph) { host.attend(graph, ggml_add(graph.context, graph.mask, graph.mask)); },
         "the mask is computed (ADD"},
        {"half of a row's heads",
         [](Host &host, Graph &graph) {
             ggml_tensor *half = ggml_view_3d(graph.context, host.k, size, 1, cells, size * 2, heads * size * 2, 0);
             graph.attention = ggml_mul_mat(graph.context, ggml_cont(graph.context, half), half);
             ggml_set_output(graph.attention);
             ggml_build_forward_expand(graph.graph, graph.attention);
         },
         "CONT "},
    };
    return all;
}

// `values` that Winnow gave are those of ggml's CPU backend.
void expect_near(const std::vector<float> &values, const std::vector<float> &wanted, const std::string &what) {
    expect(values.size() == wanted.size(), what + ": another size");
    float largest = 0;
    for (const float value : wanted) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < values.size(); ++i) {
        if (std::fabs(values[i] - wanted[i]) <= tolerance * std::max(1.0F, largest)) continue;
        expect(false, what + ": element " + std::to_string(i) + " is " + std::to_string(values[i]) +
                          ", on the CPU backend it is " + std::to_string(wanted[i]));
    }
}

// What a host gives for the use's graph on an empty cache, carried out in place.
std::vector<float> carry_out(Host &host, const Use &use) {
    Graph graph = host.begin();
    use.build(host, graph);
    expect(host.compute(graph, 0) == GGML_STATUS_SUCCESS, "fails in place");
    return Host::result(graph.attention);
}

// A cache that was never virtual, on ggml's CPU backend, gives the same.
void stays_in_place(const Use &use) {
    const std::string before = said();
    {
        Host host, plain("CPU");
        Graph planned = host.begin();
        use.build(host, planned);
        expect(host.plan(planned), "cannot plan");
        expect_near(carry_out(host, use), carry_out(plain, use), "the graph");
        std::vector<ggml_fp16_t> row(static_cast<size_t>(heads * size));
        ggml_backend_tensor_get(host.k, row.data(), 0, row.size() * sizeof row[0]);
        const std::vector<float> stored = numbers(row.size(), 0);
        for (size_t i = 0; i < row.size(); ++i) {
            expect(std::fabs(ggml_fp16_to_fp32(row[i]) - stored[i]) < tolerance, "the first row is not in place");
        }
        expect_near(host.decode(tokens), plain.decode(tokens), "an attention that goes on in place");
    }
    const std::string after = said();
    expect(before.find(use.said) == std::string::npos, "said before");
    expect(after.find(use.said) != std::string::npos,
           "the report does not say " + std::string(use.said) + ":\n" + after);
}

void fails_with_tokens(const Use &use) {
    Host host, undisturbed, plain("CPU");
    host.decode(0);
    undisturbed.decode(0);
    plain.decode(0);
    Graph graph = host.begin();
    use.build(host, graph);
    expect(host.compute(graph, tokens) == GGML_STATUS_FAILED, "is carried out on a virtual cache with tokens");
    const std::vector<float> expected = undisturbed.decode(tokens), found = host.decode(tokens);
    for (size_t i = 0; i < found.size(); ++i) {
        expect(found[i] == expected[i], "the refused graph has changed what is stored");
    }
    expect_near(found, plain.decode(tokens), "an attention after it");
}

} // namespace

int main(int count, char **arguments) {
    if (count != 2 || !ggml_backend_load(arguments[1])) return 2;
    int failures = 0;
    const auto run = [&](const Use &use, const char *when, void (*test)(const Use &)) {
        try {
            test(use);
            std::printf("ok: %s, %s\n", use.name, when);
        } catch (const std::exception &error) {
            std::printf("FAILED: %s, %s: %s\n", use.name, when, error.what());
            ++failures;
        }
    };
    for (const Use &use : uses()) {
        run(use, "before a token is stored", stays_in_place);
        run(use, "with tokens", fails_with_tokens);
    }
    return failures > 0;
}
