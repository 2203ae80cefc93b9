// Canonical configurations, as a backend spells them (docs/policies.md): where a key has its value in one.
#pragma once

#include <optional>
#include <string>

namespace winnow::ggml {

struct ValueRange {
    size_t begin, size; // in the configuration
};
// Nothing where the key has its default.
std::optional<ValueRange> find_value(const std::string& config, const std::string& key);
// The value itself, "" where the key has its default.
std::string value_of(const std::string& config, const std::string& key);

// The family of a configuration: what it has in common with those that differ in their budget alone.
std::string without_budget(const std::string& config);

} // namespace winnow::ggml
