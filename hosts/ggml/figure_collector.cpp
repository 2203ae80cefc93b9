// Adding what the backend counts to what it counted before.
#include "figure_collector.hpp"

#include <algorithm>
#include <exception>
#include <tuple>

#include "environment.hpp"
#include "report_with.hpp"

namespace winnow::ggml {

namespace {

// Reading back what every head holds costs time and text, so it is done on demand.
ResidentCells resident_cells(const CacheHandle& cache) {
    const CacheShape& shape = cache.shape();
    ResidentCells streams(static_cast<size_t>(shape.streams()));
    for (size_t stream = 0; stream < streams.size(); ++stream) {
        streams[stream].resize(shape.layers().size());
        for (size_t layer = 0; layer < streams[stream].size(); ++layer) {
            for (int64_t head = 0; head < shape.kv_heads(); ++head)
                streams[stream][layer].push_back(
                    cache.cells_of(static_cast<int64_t>(stream), static_cast<int64_t>(layer), head));
        }
    }
    return streams;
}

} // namespace

void FigureCollector::make(bool has_windows) {
    const CacheShape& shape = cache_.shape();
    figures_.name = shape.name();
    figures_.asked = cache_.asked();
    figures_.config = cache_.meaning().config;
    figures_.policy = cache_.meaning().policy;
    for (const WantedResource& each : cache_.meaning().resources) figures_.profile_file = each.path;
    figures_.device = cache_.context().info().name;
    figures_.has_windows = has_windows;
    figures_.layers = static_cast<int64_t>(shape.layers().size());
    figures_.kv_heads = shape.kv_heads();
    figures_.streams = shape.streams();
    figures_.cells = shape.cells();
    figures_.full_bytes = shape.full_bytes();
    if (reports("profile"))
        profile_.emplace(figures_.layers, shape.q_heads(), figures_.cells, reports("samples") ? shape.kv_heads() : 0);
    if (const std::string path = path_in("WINNOW_REPORT_ROWS"); !path.empty())
        rows_.emplace(path, reports("whole_rows"));
}

void FigureCollector::note_reuse(int64_t stream, std::span<const int32_t> cells, const MaskSlice& mask) {
    std::vector<bool> is_prefix(static_cast<size_t>(figures_.cells), false);
    uint64_t tokens = 0;
    for (int64_t cell = 0; cell < mask.columns() && cell < figures_.cells; ++cell) {
        const bool is_own = std::find(cells.begin(), cells.end(), static_cast<int32_t>(cell)) != cells.end();
        if (is_own || !mask.sees(0, cell)) continue;
        is_prefix[static_cast<size_t>(cell)] = true;
        ++tokens;
    }
    if (tokens == 0) return;
    uint64_t resident = 0;
    for (int64_t layer = 0; layer < figures_.layers; ++layer) {
        for (int64_t head = 0; head < figures_.kv_heads; ++head) {
            for (const int32_t cell : cache_.cells_of(stream, layer, head))
                resident += is_prefix[static_cast<size_t>(cell)];
        }
    }
    figures_.reused += tokens;
    figures_.reused_resident +=
        static_cast<double>(resident) / static_cast<double>(figures_.layers * figures_.kv_heads);
}

void FigureCollector::end_sequences() {
    if (profile_) profile_->end_sequences();
    figures_ = with_present(figures_);
}

// Adds what the cache did since it was made or reset, and keeps what it holds where that is the most so far.
CacheFigures FigureCollector::with_present(CacheFigures figures) const {
    const winnow_cache_stats now = cache_.stats_of(-1);
    figures.evictions += now.evictions;
    figures.shortfall += now.shortfall;
    figures.eviction_passes += now.eviction_passes;
    figures.steps += now.steps;
    figures.picks += now.picks;
    figures.misses += now.misses;
    figures.bytes_read += now.bytes_read;
    figures.wait_ns += now.wait_ns;
    figures.peak_bytes = std::max(figures.peak_bytes, now.peak_bytes);
    figures.scratch_bytes = std::max(figures.scratch_bytes, now.scratch_bytes);
    if (now.resident_slots > 0 && reports("resident")) figures.resident = resident_cells(cache_);
    keep_fullest(figures, now);
    return figures;
}

void FigureCollector::note_removal(int64_t removed, int64_t tokens) {
    if (removed < least_taken_back || tokens <= most_tokens_ + most_tokens_ / 16) return;
    most_tokens_ = tokens;
    try {
        keep_fullest(figures_, cache_.stats_of(-1));
    } catch (const std::exception&) { // a cache that cannot tell is not kept from what follows
    }
}

// Of more tokens a budget may leave as many slots, or fewer.
void FigureCollector::keep_fullest(CacheFigures& figures, const winnow_cache_stats& now) const {
    if (now.resident_slots == 0) return;
    const winnow_cache_stats& before = figures.fullest;
    if (std::tie(now.tokens, now.resident_slots) < std::tie(before.tokens, before.resident_slots)) return;
    figures.fullest = now;
    figures.resident_of_layers.assign(static_cast<size_t>(figures.layers), 0);
    for (int64_t layer = 0; layer < figures.layers; ++layer) {
        for (int64_t stream = 0; stream < figures.streams; ++stream) {
            for (int64_t head = 0; head < figures.kv_heads; ++head)
                figures.resident_of_layers[static_cast<size_t>(layer)] += cache_.counts_of(stream, layer, head).count;
        }
    }
}

// A graph may come in parts, and a report after any of them: layers that have not had the newest tokens yet have fewer
// than the stream, which counts those of its longest layer.
std::vector<LayerFigures> FigureCollector::layers_now(const std::vector<winnow_cache_stats>& streams) const {
    std::vector<LayerFigures> layers;
    for (const std::string& name : cache_.shape().layer_names())
        layers.push_back({name, 0, std::vector<uint64_t>(static_cast<size_t>(figures_.kv_heads), 0)});
    for (size_t stream = 0; stream < streams.size(); ++stream) {
        std::vector<uint64_t> had;
        for (size_t layer = 0; layer < layers.size(); ++layer) {
            winnow_cache_tokens counts{};
            for (size_t head = 0; head < layers[layer].resident.size(); ++head) {
                counts = cache_.counts_of(static_cast<int64_t>(stream), static_cast<int64_t>(layer),
                                          static_cast<int64_t>(head));
                layers[layer].resident[head] += counts.count;
            }
            had.push_back(static_cast<uint64_t>(counts.next_position));
        }
        const uint64_t most = had.empty() ? 0 : *std::max_element(had.begin(), had.end());
        for (size_t layer = 0; layer < layers.size(); ++layer)
            layers[layer].tokens += streams[stream].tokens - std::min(streams[stream].tokens, most - had[layer]);
    }
    return layers;
}

CacheFigures FigureCollector::now(uint64_t tokens_seen) const {
    CacheFigures figures = with_present(figures_);
    figures.tokens_seen = tokens_seen;
    for (int64_t stream = 0; stream < figures.streams; ++stream) figures.of_streams.push_back(cache_.stats_of(stream));
    figures.of_layers = layers_now(figures.of_streams);
    if (profile_) {
        AttentionProfile ended = *profile_;
        ended.end_sequences();
        figures.profile = ended.layers(cache_.shape().layer_names());
    }
    return figures;
}

} // namespace winnow::ggml
