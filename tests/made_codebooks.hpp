// Codebooks that a cache takes (docs/recall.md), of any numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace winnow {

inline void append_word(std::vector<uint8_t>& bytes, uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
}

inline uint32_t checksum_of(const std::vector<uint8_t>& record) {
    uint32_t checksum = ~uint32_t{0};
    const auto add = [&](size_t first, size_t end) {
        for (size_t at = first; at < end; ++at) {
            checksum ^= record[at];
            for (int bit = 0; bit < 8; ++bit) checksum = (checksum >> 1) ^ (checksum % 2 ? 0xedb88320u : 0u);
        }
    };
    add(32, record.size());
    add(0, 28);
    return ~checksum;
}

inline std::vector<uint8_t> made_record(std::string_view name, int64_t kv_heads, int64_t size,
                                        int64_t context = INT32_MAX) {
    std::vector<uint8_t> record;
    for (const char letter : std::string_view("WNCODES\0", 8)) record.push_back(static_cast<uint8_t>(letter));
    for (const int64_t word : {int64_t{1}, kv_heads, size, static_cast<int64_t>(name.size()), context, int64_t{0}})
        append_word(record, static_cast<uint32_t>(word));
    for (const char letter : name) record.push_back(static_cast<uint8_t>(letter));
    for (int64_t at = 0; at < kv_heads * size * (2 * size + 256); ++at) {
        const auto half = static_cast<uint32_t>(at) * 40503u >> 3 & 0xbbffu; // finite
        record.push_back(static_cast<uint8_t>(half));
        record.push_back(static_cast<uint8_t>(half >> 8));
    }
    const uint32_t checksum = checksum_of(record);
    for (size_t i = 0; i < 4; ++i) record[28 + i] = static_cast<uint8_t>(checksum >> 8 * i);
    return record;
}

inline std::vector<uint8_t> made_codebooks(int64_t layers, int64_t kv_heads, int64_t size,
                                           int64_t context = INT32_MAX) {
    const std::vector<uint8_t> record = made_record("", kv_heads, size, context);
    std::vector<uint8_t> all;
    for (int64_t layer = 0; layer < layers; ++layer) all.insert(all.end(), record.begin(), record.end());
    return all;
}

} // namespace winnow
