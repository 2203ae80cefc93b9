// How many bits an element has in a storage format, without scales and norms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache_meaning.hpp"

namespace winnow::ggml {

inline constexpr double dense_bits = 16; // from here on nothing is packed

struct FormatBits {
    uint32_t type; // WINNOW_TYPE_...
    std::string_view name;
    double bits;
};
// "unknown", 0 bits: a format of a newer backend.
FormatBits bits_of(uint32_t type);
double bits_of_code(const std::string& format); // by its name

// The bits of keys where a cache stores them in fewest: in any segment and any layer.
double fewest_key_bits(const CacheMeaning& meaning);

// Keys to which a model adds a bias, as Qwen2 does, lose much in formats of fewer bits (docs/limits.md).
inline constexpr double least_bits_of_biased_keys = 8;

// A warning to the user of such a model; "" where the cache has enough bits.
std::string warning_of_biased_keys(const CacheMeaning& meaning);

} // namespace winnow::ggml
