// The two backends of a run, the one under test and the reference, each behind its C table. What a backend is asked and
// what it answers is counted here, so that a run can say at its end what it really did.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "winnow.h"
#include "winnow_loader.h"

namespace winnow::conformance {

// Which formats of K and V are tested together: each once, each three times, every one with every other.
enum class Pairs { few, sample, all };

struct Options {
    std::string backend;
    std::string reference = "reference";
    std::string device;
    std::string variants;
    uint64_t seed = 1;
    int cases = 200; // random cases per operation
    Pairs pairs = Pairs::sample;
    uint32_t share = 0, shares = 1; // of the cases of caches
    std::string log;                // a file
    bool has_small = false;         // the suites of the smallest shapes are there
};

class Session {
public:
    Session() = default;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() { close(); }

    // Every context writes what it logs into this file, which is made anew; "" for none. To be called before open.
    // Throws std::runtime_error.
    void write_log(const std::string& path);
    // Opens the shared object and a context on the device; throws std::runtime_error with the backend's message.
    void open(const std::string& backend, const std::string& device, const std::string& variants);
    void close();

    const winnow_api& api() const { return *library_.api; }
    const winnow_cache_api& caches() const { return *library_.caches; } // of a backend that offers_cache
    winnow_context* context() const { return context_; }
    const std::string& path() const { return path_; }
    const std::string& device() const { return device_; }
    std::string message() const { return library_.api->context_message(context_); }
    // Another one on the same device, or throws; the caller's to destroy.
    winnow_context* new_context(winnow_launch_callback launched = nullptr, void* launched_user_data = nullptr) const;
    winnow_device_info info() const;
    winnow_stats stats() const;

    struct Answer {
        int32_t status;
        std::string message;
    };
    Answer supports(const winnow_sdpa_desc& desc) const;
    Answer supports(const winnow_kv_append_desc& desc) const;
    Answer supports(const winnow_kv_requantize_desc& desc) const;
    Answer supports(const winnow_kv_dequantize_desc& desc) const;
    Answer supports(const winnow_hadamard_desc& desc) const;
    // Executes on the session's context and counts.
    int32_t run(const winnow_sdpa_desc& desc, winnow_event** event = nullptr);
    int32_t run(const winnow_kv_append_desc& desc, winnow_event** event = nullptr);
    int32_t run(const winnow_kv_requantize_desc& desc, winnow_event** event = nullptr);
    int32_t run(const winnow_kv_dequantize_desc& desc, winnow_event** event = nullptr);
    int32_t run(const winnow_hadamard_desc& desc, winnow_event** event = nullptr);

    // A case that the backend refuses as UNSUPPORTED, under its reason.
    void note_unsupported(const std::string& what, const std::string& reason) {
        ++refusals_;
        ++unsupported_[what + ": " + reason];
    }

    // Whether the backend has packed formats and the operations on rows: asked for the size of a packed row.
    bool offers_formats() const;
    bool offers_cache() const { return library_.caches != nullptr; }
    // A test that asks for what the backend leaves out; counted under the level of the test.
    void note_not_offered(const std::string& what);
    bool has_not_offered(const std::string& level) const;

    uint64_t sdpa_calls() const { return sdpa_calls_; }
    uint64_t kv_append_calls() const { return kv_append_calls_; }
    uint64_t row_calls() const { return row_calls_; } // kv_requantize, kv_dequantize and hadamard
    uint64_t calls() const { return sdpa_calls_ + kv_append_calls_ + row_calls_; }
    void note_cache_step() { ++cache_steps_; } // one that returned WINNOW_OK
    uint64_t cache_steps() const { return cache_steps_; }
    uint64_t refusals() const { return refusals_; } // notes of what is unsupported or not offered
    const std::map<std::string, int>& unsupported() const { return unsupported_; }
    const std::map<std::string, int>& not_offered() const { return not_offered_; }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    std::unique_ptr<std::FILE, Close> log_;
    winnow_library library_{};
    winnow_context* context_ = nullptr;
    std::string path_, device_, variants_;
    uint64_t sdpa_calls_ = 0, kv_append_calls_ = 0, row_calls_ = 0, cache_steps_ = 0, refusals_ = 0;
    std::map<std::string, int> unsupported_, not_offered_;
};

// Set up by main before any test runs.
const Options& options();
// What a sample leaves out, and how many of it; the summary says so.
std::map<std::string, int>& left_out();
Session& subject();   // the backend under test
Session& reference(); // what it is held against

} // namespace winnow::conformance
