// What this backend did in this process: the proof that a host really computed its attention here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kv_figures.hpp"
#include "plugin.hpp"
#include "winnow.h"

struct ggml_tensor;

namespace winnow::ggml {

// Counts of one cache tensor, by its name in the host ("cache_k_l7").
struct LayerCounts {
    const char* type = "";        // ggml's name for the type of its elements
    uint64_t attention_calls = 0; // FLASH_ATTN_EXT whose keys lie in this tensor
    uint64_t append_calls = 0;    // launches that stored rows into this tensor
};

// Counts of one backend instance. Not synchronised.
class Counters {
public:
    void count_graph() { ++graphs_; }
    void count_attention(const ggml_tensor* node);
    // The same of one that no virtual cache has.
    void count_attention_in_place(const ggml_tensor* node);
    // Once for a launch, even where it carries two nodes; `second` may be NULL.
    void count_append(const ggml_tensor* first, const ggml_tensor* second);

    uint64_t graphs() const { return graphs_; }
    uint64_t attention_calls() const { return attention_calls_; }
    // Of those, the ones over llama.cpp's caches in place; an encoder's attention is over no cache.
    uint64_t in_place_calls() const { return in_place_calls_; }
    uint64_t append_calls() const { return append_calls_; }
    const std::map<std::string, LayerCounts, std::less<>>& layers() const { return layers_; }

    void add(const Counters& other);

private:
    LayerCounts& layer(const ggml_tensor* view);

    uint64_t graphs_ = 0;
    uint64_t attention_calls_ = 0;
    uint64_t in_place_calls_ = 0;
    uint64_t append_calls_ = 0;
    std::map<std::string, LayerCounts, std::less<>> layers_;
};

// What was done on one device, by all contexts that it had.
struct DeviceCounts {
    std::string name;
    uint64_t kernel_launches = 0;
    uint64_t host_copies = 0;
    uint64_t waits = 0;
};

// The sum over all instances that have ended, for the whole process.
class Report {
public:
    // Throws where WINNOW_REPORT_EVERY is no number of seconds.
    Report(const winnow_api& api, const winnow_device_info& device);

    // Adds what an instance did, and writes the report to the file named by the environment variable WINNOW_REPORT, if
    // set.
    void add(const Counters& counters, const ContextFigures& context);
    // A virtual cache at its end.
    void add(const CacheFigures& figures);
    // What the context of virtual caches did.
    void add(const ContextFigures& context);
    // Whether there is a file to write, and WINNOW_REPORT_EVERY seconds have gone by since a buffer's caches were set.
    bool is_due(int64_t buffer);
    // The virtual caches of a buffer that are in use, as they are now; none once they have ended.
    void set_living(int64_t buffer, std::vector<CacheFigures> caches);
    // One that was to be virtual and is not.
    void add(const InPlaceCache& cache);

    // Forgets all that was added so far, so that what comes is counted from nothing. What lives stays.
    void reset();

    std::string json();

private:
    void add_locked(const ContextFigures& context);
    void write() const;
    void tell() const; // the same, and to `winnow run`
    std::string json_locked() const;

    const winnow_api& api_;
    const winnow_device_info& device_;
    std::mutex mutex_;
    Counters counters_;
    winnow_stats stats_{};
    std::vector<DeviceCounts> devices_; // that launched something
    std::vector<CacheFigures> caches_;
    struct Living {
        std::vector<CacheFigures> caches;
        std::chrono::steady_clock::time_point seen;
    };
    std::map<int64_t, Living> living_;      // by the numbers of their buffers
    std::chrono::duration<double> every_{}; // 0: only when a context ends
    std::vector<InPlaceCache> in_place_;
};

} // namespace winnow::ggml
