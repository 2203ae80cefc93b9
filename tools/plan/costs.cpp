// llama.cpp's caches by arithmetic, Winnow's by asking a backend as hosts/ggml describes them to it.
#include "costs.hpp"

#include <algorithm>
#include <stdexcept>

namespace winnow::tools {

namespace {

constexpr int64_t step = 256; // llama.cpp's contexts are multiples of it

std::vector<std::string> layer_names(const LayerGroup& group) {
    std::vector<std::string> names;
    for (const int64_t layer : group.layers) names.push_back("cache_k_l" + std::to_string(layer));
    return names;
}

} // namespace

Backend::Backend(const std::string& name) : opened_(name) {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    try {
        context_ = opened_.make_context(desc);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("backend " + name + ": " + error.what());
    }
}

ggml::CacheMeaning Backend::check(const std::string& kv) const {
    const auto ask = [&](const winnow_cache_desc& desc) { return ggml::meaning_of(api(), caches(), context(), desc); };
    try {
        ggml::CacheMeaning meaning = ggml::meaning_of_any_shape(kv.c_str(), ask);
        const ggml::Resources found(meaning, {}, 0); // throws where a file cannot be read
        return meaning;
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("configuration \"" + kv + "\": " + error.what());
    }
}

Costs::Costs(const Backend& backend, ModelShape shape, int64_t ubatch, Added added)
    : backend_(backend), shape_(std::move(shape)), ubatch_(ubatch), added_(added) {}

// As hosts/ggml describes a cache of one stream.
winnow_cache_desc Costs::desc(const LayerGroup& group, int64_t context, const std::string& kv) const {
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = kv.c_str();
    desc.layers = static_cast<int64_t>(group.layers.size());
    desc.q_num_heads = group.q_heads;
    desc.kv_num_heads = group.kv_heads;
    desc.head_size = group.k_size;
    desc.v_head_size = group.v_size;
    desc.context = desc.cells = cells_of(group, context, ubatch_);
    desc.max_sequences = 1;
    return desc;
}

ggml::CacheMeaning Costs::meaning(const std::string& kv, int64_t context) const {
    return ggml::meaning_of(backend_.api(), backend_.caches(), backend_.context(),
                            desc(shape_.groups.front(), context, kv));
}

int64_t Costs::cells(int64_t context) const { return cells_of(shape_.groups.front(), context, ubatch_); }

Cost Costs::at(const Configuration& config, int64_t context) const {
    Cost cost;
    if (config.where != Configuration::Where::winnow) {
        for (const LayerGroup& group : shape_.groups) {
            const uint64_t values = group.values_in_keys ? 0 : bytes_of_head(config.v, group.v_size);
            const uint64_t row = bytes_of_head(config.k, group.k_size) + values;
            cost.bytes += row * static_cast<uint64_t>(group.kv_heads) * group.layers.size() *
                          static_cast<uint64_t>(cells_of(group, context, ubatch_));
        }
        if (config.where == Configuration::Where::in_place) cost.added = added_.in_place;
        return cost;
    }
    cost.added = added_.winnow;
    const bool has_others = std::any_of(shape_.groups.begin(), shape_.groups.end(),
                                        [](const LayerGroup& group) { return group.window == 0; });
    for (const LayerGroup& group : shape_.groups) {
        winnow_cache_desc its = desc(group, context, config.kv);
        // A cache of sliding windows evicts nothing, unless the model has no other.
        const bool is_bounded = group.window != 0 && has_others;
        const auto ask = [&](const winnow_cache_desc& desc) {
            return ggml::meaning_of(backend_.api(), backend_.caches(), backend_.context(), desc);
        };
        const ggml::CacheMeaning means = is_bounded ? ggml::meaning_of_any_shape(config.kv.c_str(), ask) : ask(its);
        if (is_bounded) its.config = means.storage_config.c_str();
        ggml::Resources resources;
        if (!is_bounded) resources = ggml::Resources(means, layer_names(group), group.kv_heads);
        resources.hand_to(its);
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        if (backend_.caches().estimate(backend_.context(), &its, its.cells, &stats) != WINNOW_OK)
            throw std::runtime_error(backend_.api().context_message(backend_.context()));
        cost.bytes += stats.bytes;
        cost.scratch += stats.scratch_bytes;
        const uint64_t cold = stats.disk_bytes == 0 ? stats.cold_bytes : 0;
        cost.cold += cold;
        cost.codebooks += stats.codebook_bytes;
        cost.disk += stats.disk_bytes;
        cost.added += stats.scratch_bytes + cold + stats.codebook_bytes;
    }
    return cost;
}

std::optional<int64_t> Costs::pays_from(const Configuration& config, const Configuration& other) const {
    const auto is_less = [&](int64_t steps) -> std::optional<bool> {
        try {
            return at(config, steps * step).total() < at(other, steps * step).total();
        } catch (const std::runtime_error&) { // which a budget in bytes or codebooks cannot have
            return std::nullopt;
        }
    };
    int64_t low = 0, high = longest / step;
    while (high > 1 && !is_less(high)) high /= 2;
    if (!is_less(high).value_or(false)) return std::nullopt;
    while (low + 1 < high) {
        const int64_t middle = (low + high) / 2;
        (is_less(middle).value_or(false) ? high : low) = middle;
    }
    return high * step;
}

} // namespace winnow::tools
