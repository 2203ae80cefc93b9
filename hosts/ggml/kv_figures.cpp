// The report's object for a cache, and the log's line.
#include "kv_figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "json.hpp"

namespace winnow::ggml {

std::string to_json(const CacheFigures& figures) {
    std::string out =
        "    {\"name\": " + quoted(figures.name.c_str()) + ", \"config\": " + quoted(figures.config.c_str());
    const auto number = [&](const char* key, uint64_t value) {
        out += std::string(", \"") + key + "\": " + std::to_string(value);
    };
    number("layers", uint64_t(figures.layers));
    number("kv_heads", uint64_t(figures.kv_heads));
    number("streams", uint64_t(figures.streams));
    number("cells", uint64_t(figures.cells));
    number("tokens_seen", figures.tokens_seen);
    number("restored", figures.restored);
    number("reused", figures.reused);
    number("reused_resident", uint64_t(std::llround(figures.reused_resident)));
    number("evictions", figures.evictions);
    number("shortfall", figures.shortfall);
    number("eviction_passes", figures.eviction_passes);
    number("steps", figures.steps);
    number("tokens", figures.tokens);
    number("resident_slots", figures.resident_slots);
    number("bytes", figures.bytes);
    number("k_bytes", figures.k_bytes);
    number("v_bytes", figures.v_bytes);
    number("dense_bytes", figures.dense_bytes);
    number("slot_map_bytes", figures.slot_map_bytes);
    number("importance_bytes", figures.importance_bytes);
    number("state_bytes", figures.state_bytes);
    number("original_bytes", figures.original_bytes);
    number("budget_bytes", figures.budget_bytes);
    number("peak_bytes", figures.peak_bytes);
    number("full_bytes", figures.full_bytes);
    out += ", \"resident_of_layers\": [";
    for (size_t i = 0; i < figures.resident_of_layers.size(); ++i) {
        out += (i > 0 ? ", " : "") + std::to_string(figures.resident_of_layers[i]);
    }
    out += "]";
    if (!figures.resident.empty()) out += ", \"resident\": " + figures.resident;
    if (!figures.profile.empty()) out += ", \"profile\": " + figures.profile;
    return out + "}";
}

std::string to_json(const InPlaceCache& cache) {
    const auto text = [](const char* key, const std::string& value) {
        return std::string("\"") + key + "\": " + quoted(value.c_str());
    };
    return "    {" + text("name", cache.name) + ", " + text("asked", cache.asked) +
           ", \"tensors\": " + std::to_string(cache.tensors) + ", \"bytes\": " + std::to_string(cache.bytes) + ", " +
           text("operation", cache.operation) + ", " + text("node", cache.node) + ", " + text("reason", cache.reason) +
           "}";
}

std::string to_text(const InPlaceCache& cache) {
    char size[64];
    std::snprintf(size, sizeof size, "%zu tensors, %.2f MiB", cache.tensors, double(cache.bytes) / (1 << 20));
    return "the cache of " + cache.name + " (" + size + ") stays in place, as llama.cpp stores it, in spite of " +
           "WINNOW_KV=" + cache.asked + ": " + cache.node + " (" + cache.operation + "): " + cache.reason;
}

std::string to_text(const CacheFigures& figures) {
    const auto heads = uint64_t(figures.layers * figures.kv_heads);
    const auto& live = figures.resident_of_layers;
    const auto per_head = [&](uint64_t slots) {
        return double(slots) / double(std::max<int64_t>(figures.kv_heads, 1));
    };
    char text[512];
    std::snprintf(
        text, sizeof text,
        "%s and %lld layers in all (%s): %llu tokens seen; at its fullest %llu tokens, of which a head resident "
        "%.1f (%.1f to %.1f by layer), in %.2f MiB of %.2f MiB reserved; %.1f evictions a head",
        figures.name.c_str(), static_cast<long long>(figures.layers), figures.config.c_str(),
        static_cast<unsigned long long>(figures.tokens_seen), static_cast<unsigned long long>(figures.tokens),
        double(figures.resident_slots) / double(std::max<uint64_t>(heads, 1)),
        live.empty() ? 0.0 : per_head(*std::min_element(live.begin(), live.end())),
        live.empty() ? 0.0 : per_head(*std::max_element(live.begin(), live.end())), double(figures.bytes) / (1 << 20),
        double(figures.full_bytes) / (1 << 20), double(figures.evictions) / double(std::max<uint64_t>(heads, 1)));
    std::string line = text;
    if (figures.reused > 0) {
        std::snprintf(text, sizeof text, "; of %llu tokens of reused prefixes it still resident %.1f %%",
                      static_cast<unsigned long long>(figures.reused),
                      100 * figures.reused_resident / double(figures.reused));
        line += text;
    }
    return line;
}

} // namespace winnow::ggml
