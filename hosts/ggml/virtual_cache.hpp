// A Winnow cache in the place of llama.cpp's cache tensors of one shape: what ggml asks of the tensors goes to the part
// that does it, once the states that llama.cpp has written before are tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrivals.hpp"
#include "cache_handle.hpp"
#include "deferred_rows.hpp"
#include "figure_collector.hpp"
#include "kv_config.hpp"
#include "layer_steps.hpp"
#include "pending_states.hpp"
#include "state_rows.hpp"
#include "streams.hpp"

namespace winnow::ggml {

// Functions throw std::runtime_error with the reason.
class VirtualCache {
public:
    // The configuration has to stay.
    VirtualCache(Context& context, const KvConfig& config, std::vector<LayerRoots> layers);
    // Before the first attention: tokens leave the windows of these layers. base: the cache of the other layers, NULL
    // where it is not virtual.
    void note_windows(const std::shared_ptr<VirtualCache>& base);

    bool has(const ggml_tensor* root) const { return shape_.has(root); }

    // Whether the cache could carry out an attention, before it is computed; throws where not. The first tells the
    // heads of all.
    void check_supported(const ggml_tensor* node, const SdpaNode& sdpa) { shape_.check_supported(node, sdpa.desc()); }
    // Throws where no rule fits, or only one that may lose what a computed mask shows (CacheShape::computed_mask), once
    // the heads are known, and whether there are windows.
    void check_rules(const std::string& computed_mask);

    void set_rows(const ggml_tensor* root, const ggml_tensor* node, Counters& counters);
    void attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters);
    // The graph's memory changes after it.
    void end_graph(Counters& counters) { steps_.end_graph(counters); }
    // What was enqueued is complete.
    void release() { steps_.release(); }
    // After a failure.
    void drop_deferred() { steps_.drop_deferred(); }

    // Bytes of a root as llama.cpp believes them to lie there: the row of a head that has no token in a cell is NaN.
    void read(const ggml_tensor* root, char* data, size_t offset, size_t size);
    // Rows of a state, which become tokens before the cache is used again. Where a head's row begins with NaN, it does
    // not get the token. Where the state is refused then, attentions that need one of its cells fail.
    void write(const ggml_tensor* root, const char* data, size_t offset, size_t size);
    // Rows that are filled with zeros at once: tokens and states in their cells are gone.
    void wipe(const ggml_tensor* root, size_t offset, size_t size);
    // A ROPE in place over the keys, by which a context shifts.
    void shift(const ggml_tensor* node);

    void clear();
    void copy_stream(int64_t from, int64_t to);

    // Nothing where no attention came.
    std::optional<CacheFigures> figures();

private:
    const std::vector<KvRule>& rules() const { return has_windows_ ? config_.windows : config_.all; }
    void make();
    void check_keys();
    void restore_pending();
    void restore(const PendingStates::State& state);
    void set_aside(PendingStates::State state);
    void drop_overwritten(const DeferredRows& rows);
    void restore_seen(const ggml_tensor* node);
    void remove_what_base_lacks(int64_t stream);
    void lose(const PendingStates::State& state, const std::string& reason);
    void remove(int64_t stream, const CellRange& cells);
    template <typename Action>
    void with_sticky_error(Action&& action);
    template <typename Action>
    void failing_if_incomplete(Action&& action);

    const KvConfig& config_;
    CacheShape shape_;
    CacheHandle cache_;
    Streams streams_;
    Arrivals arrivals_;
    FigureCollector figures_;
    LayerSteps steps_;
    PendingStates states_;
    StateReader reader_;
    bool has_windows_ = false;
    bool has_biased_keys_ = false, are_keys_checked_ = false; // of the rows before the first attention
    std::weak_ptr<VirtualCache> base_;
    std::string failed_; // why what is stored is unknown, until it is cleared
};

} // namespace winnow::ggml
