// What a configuration means: the backend tells, and nothing here reads such a string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "winnow_cache.h"

namespace winnow::ggml {

// Tokens of a head in one of its segments, and their types (WINNOW_TYPE_*).
struct SegmentTokens {
    int64_t tokens = 0;
    uint32_t k_type = 0, v_type = 0;
};

// Constants of the model, and the file that has them; "" where the configuration names none.
struct WantedResource {
    std::string name, path;
};

struct CacheMeaning {
    std::string policy;                  // its name
    std::string config;                  // canonical
    std::string storage_config;          // rows are stored alike, and nothing is evicted
    int64_t sinks = 0;                   // first tokens of a sequence, which stay
    int64_t budget_tokens = 0;           // of a KV head, of the layer with most
    std::vector<SegmentTokens> segments; // of these, the dense one first
    std::vector<WantedResource> resources;
    bool evicts = false; // some layer may evict tokens
};

// Reads the resources that a configuration wants from the files that it names; without layers the files are checked
// alone. A profile without a file is left out. Throws std::runtime_error as read_profile, read_network and
// read_codebook_file.
class Resources {
public:
    Resources() = default;
    Resources(Resources&&) = default;
    Resources& operator=(Resources&&) = default;
    Resources(const CacheMeaning& meaning, const std::vector<std::string>& layers, int64_t kv_heads);
    void hand_to(winnow_cache_desc& desc) const; // they have to stay while it is used

private:
    std::vector<std::vector<std::byte>> contents_;
    std::vector<winnow_resource> resources_;
};

// What a string means before a model is known: of a cache of a shape that every policy and format takes, with a long
// context or, since a budget in bytes may be too small for that, a short one, and with as many layers as it names.
// `ask` is meaning_of; what it throws goes through.
using Ask = std::function<CacheMeaning(const winnow_cache_desc&)>;
CacheMeaning meaning_of_any_shape(const char* config, const Ask& ask);

// The meaning of a description whose profile may be missing. Throws std::runtime_error where there can be no such
// cache.
CacheMeaning meaning_of(const winnow_api& api, const winnow_cache_api& caches, winnow_context* context,
                        const winnow_cache_desc& desc);

} // namespace winnow::ggml
