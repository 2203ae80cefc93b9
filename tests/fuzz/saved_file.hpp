// The places of a saved cache's numbers, by the table in backend/cache/state/README.md, and files with the checksum
// that they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::fuzz {

// Bytes that a layer with memory has in its buffers; slot: of each slot of its packed segment.
struct LayerBytes {
    uint64_t dense = 0, state = 0, slot = 0;
};

struct SavedFile {
    std::string content;         // without the checksum
    std::vector<size_t> numbers; // where i64 and u64 begin: counts, positions, sizes
    std::vector<size_t> words;   // where i32 begin: cells, slot maps and the state
};

// Reads where everything is; ends the process where the file is not as the table says.
SavedFile read_saved_file(const std::string& bytes, int64_t sequences, const std::vector<LayerBytes>& layers);

// The content with its checksum behind it.
std::string with_checksum(const std::string& content);

} // namespace winnow::fuzz
