// A cache of a backend, as a host has it: through the C table. What one step hands over, and what it brings back.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cache_setup.hpp"
#include "session.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {

struct StepOptions {
    float scale = 0, softcap = 0;
    int64_t window_left = 0, draft_tokens = 0;
    bool alibi = false, head_sink = false, scores = false, no_wait = false;
    Layout layout = Layout::packed; // of k, v and q
    Memory memory = Memory::host;
};

// The tensors of one step. k and v are absent where nothing is appended, q and out where nothing attends.
struct Step {
    int64_t layer = 0, sequence = 0, tokens = 0, queries = 0;
    StepOptions options;
    TestTensor k, v, q, out, scores, alibi, head_sink, cells, mask, mask_slopes;

    double scale(const CacheSetup& setup) const;
};

// Draws a step; columns: of scores, if they are wanted.
Step draw_step(const CacheSetup& setup, std::mt19937_64& engine, int64_t layer, int64_t sequence, int64_t tokens,
               int64_t queries, const StepOptions& options = {}, int64_t columns = 0);
// Tokens [first, first + count) of a step that appends and attends, as a step of its own.
Step part_of(const CacheSetup& setup, const Step& whole, int64_t first, int64_t count);

class CacheHost {
public:
    // Throws std::runtime_error with the backend's message.
    CacheHost(Session& session, const CacheSetup& setup);
    ~CacheHost();
    CacheHost(const CacheHost&) = delete;
    CacheHost& operator=(const CacheHost&) = delete;

    const CacheSetup& setup() const { return setup_; }
    Session& session() const { return session_; }
    const winnow_api& api() const { return session_.api(); }
    const winnow_cache_api& caches() const { return session_.caches(); }
    winnow_cache* get() const { return cache_; }

    // Runs and waits; the outputs are then there. The status, WINNOW_OK or not.
    int32_t run(Step& step);
    std::vector<int64_t> positions(int64_t sequence, int64_t layer, int64_t head) const;
    std::vector<int32_t> segments(int64_t sequence, int64_t layer, int64_t head) const; // of the same tokens
    std::vector<float> importance(int64_t sequence, int64_t layer, int64_t head) const;
    int64_t next_position(int64_t sequence, int64_t layer) const;
    winnow_cache_stats stats() const; // throws where they are not what the sequences' add up to
    winnow_cache_stats stats_of(int64_t sequence) const;
    std::string message() const { return session_.message(); }
    // Everything that can be seen of the cache without attending, as one text to compare.
    std::string portrait(bool with_importance = true) const;
    // The same without what it counts: what a cache that loaded it has, too.
    std::string contents(bool with_importance = true) const;

private:
    // An array of what cache_tokens tells of a head.
    template <class Value>
    std::vector<Value> all_of_head(Value* winnow_cache_tokens::*array, int64_t sequence, int64_t layer,
                                   int64_t head) const;
    void expect_ok(int32_t status, const char* what) const;
    void expect_sum_of_sequences(const winnow_cache_stats& whole) const;

    Session& session_;
    CacheSetup setup_;
    winnow_cache* cache_ = nullptr;
};

winnow_resource resource_of(const char* name, const void* data, size_t size);
// They have to stay while the description is used.
void give_resources(winnow_cache_desc& desc, const std::vector<winnow_resource>& resources);

// The description of a setup with its resources. `config` and the setup have to stay while it is used.
class SetupDesc {
public:
    SetupDesc(const CacheSetup& setup, const std::string& config);
    SetupDesc(const SetupDesc&) = delete;
    SetupDesc& operator=(const SetupDesc&) = delete;
    const winnow_cache_desc* get() const { return &desc_; }

private:
    winnow_cache_desc desc_{};
    std::vector<winnow_layer_shape> shapes_;
    std::vector<winnow_resource> resources_;
};

} // namespace winnow::conformance
