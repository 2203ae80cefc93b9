// A cache with what a host knows of it: what each call has to leave, whether it succeeds or fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend.hpp"
#include "input.hpp"
#include "saved_state.hpp"

namespace winnow::fuzz {

struct CacheSetup {
    std::string config;
    int64_t budget = 0; // tokens of a head; 0: none is evicted
    int64_t layers = 1, heads = 1, kv_heads = 1, size = 16, context = 96, sequences = 1, cells = 0;
};

CacheSetup draw_setup(Input& input);

// Everything that can be seen without attending.
struct Portrait {
    winnow_cache_stats stats{};
    std::vector<std::vector<int64_t>> positions; // of each head of each layer of each sequence
    std::vector<std::vector<float>> importance;
    friend bool operator==(const Portrait& a, const Portrait& b);
};

class CacheUnderTest {
public:
    CacheUnderTest(winnow_context* context, const CacheSetup& setup);
    ~CacheUnderTest();
    CacheUnderTest(const CacheUnderTest&) = delete;
    CacheUnderTest& operator=(const CacheUnderTest&) = delete;

    // Budgets, sums and order.
    void check();
    Portrait portrait() const;

    void step(Input& input, int64_t tokens, winnow_event** event);
    void truncate(Input& input);
    void remove(Input& input);
    void shift(Input& input);
    void copy(Input& input);
    void anchor(Input& input);
    void set_importance(Input& input);
    void reserve(Input& input);
    void set_config(Input& input);
    void rows(Input& input); // read, write, export or import
    void reset_or_press(Input& input);
    std::string save(int64_t sequence = all_sequences);
    void load(const std::string& saved, const CacheUnderTest& from);
    // Loads what may be anything; whether it was taken. An original has to be.
    bool take(const std::string& saved, bool is_original, int64_t sequence);

private:
    // Runs a call: where it fails, nothing that can be seen has changed.
    template <class Call>
    int32_t run(Call call);
    void exported_rows(Input& input, winnow_cache_rows_desc desc, const winnow_tensor& k, const winnow_tensor& v);
    int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
    int64_t some_sequence(Input& input) const { return input.within(0, setup_.sequences - 1); }
    int64_t some_position(Input& input, int64_t sequence) const;
    static int64_t some_end(Input& input, int64_t begin);
    // The budget holds, unless it is the whole context and tokens were shifted: docs/cache.md, "Memory".
    int64_t most_live() const;

    winnow_context* context_;
    CacheSetup setup_;
    winnow_cache* cache_ = nullptr;
    std::vector<int64_t> lengths_; // positions of each sequence, or more
    Portrait last_;
    bool is_forged_ = false; // holds what a changed file said
};

} // namespace winnow::fuzz
