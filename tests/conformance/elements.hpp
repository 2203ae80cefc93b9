// Elements of storage formats as numbers, for filling and reading test tensors. Written with ldexp and nearbyint rather
// than with shifts, so that an error in a backend's conversions has no twin here.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "formats.hpp"
#include "winnow.h"

namespace winnow::conformance {

// The bytes of one element; a packed format has none of that size.
inline size_t element_size(uint32_t type) {
    switch (type) {
    case WINNOW_TYPE_F32:
    case WINNOW_TYPE_I32: return 4;
    case WINNOW_TYPE_F16:
    case WINNOW_TYPE_BF16: return 2;
    case WINNOW_TYPE_I64: return 8;
    default: return 1;
    }
}

inline size_t row_size(uint32_t type, int64_t elements) {
    return is_packed(type) ? static_cast<size_t>(packed_row_size(type, elements))
                           : static_cast<size_t>(elements) * element_size(type);
}

// A floating-point format of 16 bits: bits of the significand after the point, and the smallest normal exponent.
struct HalfFormat {
    int fraction_bits;
    int lowest_exponent;

    int largest_exponent() const { return 1 - lowest_exponent; }
    uint16_t infinity() const {
        return static_cast<uint16_t>((static_cast<uint32_t>(largest_exponent() - lowest_exponent) + 2)
                                     << fraction_bits);
    }
};

inline constexpr HalfFormat f16_format{10, -14};
inline constexpr HalfFormat bf16_format{7, -126};

inline double from_half(HalfFormat format, uint16_t bits) {
    const int field = (bits & 0x7fff) >> format.fraction_bits;
    const int fraction = bits & ((1 << format.fraction_bits) - 1);
    const double sign = (bits & 0x8000) ? -1 : 1;
    if ((bits & 0x7fff) >= format.infinity())
        return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    if (field == 0) return sign * std::ldexp(fraction, format.lowest_exponent - format.fraction_bits);
    return sign * std::ldexp((1 << format.fraction_bits) + fraction,
                             format.lowest_exponent - format.fraction_bits + field - 1);
}

inline uint16_t to_half(HalfFormat format, double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<uint16_t>(sign | format.infinity() | 1u << (format.fraction_bits - 1));
    const double magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | format.infinity());
    const int exponent = std::max(std::ilogb(magnitude), format.lowest_exponent);
    // The grid of the value's binade; nearbyint rounds to nearest, ties to even.
    const double steps = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
    const double rounded = std::ldexp(steps, exponent - format.fraction_bits);
    if (rounded >= std::ldexp(1, format.largest_exponent() + 1)) return static_cast<uint16_t>(sign | format.infinity());
    const uint32_t units = static_cast<uint32_t>(exponent - format.lowest_exponent) << format.fraction_bits;
    return static_cast<uint16_t>(sign | (units + static_cast<uint32_t>(steps)));
}

// One element as a number. Integers and bools are exact; the largest I64 values are not needed here.
inline double load_element(uint32_t type, const void* at) {
    uint16_t half = 0;
    switch (type) {
    case WINNOW_TYPE_F32: {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    case WINNOW_TYPE_F16: std::memcpy(&half, at, 2); return from_half(f16_format, half);
    case WINNOW_TYPE_BF16: std::memcpy(&half, at, 2); return from_half(bf16_format, half);
    case WINNOW_TYPE_I32: {
        int32_t value;
        std::memcpy(&value, at, 4);
        return value;
    }
    case WINNOW_TYPE_I64: {
        int64_t value;
        std::memcpy(&value, at, 8);
        return static_cast<double>(value);
    }
    default: return *static_cast<const uint8_t*>(at);
    }
}

inline void store_element(uint32_t type, void* at, double value) {
    switch (type) {
    case WINNOW_TYPE_F32: {
        const float number = static_cast<float>(value);
        std::memcpy(at, &number, 4);
        return;
    }
    case WINNOW_TYPE_F16: {
        const uint16_t half = to_half(f16_format, value);
        std::memcpy(at, &half, 2);
        return;
    }
    case WINNOW_TYPE_BF16: {
        const uint16_t half = to_half(bf16_format, value);
        std::memcpy(at, &half, 2);
        return;
    }
    case WINNOW_TYPE_I32: {
        const int32_t number = static_cast<int32_t>(value);
        std::memcpy(at, &number, 4);
        return;
    }
    case WINNOW_TYPE_I64: {
        const int64_t number = static_cast<int64_t>(value);
        std::memcpy(at, &number, 8);
        return;
    }
    default: *static_cast<uint8_t*>(at) = static_cast<uint8_t>(value);
    }
}

// Half a unit in the last place of a result of this type: what rounding once may add to the error.
inline double rounding_error(uint32_t type, double value) {
    const double magnitude = std::fabs(value);
    switch (type) {
    case WINNOW_TYPE_F16: return std::max(std::ldexp(magnitude, -11), std::ldexp(1.0, -25));
    case WINNOW_TYPE_BF16: return std::max(std::ldexp(magnitude, -8), std::ldexp(1.0, -134));
    default: return std::ldexp(magnitude, -24);
    }
}

// Whether a number is the one that is wanted, within bound: NaN has to meet NaN, infinity infinity, and beyond the
// type's largest number the result may overflow.
inline bool agrees(double got, double want, double bound, double largest_finite) {
    if (std::isnan(want)) return std::isnan(got);
    if (std::isinf(want)) return got == want;
    if (std::isinf(got)) return std::fabs(want) + bound > largest_finite && std::signbit(got) == std::signbit(want);
    return std::fabs(got - want) <= bound;
}

// The largest finite number of a type.
inline double largest(uint32_t type) {
    switch (type) {
    case WINNOW_TYPE_F16: return 65504;
    case WINNOW_TYPE_BF16: return std::ldexp(255.0, 120);
    default: return std::numeric_limits<float>::max();
    }
}

} // namespace winnow::conformance
