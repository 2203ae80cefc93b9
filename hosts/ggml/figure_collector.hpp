// The figures of a virtual cache, collected over its life: the backend's counts end with each reset.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention_profile.hpp"
#include "cache_handle.hpp"
#include "kv_figures.hpp"
#include "row_recorder.hpp"

namespace winnow::ggml {

constexpr int64_t least_taken_back = 32; // tokens; fewer are drafts that were refused

// Functions throw std::runtime_error with the reason.
class FigureCollector {
public:
    // The cache has to stay.
    explicit FigureCollector(const CacheHandle& cache) : cache_(cache) {}
    // Once the cache is made. has_windows: its layers have sliding windows.
    void make(bool has_windows);

    void note_restored(uint64_t tokens) { figures_.restored += tokens; }
    // Tokens that a layer has taken one at a time.
    void note_decoded(int64_t layer, int64_t tokens) {
        if (layer == 0) figures_.decoded += static_cast<uint64_t>(tokens);
    }
    // A prompt goes on with these cells from a prefix, behind which another end was cut off: what the prefix's tokens
    // were evicted for may be gone. Counts what of it is still resident.
    void note_reuse(int64_t stream, std::span<const int32_t> cells, const MaskSlice& mask);
    // Where WINNOW_REPORT_WITH asks for a profile, else NULL.
    AttentionProfile* profile() { return profile_ ? &*profile_ : nullptr; }
    bool records_rows() const { return rows_.has_value(); }
    // Where WINNOW_REPORT_ROWS names a file: an attention that is about to run.
    void record_rows(const winnow_cache_step_desc& step) {
        if (rows_) rows_->add(cache_.shape().layer_names()[static_cast<size_t>(step.layer)], step);
    }
    // Before some of so many tokens are removed: the cache may never be as full again. What it holds then is asked for
    // only where that is a sixteenth more than ever before, because all of its slot maps are read for it.
    void note_removal(int64_t removed, int64_t tokens);
    // Before the cache is reset.
    void end_sequences();

    // The figures of all that was, with what the cache held when it was fullest.
    CacheFigures now(uint64_t tokens_seen) const;

private:
    CacheFigures with_present(CacheFigures figures) const;
    void keep_fullest(CacheFigures& figures, const winnow_cache_stats& now) const;
    std::vector<LayerFigures> layers_now(const std::vector<winnow_cache_stats>& streams) const;

    const CacheHandle& cache_;
    CacheFigures figures_;
    int64_t most_tokens_ = 0; // of which it was asked
    std::optional<AttentionProfile> profile_;
    std::optional<RowRecorder> rows_;
};

} // namespace winnow::ggml
