// Walking a graph: every FLASH_ATTN_EXT is one sdpa, every SET_ROWS (K's and V's together where they follow each other)
// one kv_append. All is enqueued in order on one context and awaited once, at the end: the scheduler hands the results
// to other backends without asking.
#include "backend.hpp"

#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml_api.hpp"
#include "kv_config.hpp"
#include "run_log.hpp"
#include "translate.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

class Instance {
public:
    explicit Instance(Registration& owner)
        : registration(owner), context(owner.plugin.library(), Purpose::in_place, owner.plugin.device_in_place()) {}

    enum ggml_status compute(ggml_cgraph* graph);
    // After a failure: what runs uses the host's memory.
    void abandon();

    Registration& registration;
    const int64_t number = registration.report.next_owner(); // in the report
    Context context;
    Counters counters;
    ggml_abort_callback abort_callback = nullptr;
    void* abort_data = nullptr;

private:
    bool attend(const ggml_tensor* node);
    // Carries out `first`, and `second` (may be NULL) with it if that is possible; `merged` tells.
    bool append(const ggml_tensor* first, const ggml_tensor* second, bool& merged);
    bool fail(const ggml_tensor* node) const;
    // Nodes on virtual tensors; these throw.
    void compute_virtual(VirtualBuffer& buffer, const ggml_cgraph* graph, const ggml_tensor* node);
    void end_virtual(bool done);
    void report_if_due(const std::set<VirtualBuffer*>& buffers);

    SlopeCache slopes_;
    std::set<VirtualBuffer*> virtual_buffers_; // that this graph uses
    std::unique_ptr<Track> graphs_ = Track::begin("graphs");
};

Instance& of(ggml_backend_t backend) { return *static_cast<Instance*>(backend->context); }

bool Instance::fail(const ggml_tensor* node) const {
    log_line(GGML_LOG_LEVEL_ERROR, "%s: %s", node->name, context.message());
    return false;
}

bool Instance::attend(const ggml_tensor* node) {
    SdpaNode sdpa;
    if (!sdpa.translate(node, slopes_.get(node))) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s: an attention that supports_op does not claim", node->name);
        return false;
    }
    if (context.api().sdpa(context.get(), &sdpa.desc(), nullptr) != WINNOW_OK) return fail(node);
    counters.count_attention_in_place(node);
    return true;
}

bool Instance::append(const ggml_tensor* first, const ggml_tensor* second, bool& merged) {
    AppendNode rows;
    const auto run = [&] { return context.api().kv_append(context.get(), &rows.desc(), nullptr); };
    merged = false;
    if (second && rows.translate(first, second)) {
        const int32_t status = run();
        merged = status == WINNOW_OK;
        // What is refused has done nothing, and comes in two.
        if (!merged && status != WINNOW_ERROR_UNSUPPORTED && status != WINNOW_ERROR_INVALID_ARGUMENT)
            return fail(first);
    }
    if (!merged) {
        if (!rows.translate(first, nullptr)) {
            log_line(GGML_LOG_LEVEL_ERROR, "%s: a row copy that supports_op does not claim", first->name);
            return false;
        }
        if (run() != WINNOW_OK) return fail(first);
    }
    counters.count_append(first, merged ? second : nullptr);
    return true;
}

void Instance::compute_virtual(VirtualBuffer& buffer, const ggml_cgraph* graph, const ggml_tensor* node) {
    buffer.begin_use(graph);
    virtual_buffers_.insert(&buffer);
    buffer.context().set_threads(context.threads());
    const ggml_tensor* root = node->view_src;
    if (node->op == GGML_OP_SET_ROWS && root && buffer.has_root(root)) {
        buffer.cache(root).set_rows(root, node, counters);
        return;
    }
    const ggml_tensor* keys = node->op == GGML_OP_FLASH_ATTN_EXT ? node->src[1]->view_src : nullptr;
    SdpaNode sdpa;
    if (keys && buffer.has_root(keys) && sdpa.translate(node, slopes_.get(node))) {
        buffer.cache(keys).attend(node, sdpa, counters);
        return;
    }
    if (node->op == GGML_OP_ROPE && root && buffer.has_root(root) && root_of(node->src[0]) == root) {
        buffer.cache(root).shift(node);
        return;
    }
    const std::string reason = misuse(node);
    if (root && buffer.has_root(root)) buffer.poison(reason); // it would have changed what is stored
    throw std::runtime_error(reason);
}

