// A buffer whose cache tensors are virtual: their memory is reserved and never touched, and Winnow caches hold what
// llama.cpp believes to be in it. Whatever else lies in the buffer is ordinary memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ggml-backend-impl.h"
#include "plugin.hpp"
#include "report.hpp"
#include "virtual_cache.hpp"

namespace winnow::ggml {

// Functions throw std::runtime_error with the reason.
class VirtualBuffer {
public:
    VirtualBuffer(const winnow_api& api, Report& report, std::string config, size_t size);
    ~VirtualBuffer();
    VirtualBuffer(const VirtualBuffer&) = delete;
    VirtualBuffer& operator=(const VirtualBuffer&) = delete;

    void* base() const { return base_; }

    // Takes a tensor that was placed here, if it is a cache's.
    void add(ggml_tensor* tensor);
    bool has_root(const ggml_tensor* tensor) const { return roots_.count(tensor) != 0; }

    // The cache of a root.
    VirtualCache& cache(const ggml_tensor* root);
    void end_graph(Counters& counters);
    void finish();
    void forget_waiting();
    // Every attention fails from now on, for this reason, until all is cleared.
    void spoil(const std::string& reason);

    void clear(uint8_t value);
    // ggml's memset_tensor, set_tensor and get_tensor.
    void fill(const ggml_tensor* tensor, uint8_t value, size_t offset, size_t size);
    void write(const ggml_tensor* tensor, const void* data, size_t offset, size_t size);
    void read(const ggml_tensor* tensor, void* data, size_t offset, size_t size);

    Context& context();

    // What all caches hold that there are now: a JSON array of the report's objects.
    static std::string living_caches();

private:
    void group();
    std::set<int64_t> layers() const;
    bool has_windows() const;
    struct Source {
        VirtualBuffer* buffer;
        const ggml_tensor* root;
        size_t offset;
    };
    static std::optional<Source> source_of(const void* data);
    bool copies_stream(const ggml_tensor* root, const void* data, size_t at, size_t size);
    void copy_stream(const ggml_tensor* root, int64_t from, int64_t to);

    const winnow_api& api_;
    Report& report_;
    std::string config_;
    char* base_;
    size_t size_;
    int64_t number_; // in the order in which buffers were made
    std::set<const ggml_tensor*> roots_;
    std::optional<Context> context_;
    std::vector<std::unique_ptr<VirtualCache>> caches_;
    std::string spoiled_;
    // A copy of a stream comes tensor by tensor, and is done with the first of them.
    struct Copied {
        int64_t from = 0, to = 0;
        std::set<const ggml_tensor*> roots;
    } copied_;
};

// The buffer in which a tensor, or what it is a view of, is virtual; NULL where it is not.
VirtualBuffer* virtual_buffer_of(const ggml_tensor* tensor);
// The same of a node that may read or write virtual tensors.
VirtualBuffer* virtual_buffer_touched(const ggml_tensor* node);

ggml_backend_buffer_t make_virtual_buffer(ggml_backend_buffer_type_t type, size_t size, const std::string& config);

} // namespace winnow::ggml
