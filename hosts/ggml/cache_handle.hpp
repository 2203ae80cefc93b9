// The Winnow cache behind a virtual cache: made once the heads are known, and what is asked of it in several places.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache_meaning.hpp"
#include "cache_shape.hpp"
#include "cell_tracker.hpp"
#include "kv_rules.hpp"
#include "plugin.hpp"

namespace winnow::ggml {

// A call that failed in the middle: what is stored may be incomplete (WINNOW_ERROR_DEVICE).
class IncompleteError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Functions throw std::runtime_error with the reason.
class CacheHandle {
public:
    // The shape has to stay.
    CacheHandle(Context& context, const CacheShape& shape) : context_(context), shape_(shape) {}
    ~CacheHandle();
    CacheHandle(const CacheHandle&) = delete;
    CacheHandle& operator=(const CacheHandle&) = delete;

    // Throws where no rule fits, or only one that may lose what a computed mask shows, once the heads are known.
    void check_rules(const std::vector<KvRule>& rules, const std::string& computed_mask) const;
    void make(const std::vector<KvRule>& rules);
    void destroy(); // as before make
    // All tokens are gone; configuration and pressure are as they were.
    void reset();
    bool is_made() const { return cache_ != nullptr; }
    winnow_cache* get() const { return cache_; }
    Context& context() const { return context_; }
    const winnow_cache_api& caches() const { return context_.caches(); }
    const CacheShape& shape() const { return shape_; }
    const std::string& asked() const { return config_; }     // as it was given, once the cache is made
    const CacheMeaning& meaning() const { return meaning_; } // once the cache is made
    void expect(int32_t status) const;                       // throws unless it is WINNOW_OK

    // The cells of a stream whose tokens a head holds, ascending.
    std::vector<int32_t> cells_of(int64_t stream, int64_t layer, int64_t head) const;
    // How many tokens a head holds, and how many its layer has had.
    winnow_cache_tokens counts_of(int64_t stream, int64_t layer, int64_t head) const;
    winnow_cache_stats stats_of(int64_t stream) const; // -1: of all streams
    // Forgets the dead, and anchors the first tokens of sequences.
    void apply(const CellTracker::Opening& opening, int64_t stream);

private:
    void tell_pressure();

    Context& context_;
    const CacheShape& shape_;
    std::string config_;
    CacheMeaning meaning_;
    double pressure_ = 0;
    winnow_cache* cache_ = nullptr;
};

} // namespace winnow::ggml