void Instance::end_virtual(bool done) {
    const std::set<VirtualBuffer*> buffers = std::move(virtual_buffers_);
    virtual_buffers_.clear();
    std::exception_ptr first;
    const auto each = [&](auto&& action) { // of all buffers, whichever fails
        for (VirtualBuffer* buffer : buffers) {
            try {
                action(*buffer);
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        }
    };
    if (done) each([&](VirtualBuffer& buffer) { buffer.end_graph(counters); });
    each([](VirtualBuffer& buffer) { buffer.finish(); });
    // They lie in the graph's memory; what ran until now may have read them.
    if (!done || first) each([](VirtualBuffer& buffer) { buffer.drop_deferred(); });
    if (first) std::rethrow_exception(first);
    if (!done) return;
    report_if_due(buffers);
}

void Instance::report_if_due(const std::set<VirtualBuffer*>& buffers) {
    Report& report = registration.report;
    bool is_new = report.is_due(number);
    if (is_new) report.set_living(number, {counters, context.figures(), {}});
    for (VirtualBuffer* buffer : buffers) is_new |= buffer->note_living();
    if (is_new) report.write_living();
}

enum ggml_status Instance::compute(ggml_cgraph* graph) {
    const int count = ggml().graph_n_nodes(graph);
    const auto next_work = [&](int i) {
        while (i < count && !has_work(ggml().graph_node(graph, i))) ++i;
        return i;
    };
    bool done = true;
    bool aborted = false;
    counters.count_graph();
    TraceSpan span(graphs_.get());
    for (int i = next_work(0); i < count && done;) {
        if (abort_callback && abort_callback(abort_data)) {
            aborted = true;
            break;
        }
        const ggml_tensor* node = ggml().graph_node(graph, i);
        span.set_name(node->name); // of the last, which is the attention
        int next = next_work(i + 1);
        if (VirtualBuffer* buffer = virtual_buffer_touched(node)) {
            compute_virtual(*buffer, graph, node);
        } else if (node->op == GGML_OP_FLASH_ATTN_EXT) {
            done = attend(node);
        } else {
            const ggml_tensor* follower = next < count ? ggml().graph_node(graph, next) : nullptr;
            if (follower && (follower->op != GGML_OP_SET_ROWS || virtual_buffer_touched(follower))) follower = nullptr;
            bool merged = false;
            done = append(node, follower, merged);
            if (merged) next = next_work(next + 1);
        }
        i = next;
    }
    end_virtual(done && !aborted);
    // Even after a failure: the memory that running kernels use is the host's to free.
    if (context.finish() != WINNOW_OK) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", context.message());
        done = false;
    }
    return aborted ? GGML_STATUS_ABORTED : done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

void Instance::abandon() {
    context.finish();
    try {
        end_virtual(false);
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
    }
}

const char* get_name(ggml_backend_t) { return "Winnow"; }

void free_backend(ggml_backend_t backend) {
    Instance* instance = &of(backend);
    const Counters& counters = instance->counters;
    log_line(GGML_LOG_LEVEL_INFO, "%llu attention and %llu append calls over %zu cache tensors in %llu graphs",
             static_cast<unsigned long long>(counters.attention_calls()),
             static_cast<unsigned long long>(counters.append_calls()), counters.layers().size(),
             static_cast<unsigned long long>(counters.graphs()));
    try {
        if (counters.in_place_calls() > 0 && has_kv_config()) {
            log_line(
                GGML_LOG_LEVEL_WARN,
                "%llu attention calls were over caches that are not virtual in spite of WINNOW_KV: such a cache is "
                "not in a buffer of Winnow's (-nkvo), or is used in another way",
                static_cast<unsigned long long>(counters.in_place_calls()));
        }
        Report& report = instance->registration.report;
        report.end_living(instance->number);
        report.add(counters, instance->context.figures());
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "no report: %s", error.what());
    }
    delete instance;
    delete backend;
}

enum ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
    try {
        return of(backend).compute(graph);
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        of(backend).abandon();
        return GGML_STATUS_FAILED;
    }
}

// ggml's scheduler has given every node to a backend. It asks this of each part of a graph that is this backend's.
// In some versions it has more parameters.
template <typename... Others>
void graph_optimize(ggml_backend_t, ggml_cgraph* graph, Others...) {
    try {
        review_plan(graph);
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
    }
}

// What is not named, ggml does without; of what else there is, releases have more or less.
constexpr ggml_backend_i backend_interface = [] {
    ggml_backend_i made{};
    made.get_name = get_name;
    made.free = free_backend;
    made.graph_compute = graph_compute;
    made.graph_optimize = graph_optimize;
    return made;
}();

ggml_guid guid = {0x57, 0x69, 0x6e, 0x6e, 0x6f, 0x77, 0x4b, 0x56, 0x9d, 0x41, 0x3c, 0x8a, 0x20, 0x6b, 0x71, 0xe5};

// Where the device of caches in place cannot reach them. With WINNOW_KV a cache that stays in place is left to
// llama.cpp's CPU backend then, since Plugin::supports claims nothing.
void expect_caches_within_reach(const Plugin& plugin) {
    if (has_kv_config()) return;
    if (!plugin.refusal_in_place().empty()) throw std::runtime_error(plugin.refusal_in_place());
    if (plugin.does_copy())
        log_line(GGML_LOG_LEVEL_WARN,
                 "%s, which WINNOW_DEVICE names, does not reach the host's memory: the whole cache is copied at every "
                 "call; with WINNOW_KV it lies in the memory of the device",
                 plugin.device().name);
}

} // namespace

ggml_backend_t make_backend(Registration& registration) {
    try {
        expect_caches_within_reach(registration.plugin);
        auto instance = std::make_unique<Instance>(registration);
        note_run("used", "");
        auto backend = std::make_unique<ggml_backend>();
        backend->guid = &guid;
        backend->iface = backend_interface;
        backend->device = &registration.device;
        backend->context = instance.release();
        return backend.release();
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "no context: %s", error.what());
        return nullptr;
    }
}

void set_n_threads(ggml_backend_t backend, int threads) { of(backend).context.set_threads(threads); }

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
    of(backend).abort_callback = callback;
    of(backend).abort_data = data;
}

} // namespace winnow::ggml
