// Codebooks as a host hands them over, written from docs/recall.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cache_setup.hpp"

namespace winnow::conformance {

using CodebookBytes = std::vector<std::byte>;

inline constexpr int64_t codebook_centroids = 256, codebook_elements = 16;

// What a layer's KV head has: matrices as [row][column], and element e of centroid `code` of the codebook that e is of.
struct HeadCodebooks {
    std::function<double(int64_t row, int64_t column)> of_keys, of_queries;
    std::function<double(int64_t element, int64_t code)> centroid;
};
// The records of all layers.
std::shared_ptr<const CodebookBytes>
codebooks_with(const CacheSetup& setup, const std::function<HeadCodebooks(int64_t layer, int64_t head)>& of);
// Of random numbers; the same ones for each setup of these sizes, and they stay.
std::shared_ptr<const CodebookBytes> random_codebooks(const CacheSetup& setup);
// Makes the checksum of a record right that begins at `at`.
void set_checksum(CodebookBytes& bytes, size_t at, size_t size);

} // namespace winnow::conformance
