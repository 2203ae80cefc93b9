// The storage formats as a judge knows them: names, sizes, families. Written from docs/formats.md, not from a backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "winnow.h"

namespace winnow::conformance {

enum class Family { dense, ggml, affine, turbo, sparse };

struct Format {
    uint32_t type;
    const char* name;
    Family family;
    int64_t multiple;    // of elements in a row
    int64_t group_bytes; // of `multiple` elements; turbo_bits says it for turbo formats
};

inline const std::vector<Format>& formats() {
    static const std::vector<Format> all = {
        {WINNOW_TYPE_F32, "f32", Family::dense, 1, 4},
        {WINNOW_TYPE_F16, "f16", Family::dense, 1, 2},
        {WINNOW_TYPE_BF16, "bf16", Family::dense, 1, 2},
        {WINNOW_TYPE_Q8_0, "q8_0", Family::ggml, 32, 34},
        {WINNOW_TYPE_Q5_1, "q5_1", Family::ggml, 32, 24},
        {WINNOW_TYPE_Q5_0, "q5_0", Family::ggml, 32, 22},
        {WINNOW_TYPE_Q4_1, "q4_1", Family::ggml, 32, 20},
        {WINNOW_TYPE_Q4_0, "q4_0", Family::ggml, 32, 18},
        {WINNOW_TYPE_IQ4_NL, "iq4_nl", Family::ggml, 32, 18},
        {WINNOW_TYPE_AFFINE8_G32, "affine8_g32", Family::affine, 32, 36},
        {WINNOW_TYPE_AFFINE8_G64, "affine8_g64", Family::affine, 64, 68},
        {WINNOW_TYPE_AFFINE8_G128, "affine8_g128", Family::affine, 128, 132},
        {WINNOW_TYPE_AFFINE4_G32, "affine4_g32", Family::affine, 32, 20},
        {WINNOW_TYPE_AFFINE4_G64, "affine4_g64", Family::affine, 64, 36},
        {WINNOW_TYPE_AFFINE4_G128, "affine4_g128", Family::affine, 128, 68},
        {WINNOW_TYPE_TURBO4, "turbo4", Family::turbo, 16, 0},
        {WINNOW_TYPE_TURBO3, "turbo3", Family::turbo, 16, 0},
        {WINNOW_TYPE_TURBO2, "turbo2", Family::turbo, 16, 0},
        {WINNOW_TYPE_TURBO3_5, "turbo3_5", Family::turbo, 16, 0},
        {WINNOW_TYPE_TURBO2_5, "turbo2_5", Family::turbo, 16, 0},
        {WINNOW_TYPE_SPARSE16, "sparse16", Family::sparse, 32, 48},
        {WINNOW_TYPE_SPARSE8, "sparse8", Family::sparse, 32, 28},
    };
    return all;
}

inline const Format* find_format(uint32_t type) {
    for (const Format& format : formats())
        if (format.type == type) return &format;
    return nullptr;
}

inline bool is_packed(uint32_t type) {
    const Format* const format = find_format(type);
    return format && format->family != Family::dense;
}
inline bool is_turbo(uint32_t type) {
    const Format* const format = find_format(type);
    return format && format->family == Family::turbo;
}
// Whether a value is scale * code + bias.
inline bool has_bias(uint32_t type) {
    const Format* const format = find_format(type);
    return format && (format->family == Family::affine || type == WINNOW_TYPE_Q4_1 || type == WINNOW_TYPE_Q5_1);
}
// A backend refuses turbo rows of more elements, because their rotation is defined up to here.
inline constexpr int64_t largest_turbo_row = 576;
inline bool fits(const Format& format, int64_t elements) { return elements % format.multiple == 0; }

// Bits of the codes of one chunk of a turbo row: the first half of the chunks has the bit more, if there is one.
inline int turbo_bits(uint32_t type, int64_t chunk, int64_t chunks) {
    const bool is_first_half = chunk < (chunks + 1) / 2;
    switch (type) {
    case WINNOW_TYPE_TURBO4: return 4;
    case WINNOW_TYPE_TURBO3: return 3;
    case WINNOW_TYPE_TURBO3_5: return is_first_half ? 4 : 3;
    case WINNOW_TYPE_TURBO2_5: return is_first_half ? 3 : 2;
    default: return 2;
    }
}

// Bytes of a packed row.
inline int64_t packed_row_size(uint32_t type, int64_t elements) {
    const Format& format = *find_format(type);
    if (format.family != Family::turbo) return elements / format.multiple * format.group_bytes;
    int64_t size = 2;
    for (int64_t chunk = 0; chunk < elements / 16; ++chunk) size += 2 * turbo_bits(type, chunk, elements / 16);
    return size;
}

inline std::string type_name(uint32_t type) {
    if (const Format* const format = find_format(type)) return format->name;
    switch (type) {
    case WINNOW_TYPE_I32: return "i32";
    case WINNOW_TYPE_I64: return "i64";
    case WINNOW_TYPE_BOOL: return "bool";
    default: return "none";
    }
}

} // namespace winnow::conformance
