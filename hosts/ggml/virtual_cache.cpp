// What a virtual cache holds and for how long: layers, streams, figures. virtual_attend.cpp has its steps.
#include "virtual_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>

#include "config_value.hpp"
#include "ggml_api.hpp"
#include "profile_file.hpp"
#include "report_with.hpp"

namespace winnow::ggml {

namespace {

int64_t sinks_of(const std::string& config) {
    const std::string given = value_of(config, "sink");
    return given.empty() ? 4 : std::strtoll(given.c_str(), nullptr, 10); // docs/policies.md
}

} // namespace

VirtualCache::VirtualCache(Context& context, std::string config, const std::vector<LayerRoots>& layers)
    : context_(context), config_(std::move(config)) {
    const ggml_tensor* first = layers.front().k;
    for (const LayerRoots& roots : layers) {
        layer_of_[roots.k] = layers_.size();
        if (roots.v) layer_of_[roots.v] = layers_.size();
        layers_.push_back({.roots = roots, .k = {}, .v = {}, .opened = std::vector<uint64_t>(size_t(first->ne[2]), 0)});
    }
    figures_.name = first->name;
    figures_.asked = config_;
    figures_.layers = int64_t(layers.size());
    figures_.cells = first->ne[1];
    figures_.streams = first->ne[2];
}

VirtualCache::~VirtualCache() { context_.api().cache_destroy(cache_); }

void VirtualCache::expect(int32_t status) const {
    if (status != WINNOW_OK) throw std::runtime_error(figures_.name + ": " + context_.message());
}

void VirtualCache::take_shape(const ggml_tensor* node, const winnow_sdpa_desc& sdpa) {
    if (shape_.struct_size != 0) return;
    shape_.struct_size = sizeof shape_;
    shape_.config = config_.c_str();
    shape_.layers = figures_.layers;
    shape_.q_num_heads = sdpa.q->shape[1];
    shape_.kv_num_heads = sdpa.k->shape[1];
    shape_.head_size = sdpa.k->shape[3];
    shape_.v_head_size = sdpa.v->shape[3];
    shape_.context = figures_.cells;
    shape_.max_sequences = figures_.streams;
    shape_.cells = figures_.cells;
    const ggml_tensor* k = node->src[1];
    if (!layers_.front().roots.v) v_skip_ = offset_in(k, node->src[2]->data) / int64_t(k->nb[0]);
}

void VirtualCache::create() {
    winnow_cache_desc desc = shape_;
    const std::vector<double> profile = read_profile(config_, layer_names());
    desc.profile = profile.empty() ? nullptr : profile.data();
    expect(context_.api().cache_create(context_.get(), &desc, &cache_));
    if (reports("profile")) profile_.emplace(desc.layers, desc.q_num_heads, desc.cells);
    char config[512] = "";
    size_t size = sizeof config;
    expect(context_.api().cache_get_config(cache_, config, &size));
    figures_.config = config;
    figures_.kv_heads = desc.kv_num_heads;
    for (int64_t i = 0; i < figures_.streams; ++i) {
        streams_.emplace_back(CellTracker(figures_.cells, figures_.streams > 1, sinks_of(figures_.config)));
    }
}

void VirtualCache::set_rows(const ggml_tensor* root, const ggml_tensor* node, Counters& counters) {
    if (root->type != GGML_TYPE_F16 && root->type != GGML_TYPE_BF16) {
        throw std::runtime_error(
            std::string(root->name) + " is of type " + ggml().get_type_traits(root->type)->type_name +
            "; with WINNOW_KV, which says how keys and values are stored, expected f16 or bf16 (no "
            "-ctk and -ctv)");
    }
    restore_pending();
    Layer& layer = layers_[layer_of_.at(root)];
    std::optional<WaitingRows>& rows = root == layer.roots.k ? layer.k : layer.v;
    if (rows && layer.is_whole() && cache_) append_all(layer, counters);
    if (rows) {
        throw std::runtime_error(std::string(root->name) + " is written twice before an attention over it");
    }
    rows.emplace(root, node);
}

void VirtualCache::end_graph(Counters& counters) {
    for (Layer& layer : layers_) {
        if (!layer.waits()) continue;
        if (cache_ && layer.is_whole()) {
            append_all(layer, counters);
            continue;
        }
        if (layer.k) layer.k->detach();
        if (layer.v) layer.v->detach();
    }
}

void VirtualCache::forget_waiting() {
    for (Layer& layer : layers_) {
        layer.k.reset();
        layer.v.reset();
    }
}

void VirtualCache::clear() {
    forget_waiting();
    states_.clear();
    last_written_ = nullptr;
    failed_.clear();
    if (!cache_) return;
    if (profile_) profile_->end_sequences();
    figures_ = present(figures_);
    expect(context_.api().cache_reset(cache_));
    for (Stream& stream : streams_) stream.tracker.clear();
}

void VirtualCache::copy_stream(int64_t from, int64_t to) {
    restore_pending();
    if (!cache_) { // what there is was not settled
        std::erase_if(states_, [&](const State& state) { return state.stream == to; });
        std::vector<State> copies;
        std::copy_if(states_.begin(), states_.end(), std::back_inserter(copies),
                     [&](const State& state) { return state.stream == from; });
        for (State& copy : copies) copy.stream = to;
        states_.insert(states_.end(), copies.begin(), copies.end());
        return;
    }
    expect(context_.api().cache_copy(cache_, from, to));
    streams_[size_t(to)].tracker.copy(streams_[size_t(from)].tracker);
}

// Adds what the cache did since it was made or reset, and keeps what it holds where that is the most so far.
CacheFigures VirtualCache::present(CacheFigures figures) {
    winnow_cache_stats now{};
    now.struct_size = sizeof now;
    expect(context_.api().cache_stats(cache_, &now));
    figures.evictions += now.evictions;
    figures.shortfall += now.shortfall;
    figures.eviction_passes += now.eviction_passes;
    figures.steps += now.steps;
    figures.peak_bytes = std::max(figures.peak_bytes, now.peak_bytes);
    if (now.resident_slots > 0 && reports("resident")) {
        figures.resident = resident_cells(context_, cache_, {figures.streams, figures.layers, figures.kv_heads});
    }
    if (now.resident_slots < figures.resident_slots || now.resident_slots == 0) return figures;
    figures.resident_slots = now.resident_slots;
    figures.tokens = now.tokens;
    figures.bytes = now.bytes;
    figures.original_bytes = now.original_bytes;
    figures.budget_bytes = now.budget_bytes;
    figures.k_bytes = now.k_bytes;
    figures.v_bytes = now.v_bytes;
    figures.dense_bytes = now.dense_k_bytes + now.dense_v_bytes;
    figures.slot_map_bytes = now.slot_map_bytes;
    figures.importance_bytes = now.importance_bytes;
    figures.state_bytes = now.state_bytes;
    figures.resident_of_layers.assign(layers_.size(), 0);
    for (int64_t layer = 0; layer < figures.layers; ++layer) {
        for (int64_t stream = 0; stream < figures.streams; ++stream) {
            for (int64_t head = 0; head < figures.kv_heads; ++head) {
                uint64_t count = 0;
                expect(context_.api().cache_positions(cache_, stream, layer, head, nullptr, 0, &count));
                figures.resident_of_layers[size_t(layer)] += count;
            }
        }
    }
    return figures;
}

std::vector<std::string> VirtualCache::layer_names() const {
    std::vector<std::string> names;
    for (const Layer& layer : layers_) names.emplace_back(layer.roots.k->name);
    return names;
}

std::optional<CacheFigures> VirtualCache::figures() {
    if (!cache_) return std::nullopt;
    CacheFigures figures = present(figures_);
    figures.tokens_seen = 0;
    for (const Stream& stream : streams_) figures.tokens_seen += uint64_t(stream.tracker.tokens_seen());
    figures.full_bytes = 0;
    for (const Layer& layer : layers_) {
        figures.full_bytes += ggml().nbytes(layer.roots.k) + (layer.roots.v ? ggml().nbytes(layer.roots.v) : 0);
    }
    if (profile_) {
        AttentionProfile ended = *profile_;
        ended.end_sequences();
        figures.profile = ended.json(layer_names());
    }
    return figures;
}

} // namespace winnow::ggml
