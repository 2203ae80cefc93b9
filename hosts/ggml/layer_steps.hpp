// Steps of a virtual cache: a SET_ROWS is deferred until the attention over the same tensors comes, and both go to the
// Winnow cache as one step, of all streams of the attention where it can be. The tensors' streams are the cache's
// sequences.
#pragma once

#include <optional>
#include <vector>

#include "arrivals.hpp"
#include "cache_handle.hpp"
#include "deferred_rows.hpp"
#include "figure_collector.hpp"
#include "report.hpp"
#include "streams.hpp"
#include "translate.hpp"

namespace winnow::ggml {

// Functions throw std::runtime_error with the reason.
class LayerSteps {
public:
    // All of them have to stay.
    LayerSteps(CacheHandle& cache, Streams& streams, Arrivals& arrivals, FigureCollector& figures);

    // A SET_ROWS into a root.
    void defer(const ggml_tensor* root, const ggml_tensor* node, Counters& counters);
    // An attention that the shape supports, over a cache that is made.
    void attend(const ggml_tensor* node, const SdpaNode& sdpa, Counters& counters);
    // The graph's memory changes after it: what is deferred is appended, or, without its other half, copied.
    void end_graph(Counters& counters);
    // What was enqueued is complete.
    void release() { staging_.clear(); }
    // After a failure.
    void drop_deferred();

private:
    struct Layer {
        std::optional<DeferredRows> k, v;
    };
    // Rows of a layer as a step takes them.
    struct Rows {
        winnow_tensor k, v, cells;
    };
    // An attention over one slice of the node's tensors.
    struct Slice {
        size_t layer;
        int64_t index, stream, tokens;
    };

    bool has_deferred(size_t layer) const { return layers_[layer].k || layers_[layer].v; }
    bool is_whole(size_t layer) const; // keys are deferred, and values where there are any
    // Whether all layers have one mask. What a layer computes is its own.
    bool is_mask_common() const { return !shape_.has_computed_masks(); }
    void expect_present(const ggml_tensor* mask, const Slice& slice);
    bool is_aligned(size_t layer, int64_t first_stream, int64_t slices, int64_t tokens) const;
    Rows rows_of(size_t layer, int64_t first, int64_t count);
    void append_all(size_t layer, Counters& counters);
    std::optional<Rows> prepare(const ggml_tensor* mask, const Slice& slice);
    void attend_slice(const winnow_sdpa_desc& sdpa, const Slice& slice, const std::optional<Rows>& rows);
    bool can_step_together(const std::vector<Slice>& slices) const;
    void attend_together(const winnow_sdpa_desc& sdpa, const std::vector<Slice>& slices, // prepared
                         const std::vector<std::optional<Rows>>& rows_of_slices);
    void take_mask(const ggml_tensor* mask, const Slice& slice, const Rows& rows, bool begins);
    // Runs a step, all at once or as tokens are decoded; what it reads has to stay.
    void run_as_decoded(const winnow_cache_step_desc& step, const winnow_cache_entry& entry, const Slice& slice);
    void run_attention(const winnow_cache_step_desc& step, winnow_cache_entry entry);
    void run(winnow_cache_step_desc step, winnow_cache_entry entry);
    void end_rows(size_t layer, Counters& counters);

    CacheHandle& cache_;
    const CacheShape& shape_;
    Streams& streams_;
    Arrivals& arrivals_;
    FigureCollector& figures_;
    std::vector<Layer> layers_;
    std::vector<std::vector<char>> staging_; // what running steps read
};

} // namespace winnow::ggml
