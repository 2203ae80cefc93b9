// Graphs over cache tensors that no virtual cache can carry out, with ggml's own scheduler: planned before a token is
// stored, they leave the cache in place; after that they fail, and what is stored stays.
//
//   virtual_plan_test <libwinnow_ggml.so>, with WINNOW_KV=none:k=f16,v=f16
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "layer_host.hpp"

namespace {

using layer_host::cells;
using layer_host::expect;
using layer_host::heads;
using layer_host::Host;
using layer_host::numbers;
using layer_host::size;
using layer_host::tokens;

constexpr float tolerance = 2e-3F;

// What the report says of caches that stayed in place: a line for each, "OPERATION node: reason".
std::string said() {
    const nlohmann::json report = layer_host::report();
    std::string lines;
    for (const auto &cache : report.at("in_place")) {
        const auto field = [&](const char *name) { return cache.at(name).get<std::string>(); };
        lines += field("operation") + " " + field("node") + ": " + field("reason") + "\n";
    }
    return lines;
}

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

// With a configuration that may lose a token which a computed mask shows later.
const Use computed_mask = {
    "a mask that is computed, with a budget",
    [](Host &host, Graph &graph) { host.attend(graph, ggml_add(graph.context, graph.mask, graph.mask)); },
    "the mask is computed (ADD"};

// WINNOW_KV of the contexts that are made meanwhile.
class ScopedKv {
public:
    explicit ScopedKv(const char *config) { set(config); }
    ~ScopedKv() { set(unlimited); }
    ScopedKv(const ScopedKv &) = delete;
    ScopedKv &operator=(const ScopedKv &) = delete;

private:
    static constexpr const char *unlimited = "none:k=f16,v=f16";
    static void set(const char *config) {
        using Set = int (*)(const char *, char *, size_t);
        ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_dev_by_name("Winnow"));
        char message[256] = "";
        reinterpret_cast<Set>(ggml_backend_reg_get_proc_address(reg, "winnow_ggml_set_kv"))(config, message,
                                                                                            sizeof message);
    }
};

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

// A node that is asked about and comes in no graph, as llama.cpp tries whether a device would take it.
void forgets_what_was_only_asked() {
    Host host;
    host.decode(0);
    const Graph asked = host.begin();
    ggml_tensor *scores = ggml_mul_mat(asked.context, host.view(host.k), asked.q);
    scores->flags |= GGML_TENSOR_FLAG_COMPUTE;
    expect(ggml_backend_dev_supports_op(ggml_backend_dev_by_name("Winnow"), scores), "another backend gets it");
    host.decode(tokens);
}

// Stores tokens from a cell on and attends under the host's mask and another one, which hides cells from the second on.
std::vector<float> decode_chosen(Host &host, int64_t first, int64_t hidden) {
    Graph graph = host.prepare();
    ggml_tensor *chosen = ggml_new_tensor_2d(graph.context, GGML_TYPE_F16, cells, tokens);
    ggml_set_input(chosen);
    ggml_tensor *mask = ggml_add(graph.context, graph.mask, chosen);
    ggml_build_forward_expand(graph.graph, mask); // before the rows, so that no other backend's nodes come after them
    host.store(graph);
    host.attend(graph, mask);
    host.allocate(graph);
    std::vector<ggml_fp16_t> columns(static_cast<size_t>(cells * tokens), ggml_fp32_to_fp16(0));
    for (int64_t token = 0; token < tokens; ++token)
        std::fill_n(columns.begin() + token * cells + 1, hidden, ggml_fp32_to_fp16(-INFINITY));
    ggml_backend_tensor_set(chosen, columns.data(), 0, ggml_nbytes(chosen));
    expect(host.compute_allocated(graph, first) == GGML_STATUS_SUCCESS, "an attention failed");
    return Host::result(graph.attention);
}

// As an index of tokens chooses: what one batch does not see, the next one does.
void keeps_what_a_computed_mask_hides() {
    const std::string before = said();
    const size_t ended = layer_host::report().at("caches").size();
    {
        Host host("Winnow", 0, cells, 2); // where streams have one sequence each, masks tell which cells are free
        Host plain("CPU");
        for (const auto &[first, hidden] : {std::pair{int64_t{0}, int64_t{0}}, {tokens, tokens - 1}, {2 * tokens, 0}})
            expect_near(decode_chosen(host, first, hidden), decode_chosen(plain, first, hidden),
                        "tokens from cell " + std::to_string(first));
    }
    expect(said() == before, "a cache stayed in place:\n" + said());
    const nlohmann::json caches = layer_host::report().at("caches");
    expect(caches.size() == ended + 1, "there was no virtual cache");
    expect(caches.back().at("tokens") == 3 * tokens, "tokens were freed: " + caches.back().dump());
}

// A graph stays as it was planned, whatever another scheduler plans over the same cache meanwhile.
void keeps_graphs_apart() {
    Host host;
    Host other(host);
    host.decode(0);
    Graph good = host.begin(), bad = other.begin();
    host.attend(good, good.mask);
    host.allocate(good);
    other.attend(bad, bad.mask);
    other.give_to_cpu(bad.attention);
    other.allocate(bad);
    expect(host.compute_allocated(good, tokens) == GGML_STATUS_SUCCESS, "the other's refusal is this one's, too");
    expect(other.compute_allocated(bad, 2 * tokens) == GGML_STATUS_FAILED, "a refused graph is computed");
    expect(host.compute_allocated(good, 2 * tokens) == GGML_STATUS_SUCCESS, "a graph is not computed again");
    host.decode(3 * tokens);
    expect(other.compute_allocated(bad, 4 * tokens) == GGML_STATUS_FAILED, "what was refused is planned by another");
    host.decode(4 * tokens);
}

} // namespace

int main(int count, char **arguments) {
    if (count != 2 || !ggml_backend_load(arguments[1])) return 2;
    int failures = 0;
    const auto run = [&](const std::string &name, const std::function<void()> &test) {
        try {
            test();
            std::printf("ok: %s\n", name.c_str());
        } catch (const std::exception &error) {
            std::printf("FAILED: %s: %s\n", name.c_str(), error.what());
            ++failures;
        }
    };
    for (const Use &use : uses()) {
        run(std::string(use.name) + ", before a token is stored", [&] { stays_in_place(use); });
        run(std::string(use.name) + ", with tokens", [&] { fails_with_tokens(use); });
    }
    {
        const ScopedKv kv("window:budget=64");
        run(std::string(computed_mask.name) + ", before a token is stored", [] { stays_in_place(computed_mask); });
        run(std::string(computed_mask.name) + ", with tokens", [] { fails_with_tokens(computed_mask); });
    }
    run("a mask that is computed, without a budget", keeps_what_a_computed_mask_hides);
    run("a node that is only asked about", forgets_what_was_only_asked);
    run("graphs of two schedulers", keeps_graphs_apart);
    return failures > 0;
}
