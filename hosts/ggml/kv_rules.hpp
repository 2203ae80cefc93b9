// Which configuration a cache gets: rules by its shape, so that a draft model's cache may have another than the
// target's.
#pragma once

#include <string>
#include <vector>

#include "winnow_cache.h"

namespace winnow::ggml {

// What a rule asks of a cache: 0 asks nothing.
struct CacheConditions {
    int64_t layers = 0;
    int64_t kv_heads = 0;
    int64_t head_size = 0;
    int64_t cells = 0; // of a stream
};

struct KvRule {
    CacheConditions where;
    std::string config;
};

// Reads "[layers=30,head_size=64]winnow:budget=1/8;winnow": rules separated by ';', each with its conditions before it;
// the last may have none. A text that does not begin with '[' is one configuration for all caches. Configurations are
// not read here. Throws std::runtime_error that names what was wrong.
std::vector<KvRule> parse_rules(const std::string& text);

// The configuration of the first rule that fits a cache of this shape. Throws std::runtime_error where none does.
const std::string& config_for(const std::vector<KvRule>& rules, const winnow_cache_desc& shape);

} // namespace winnow::ggml
