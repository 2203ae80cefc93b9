// What the benchmarks share: options, a backend opened through the C ABI, memory, and taking turns between the things
// that are compared, so that all of them meet the same state of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "open_backend.hpp"
#include "types.hpp"

namespace winnow::bench {

struct Formats {
    uint32_t k = WINNOW_TYPE_F16, v = WINNOW_TYPE_F16;
};

struct Options {
    std::string backend;  // a name or path, as winnow_library_open takes it
    std::string device;   // winnow_context_desc.device
    std::string variants; // winnow_context_desc.variants
    std::string filter;   // of the benchmarks' names
    std::vector<Formats> formats{{}};
    std::vector<int64_t> groups{1, 4, 8};
    std::vector<int64_t> head_sizes{64, 128};
    std::vector<int64_t> key_counts{512, 2048, 8192, 32768};
    int64_t kv_heads = 8;
    int64_t layers = 32;         // of a model, where their memory matters
    int64_t layer_memory = 1024; // MiB of all layers of a cache at most
    double seconds = 1.0;        // for each row of a table
    uint32_t threads = 2;        // of ggml
    bool host_threads = false;   // the backend computes on the same threads; these options have to outlive it
};

// PoCL's devices that compute in the calling thread, for contexts on the host's threads: before OpenCL is first used.
void offer_host_threads(uint32_t threads);
bool can_lend_threads(); // whether this program can have such
// Runs task(i) for each i below `threads` in a thread of its own, those that are lent; throws what was thrown first.
void on_threads(uint32_t threads, const std::function<void(uint32_t)>& task);

// A context of a backend. Throws std::runtime_error with the backend's message, here and below.
class Backend {
public:
    explicit Backend(const Options& options);
    Backend(const Backend&) = delete; // its log has its address
    Backend& operator=(const Backend&) = delete;

    const winnow_device_info& info() const { return info_; }
    const char* version() const { return api().backend_version; }
    // What it has logged so far, but for debugging; warnings went to stderr, too.
    std::vector<std::string> messages() const;
    std::string variant(const winnow_sdpa_desc& desc);
    void run(const winnow_sdpa_desc& desc);      // and waits
    void run(const winnow_kv_append_desc& desc); // and waits
    void run(const winnow_kv_requantize_desc& desc);
    void run(const winnow_kv_dequantize_desc& desc);
    void run(const winnow_hadamard_desc& desc);
    bool can(const winnow_kv_dequantize_desc& desc);
    void enqueue(const winnow_kv_dequantize_desc& desc);
    uint64_t row_bytes(uint32_t type, int64_t elements);
    // Hands over the cl_event of an operation; does nothing where the backend computes without OpenCL.
    void look_at_event(const std::function<void(void*)>& look) const;

    winnow_cache* make_cache(const winnow_cache_desc& desc);
    winnow_cache_stats estimate(const winnow_cache_desc& desc, int64_t tokens); // of one sequence
    void destroy(winnow_cache* cache);
    void run(winnow_cache* cache, const winnow_cache_step_desc& desc); // and waits
    void enqueue(winnow_cache* cache, const winnow_cache_step_desc& desc);
    void finish();
    uint64_t launches();
    void copy(winnow_cache* cache, int64_t from, int64_t to); // of sequences; these four wait, too
    void truncate(winnow_cache* cache, int64_t sequence, int64_t length);
    void remove(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end);
    void shift(winnow_cache* cache, int64_t sequence, int64_t delta); // all positions
    winnow_cache_stats stats(winnow_cache* cache);

private:
    friend class Memory;
    void check(int32_t status);

    static void WINNOW_CALL log(void* backend, int32_t level, const char* text);

    const winnow_api& api() const { return opened_.api(); }
    const winnow_cache_api& caches() const { return opened_.caches(); }
    winnow_context* context() const { return context_.get(); }

    tools::OpenBackend opened_;
    winnow_device_info info_{};
    mutable std::mutex messages_mutex_; // a backend logs from any thread
    std::vector<std::string> messages_;
    tools::OwnedContext context_; // the last: it logs
};

// Host memory on pages of its own, filled with small random numbers of a type, and imported as a buffer. Packed rows
// are appended by the backend, so that they are what the format makes of random numbers.
class Memory {
public:
    Memory(Backend& backend, uint32_t type, int64_t elements); // dense
    Memory(Backend& backend, uint32_t type, int64_t rows, int64_t elements_of_a_row);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint32_t type() const { return type_; }
    void* data() const { return data_; }
    uint64_t size() const { return size_; }
    // Dense view of the beginning.
    winnow_tensor tensor(int64_t a, int64_t b, int64_t c, int64_t d) const;

private:
    void fill_packed(int64_t rows, int64_t elements_of_a_row);
    void import();

    Backend& backend_;
    uint32_t type_;
    uint64_t size_;
    void* data_;
    winnow_buffer* buffer_ = nullptr;
};

// Runs all in turn, again and again for `seconds`, and gives the shortest time of each, in seconds.
std::vector<double> take_turns(const std::vector<std::function<void()>>& all, double seconds);

// What is compared to within a percent takes short turns in rounds, in this order and in the reverse by turns. Gives
// for each round the seconds of each, the shortest of a few runs that follow each other. Ratios within a round are of
// neighbours in time, whom most of what else the machine does slows alike.
struct Turn {
    std::function<void()> run;
    bool is_once = false; // it times itself
};
std::vector<std::vector<double>> take_rounds(const std::vector<Turn>& all, double seconds);

// The quartiles of many measurements: what is typical, and how far half of them are from it.
struct Quartiles {
    double low = 0, middle = 0, high = 0;
};
Quartiles quartiles(std::vector<double> values);
std::string with_spread(const Quartiles& values, int digits); // "1.23 (0.04)": the middle and half of high - low

// Today, as 2026-11-29.
std::string today();

// One line to stdout, columns of a width after a first one of 38.
void print_row(const std::vector<std::string>& cells, int width = 12);
std::string fixed(double value, int digits);

// The benchmarks. Each prints a table and returns its rows.
nlohmann::json bench_sdpa_vector(const Options& options, Backend& backend);
nlohmann::json bench_sparse_v(const Options& options, Backend& backend);
nlohmann::json bench_sdpa_prefill(const Options& options, Backend& backend);
nlohmann::json bench_kv_append(const Options& options, Backend& backend);
nlohmann::json bench_slots(const Options& options, Backend& backend);
nlohmann::json bench_cache(const Options& options, Backend& backend);
nlohmann::json bench_steps(const Options& options, Backend& backend);
nlohmann::json bench_sequences(const Options& options, Backend& backend);
nlohmann::json bench_step_cost(const Options& options, Backend& backend);
nlohmann::json bench_recall(const Options& options, Backend& backend);
nlohmann::json bench_growth(const Options& options, Backend& backend);

} // namespace winnow::bench
