// Element types and storage formats: their names and sizes. What the bytes of a packed row mean is in docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "winnow.h"

namespace winnow {

enum class Type : uint32_t {
    none = 0,
    f32 = WINNOW_TYPE_F32,
    f16 = WINNOW_TYPE_F16,
    bf16 = WINNOW_TYPE_BF16,
    i32 = WINNOW_TYPE_I32,
    i64 = WINNOW_TYPE_I64,
    boolean = WINNOW_TYPE_BOOL,
    q8_0 = WINNOW_TYPE_Q8_0,
    q5_1 = WINNOW_TYPE_Q5_1,
    q5_0 = WINNOW_TYPE_Q5_0,
    q4_1 = WINNOW_TYPE_Q4_1,
    q4_0 = WINNOW_TYPE_Q4_0,
    iq4_nl = WINNOW_TYPE_IQ4_NL,
    affine8_g32 = WINNOW_TYPE_AFFINE8_G32,
    affine8_g64 = WINNOW_TYPE_AFFINE8_G64,
    affine8_g128 = WINNOW_TYPE_AFFINE8_G128,
    affine4_g32 = WINNOW_TYPE_AFFINE4_G32,
    affine4_g64 = WINNOW_TYPE_AFFINE4_G64,
    affine4_g128 = WINNOW_TYPE_AFFINE4_G128,
    turbo4 = WINNOW_TYPE_TURBO4,
    turbo3 = WINNOW_TYPE_TURBO3,
    turbo2 = WINNOW_TYPE_TURBO2,
    turbo3_5 = WINNOW_TYPE_TURBO3_5,
    turbo2_5 = WINNOW_TYPE_TURBO2_5,
    sparse16 = WINNOW_TYPE_SPARSE16,
    sparse8 = WINNOW_TYPE_SPARSE8,
};

const char* type_name(Type type);
// As in docs/formats.md, configurations, names of variants and options of kernels: in small letters, "f16".
std::string format_name(Type type);
size_t type_size(Type type); // bytes of one element; of a packed format 0

enum class Norm : uint32_t {
    plain = WINNOW_NORM_PLAIN,
    corrected = WINNOW_NORM_CORRECTED,
    unit_slope = WINNOW_NORM_UNIT_SLOPE,
};

// Formats of caches. A packed one has no single elements: a row is one run of bytes.
bool is_packed(Type type);
bool is_storage_format(Type type); // packed, f32, f16 or bf16
bool is_rotated(Type type);        // holds R x instead of x

inline constexpr int64_t largest_rotation = 576; // elements of a row, as winnow.h says

// Whether what belongs to an element lies behind all that belongs to earlier groups, so that a row may be rewritten in
// place from its beginning to its end. Not where scales lie behind all codes.
bool is_in_order(Type type);

// The number of which a row's elements have to be a multiple; 1 where any number fits.
int64_t row_multiple(Type type);
// Elements that share a scale (ggml's blocks, affine's groups); 0 where the whole row or nothing does.
int64_t group_elements(Type type);
// Bytes of a row. elements is a multiple of row_multiple.
uint64_t row_bytes(Type type, int64_t elements);
// What addresses and strides have to be multiples of.
size_t alignment(Type type);

} // namespace winnow
