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

// The sum over contexts.
struct Totals {
    Counters counters;
    winnow_stats stats{};
    std::vector<DeviceCounts> devices; // that launched something

    void add(const Counters& other, const ContextFigures& context);
};

// What a backend instance or a buffer of virtual caches did until now.
struct LivingFigures {
    Counters counters;
    ContextFigures context;
    std::vector<CacheFigures> caches;
};

// What all instances and buffers did, for the whole process: those that ended, and with WINNOW_REPORT_EVERY also those
// in use, as they were last seen.
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
    // The next instance's or buffer's number, in the order in which they are made.
    int64_t next_owner();
    // Whether there is a file to write, and WINNOW_REPORT_EVERY seconds have gone by since the owner's figures were
    // set.
    bool is_due(int64_t owner);
    // Sets what an instance or a buffer did until now. write_living() writes it.
    void set_living(int64_t owner, LivingFigures figures);
    void write_living();
    // To be called before what the owner did is added, so that nothing is counted twice.
    void end_living(int64_t owner);
    // One that was to be virtual and is not.
    void add(const InPlaceCache& cache);

    // Forgets all that was added so far, so that what comes is counted from nothing. What lives stays.
    void reset();

    std::string json();

private:
    void write() const;
    void tell() const; // the same, and to `winnow run`
    std::string json_locked() const;

    const winnow_api& api_;
    const winnow_device_info& device_;
    std::mutex mutex_;
    Totals ended_;
    std::vector<CacheFigures> caches_;
    struct Living {
        LivingFigures figures;
        std::chrono::steady_clock::time_point seen;
    };
    int64_t owners_ = 0;                    // so far
    std::map<int64_t, Living> living_;      // by the numbers of their owners
    std::chrono::duration<double> every_{}; // 0: only when a context ends
    std::vector<InPlaceCache> in_place_;
};

} // namespace winnow::ggml
