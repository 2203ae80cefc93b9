// The codebooks of a model, by which recall makes signatures of codes: from the bytes that a host hands over
// (the resource "codebooks"), of which nothing is believed.
//
// A record for each layer, one after another; all numbers are little-endian, and those of a record begin anywhere:
//
//      0  "WNCODES" and a zero
//      8  u32  version, 1
//     12  u32  KV heads
//     16  u32  elements of a key
//     20  u32  bytes of the layer's name, at most 255
//     24  u32  tokens of the contexts that they were trained on; for longer ones they are refused
//     28  u32  CRC-32 (that of zip and PNG) of all that follows, and of the record before it
//     32       the name, which is the host's to look for
//              halves: of each KV head codebook_numbers, as device/pages.hpp has them
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/plan/budget.hpp"

namespace winnow::cache {

// The halves of all layers, one after another. Throws Error (invalid argument) that says which record does not fit, and
// why.
std::vector<uint16_t> read_codebooks(std::span<const std::byte> bytes, const Shape& shape);

uint64_t codebook_bytes(const LayerShape& shape); // of a layer's halves

} // namespace winnow::cache
