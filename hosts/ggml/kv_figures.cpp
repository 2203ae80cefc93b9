// The log's lines.
#include "kv_figures.hpp"

#include <algorithm>
#include <cstdio>

namespace winnow::ggml {

std::string to_text(const InPlaceCache& cache) {
    char size[64];
    std::snprintf(size, sizeof size, "%zu tensors, %.2f MiB", cache.tensors,
                  static_cast<double>(cache.bytes) / (1 << 20));
    return "the cache of " + cache.name + " (" + size + ") stays in place, as llama.cpp stores it, in spite of " +
           "WINNOW_KV=" + cache.asked + ": " + cache.node + " (" + cache.operation + "): " + cache.reason;
}

std::string to_text(const CacheFigures& figures) {
    const auto heads = static_cast<uint64_t>(figures.layers * figures.kv_heads);
    const auto& resident = figures.resident_of_layers;
    const auto per_head = [&](uint64_t slots) {
        return static_cast<double>(slots) / static_cast<double>(std::max<int64_t>(figures.kv_heads, 1));
    };
    char text[2048];
    std::snprintf(
        text, sizeof text,
        "%s and %lld layers in all (%s, on %s): %llu tokens seen; at its fullest %llu tokens, of which "
        "%.1f were resident in a head (%.1f to %.1f by layer), in %.2f MiB of %.2f MiB reserved; %.1f evictions a head",
        figures.name.c_str(), static_cast<long long>(figures.layers), figures.config.c_str(), figures.device.c_str(),
        static_cast<unsigned long long>(figures.tokens_seen), static_cast<unsigned long long>(figures.fullest.tokens),
        static_cast<double>(figures.fullest.resident_slots) / static_cast<double>(std::max<uint64_t>(heads, 1)),
        resident.empty() ? 0.0 : per_head(*std::min_element(resident.begin(), resident.end())),
        resident.empty() ? 0.0 : per_head(*std::max_element(resident.begin(), resident.end())),
        static_cast<double>(figures.fullest.bytes) / (1 << 20), static_cast<double>(figures.full_bytes) / (1 << 20),
        static_cast<double>(figures.evictions) / static_cast<double>(std::max<uint64_t>(heads, 1)));
    std::string line = text;
    if (figures.reused > 0) {
        std::snprintf(text, sizeof text, "; of %llu tokens of reused prefixes %.1f %% were still resident",
                      static_cast<unsigned long long>(figures.reused),
                      100 * figures.reused_resident / static_cast<double>(figures.reused));
        line += text;
    }
    if (figures.picks > 0) {
        std::snprintf(text, sizeof text, "; %.1f %% of the pages that were picked were not hot; %.2f MiB of signatures",
                      100 * static_cast<double>(figures.misses) / static_cast<double>(figures.picks),
                      static_cast<double>(figures.fullest.signature_bytes) / (1 << 20));
        line += text;
    }
    if (figures.fullest.disk_bytes > 0) {
        std::snprintf(text, sizeof text, "; %.2f MiB on the disk, of which %.2f MiB were read in %.2f s",
                      static_cast<double>(figures.fullest.disk_bytes) / (1 << 20),
                      static_cast<double>(figures.bytes_read) / (1 << 20), static_cast<double>(figures.wait_ns) / 1e9);
        line += text;
    }
    return line;
}

} // namespace winnow::ggml
