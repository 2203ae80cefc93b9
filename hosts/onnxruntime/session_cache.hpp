// The cache of a session: a layer for each claimed node, a sequence for each row of a batch. It knows which tokens it
// holds, and a Run has to fit them.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "capability.hpp"

namespace winnow::ort {

// What a Run brings for a row of its batch.
struct RowSpan {
    int64_t past = 0;  // tokens before it: the position of its first one
    int64_t count = 0; // new tokens, at least one
    bool operator==(const RowSpan&) const = default;
};

class SessionCache {
public:
    SessionCache(const Backend& backend, const Options& options, const Log& log)
        : backend_(backend), options_(options), log_(log) {}
    ~SessionCache();
    SessionCache(const SessionCache&) = delete;
    SessionCache& operator=(const SessionCache&) = delete;

    // Takes further layers, before the first Run. Throws where the configuration does not suit them.
    void add_layers(const std::vector<AttentionNode>& nodes);

    // A Run of the session. begin_run throws while another Run is going on. reset: the Run begins anew, also with a
    // single token. pressure: the memory pressure from now on; none: as before.
    void begin_run(bool reset, std::optional<double> pressure);
    void end_run() noexcept;

    // Appends the tokens of a layer and lets them attend. `all_tokens`: the rows have one length in the tensors, of
    // which each uses the first `count`. Throws where they do not follow what the cache holds.
    void step(int64_t layer, int64_t all_tokens, const std::vector<RowSpan>& rows, winnow_cache_step_desc& desc);

    int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
    int64_t most_tokens() const { return most_tokens_; }
    const std::string& config() const { return config_; } // canonical, once there are layers
    int64_t runs() const { return runs_; }
    int64_t rewinds() const { return rewinds_; } // rows that went back to an earlier position
    // Whether the host has bound memory for present, as far as this Run has shown. Nodes may run side by side.
    std::atomic<bool> is_present_bound = false;
    // Warns once: rows of a first prompt are equal.
    void tell_equal_rows();
    winnow_cache_stats stats() const; // of the whole cache; empty without layers

private:
    void make();
    void destroy() noexcept;
    void place(int64_t all_tokens, const std::vector<RowSpan>& rows);
    void check_row(int64_t row, int64_t all_tokens, const RowSpan& span) const;
    void take_back(int64_t sequence, int64_t length);
    void forget(int64_t sequence);
    int64_t shortest(int64_t sequence) const;
    int64_t longest(int64_t sequence) const;

    const Backend& backend_;
    const Options& options_;
    const Log& log_;
    winnow_cache* cache_ = nullptr;
    std::vector<winnow_layer_shape> layers_;
    int64_t most_tokens_ = 0;
    bool has_past_ = false, has_key_bias_ = false; // in any node
    std::string config_;
    std::vector<std::vector<int64_t>> lengths_; // tokens so far, by sequence and layer
    int64_t batch_ = 0;                         // rows of the last Run that was placed

    std::atomic<bool> is_running_ = false;
    bool is_reset_ = false;
    std::vector<RowSpan> placed_; // rows of this Run, from its first step on
    std::mutex mutex_;            // nodes of one Run may be computed side by side
    int64_t runs_ = 0, rewinds_ = 0;
    bool has_told_equal_rows_ = false;
};

} // namespace winnow::ort
