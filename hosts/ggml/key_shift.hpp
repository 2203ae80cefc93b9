// A context shift: a ROPE in place over the keys of a virtual cache.
#pragma once

#include "cache_handle.hpp"
#include "streams.hpp"

namespace winnow::ggml {

// Turns the keys that are stored, by the number that `node` has for each cell, and notes which cells moved. Throws
// std::runtime_error where the node is a rotation of anything else, or a part of it fails; some keys may then be
// turned.
void shift_keys(const CacheHandle& cache, Streams& streams, const ggml_tensor* node);

} // namespace winnow::ggml
