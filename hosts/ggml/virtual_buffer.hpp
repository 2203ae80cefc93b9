// A buffer whose cache tensors are virtual: their memory is reserved and never touched, and Winnow caches hold what
// llama.cpp believes to be in it. Whatever else lies in the buffer is ordinary memory.
//
// llama.cpp has its graphs planned before it stores the first token. A buffer whose tensors a graph uses in another way
// than a Winnow cache can carry out becomes ordinary memory then, all of it, says so, and stays that.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ggml-backend-impl.h"
#include "kv_config.hpp"
#include "plugin.hpp"
#include "report.hpp"
#include "virtual_cache.hpp"

namespace winnow::ggml {

class AttentionMasks;

// Functions throw std::runtime_error with the reason.
class VirtualBuffer {
public:
    VirtualBuffer(const winnow_library& library, Report& report, KvConfig config, size_t size);
    ~VirtualBuffer();
    VirtualBuffer(const VirtualBuffer&) = delete;
    VirtualBuffer& operator=(const VirtualBuffer&) = delete;

    // Whether there is one in the process.
    static bool are_any() { return count_.load(std::memory_order_relaxed) != 0; }

    void* base() const { return base_; }

    // Takes a tensor that was placed here. Where one of them is no cache's, the buffer has memory.
    void add(ggml_tensor* tensor);
    // Whether a tensor is virtual here.
    bool has_root(const ggml_tensor* tensor) const { return !in_place_ && roots_.count(tensor) != 0; }

    // Whether the caches compute a node; asked for each node of a graph before the graph runs. If not, the buffer is in
    // place from now on. Once tokens were stored that is too late: every node is claimed then, and one that the caches
    // cannot compute fails.
    bool claims(const ggml_tensor* node);
    // Whether a node was claimed. Asked once each node of the graph has its backend, for all that touch virtual tensors
    // of this buffer: none of them may be another backend's.
    bool has_claimed(const ggml_tensor* node);
    bool is_planned() const { return !claimed_.empty(); }
    // The same for the attentions of the graph: which caches are those of layers with windows, and whether each has a
    // configuration.
    void take_masks(const AttentionMasks& masks);
    // The graph of which this is a part is planned: with what was refused of its nodes, it is refused.
    void end_plan(const ggml_cgraph* part);
    // Before a node of a part is computed; throws where the graph was refused.
    void begin_use(const ggml_cgraph* part);

    // The cache of a root.
    VirtualCache& cache(const ggml_tensor* root);
    void end_graph(Counters& counters);
    void finish();
    void drop_deferred();
    // Every attention fails from now on, for this reason, until all is cleared.
    void poison(const std::string& reason);

    void clear(uint8_t value);
    // ggml's memset_tensor, set_tensor and get_tensor.
    void fill(const ggml_tensor* tensor, uint8_t value, size_t offset, size_t size);
    void write(const ggml_tensor* tensor, const void* data, size_t offset, size_t size);
    void read(const ggml_tensor* tensor, void* data, size_t offset, size_t size);

    Context& context();

    // What all caches hold that there are now: a JSON array of the report's objects.
    static std::string living_caches();
    // Sets in the report what its context did and what its caches hold now, if that is due; returns whether it was.
    // Does not throw.
    bool note_living();

private:
    std::vector<CacheFigures> figures() const;
    void open();
    void close(const ggml_tensor* root);
    void fill_memory();
    void group();
    const std::shared_ptr<VirtualCache>& find_cache(const ggml_tensor* root);
    void check_supported(const ggml_tensor* node);
    void refuse(const ggml_tensor* node, const std::string& reason);
    void stay_in_place(const ggml_tensor* node, const std::string& reason);
    void mark_in_place(InPlaceCache cache);
    struct Source {
        VirtualBuffer* buffer;
        const ggml_tensor* root;
        size_t offset;
    };
    static std::optional<Source> source_of(const void* data);
    bool copies_stream(const ggml_tensor* root, const void* data, size_t at, size_t size);
    void copy_stream(const ggml_tensor* root, int64_t from, int64_t to);

    inline static std::atomic<int64_t> count_{0};

    const winnow_library& library_;
    Report& report_;
    KvConfig config_;
    char* base_;
    size_t size_;
    int64_t number_; // in the report
    std::set<const ggml_tensor*> roots_;
    std::optional<Context> context_;
    std::vector<std::shared_ptr<VirtualCache>> caches_;
    std::string poisoned_;
    std::optional<InPlaceCache> in_place_;
    bool is_used_ = false;                 // tokens were stored
    std::set<const ggml_tensor*> claimed_; // nodes of the graph that is being planned
    // Of its attentions, while each still has its own mask, which the scheduler may replace by a copy.
    std::map<const ggml_tensor*, std::string> computed_masks_;
    // Why a node of it, or one that was asked about without a graph, cannot be computed; and why a graph cannot, as
    // graph_of() tells it.
    std::map<const ggml_tensor*, std::string> refused_nodes_;
    std::map<const void*, std::string> refused_graphs_;
    bool is_open_ = false; // has memory, apart from its cache tensors
    uint8_t fill_ = 0;     // what clear() wrote last
    // llama.cpp copies a stream tensor by tensor; the first of them copies all of it.
    struct Copied {
        int64_t from = 0, to = 0;
        std::set<const ggml_tensor*> roots;
    } copied_;
};

// The buffer in which a tensor, or what it is a view of, is virtual; NULL where it is not.
VirtualBuffer* virtual_buffer_of(const ggml_tensor* tensor);
// The buffer whose virtual tensors a node reads or writes; NULL where it touches none.
VirtualBuffer* virtual_buffer_touched(const ggml_tensor* node);
// Reviews what the buffers claimed, once each node of the graph of which this is a part has its backend.
void review_plan(const ggml_cgraph* part);
// What is said of a node that no Winnow cache can carry out.
std::string misuse(const ggml_tensor* node);

ggml_backend_buffer_t make_virtual_buffer(ggml_backend_buffer_type_t type, size_t size, const KvConfig& config);

} // namespace winnow::ggml
