// Storage formats as numbers, written from the definition in IEEE 754: value = (-1)^sign * significand * 2^exponent.
// Every format here is exact in a double, so decoding never rounds and encoding rounds once, to nearest, ties to even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "device/device.hpp"

namespace winnow::reference {

// A binary interchange format, or one that is laid out like one (bf16).
struct BinaryFormat {
    int exponent_bits;
    int fraction_bits;

    constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    constexpr uint32_t exponent_mask() const { return (1u << exponent_bits) - 1; }
    constexpr uint32_t infinity() const { return exponent_mask() << fraction_bits; }
    constexpr uint32_t sign() const { return 1u << (exponent_bits + fraction_bits); }
};

inline constexpr BinaryFormat binary16{5, 10};
inline constexpr BinaryFormat brain16{8, 7};
inline constexpr BinaryFormat binary32{8, 23};

inline double decode(BinaryFormat format, uint32_t bits) {
    const uint64_t sign = (bits & format.sign()) ? static_cast<uint64_t>(1) << 63 : 0;
    const uint32_t exponent = (bits >> format.fraction_bits) & format.exponent_mask();
    const uint64_t fraction = bits & ((1u << format.fraction_bits) - 1);
    const int to_double = 52 - format.fraction_bits;
    if (exponent == format.exponent_mask()) // infinity, or a NaN with its payload
        return std::bit_cast<double>(sign | static_cast<uint64_t>(0x7ff) << 52 | fraction << to_double);
    if (exponent == 0) { // zero, or fraction * 2^(1 - bias - fraction_bits)
        const double unit =
            std::bit_cast<double>(static_cast<uint64_t>(1 - format.bias() - format.fraction_bits + 1023) << 52);
        const double magnitude = static_cast<double>(fraction) * unit;
        return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<double>(sign | static_cast<uint64_t>(static_cast<int>(exponent) - format.bias() + 1023) << 52 |
                                 fraction << to_double);
}

inline uint32_t encode(BinaryFormat format, double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const uint32_t sign = (bits >> 63) ? format.sign() : 0;
    const int biased = static_cast<int>((bits >> 52) & 0x7ff);
    const uint64_t fraction = bits & ((static_cast<uint64_t>(1) << 52) - 1);
    if (biased == 0x7ff) {
        if (fraction == 0) return sign | format.infinity();
        const uint32_t quiet = 1u << (format.fraction_bits - 1);
        return sign | format.infinity() | quiet | static_cast<uint32_t>(fraction >> (52 - format.fraction_bits));
    }
    if (biased == 0) return sign; // zero, or a denormal double, which is far below half of any denormal here

    // value = significand * 2^(exponent - 52); what the target cannot hold is shifted out and rounds.
    const int exponent = biased - 1023;
    const int lowest = 1 - format.bias();
    const uint64_t significand = fraction | static_cast<uint64_t>(1) << 52;
    const int shift = 52 - format.fraction_bits + (exponent < lowest ? lowest - exponent : 0);
    if (shift > 53) return sign;
    uint64_t kept = significand >> shift;
    const uint64_t rest = significand & ((static_cast<uint64_t>(1) << shift) - 1);
    const uint64_t half = static_cast<uint64_t>(1) << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) ++kept;

    // A carry out of the fraction moves into the exponent, which is what rounding up to the next binade means.
    uint64_t magnitude = kept;
    if (exponent >= lowest)
        magnitude += (static_cast<uint64_t>(exponent + format.bias()) << format.fraction_bits) -
                     (static_cast<uint64_t>(1) << format.fraction_bits);
    return sign | (magnitude >= format.infinity() ? format.infinity() : static_cast<uint32_t>(magnitude));
}

[[noreturn]] inline void refuse_type(Type type) {
    throw Error(WINNOW_ERROR_UNSUPPORTED, std::string("the reference does not compute with ") + type_name(type));
}

// One element of a floating-point type. No alignment is asked of the address.
inline double load(Type type, const std::byte* at) {
    uint32_t word = 0;
    uint16_t half = 0;
    switch (type) {
    case Type::f32: std::memcpy(&word, at, 4); return decode(binary32, word);
    case Type::f16: std::memcpy(&half, at, 2); return decode(binary16, half);
    case Type::bf16: std::memcpy(&half, at, 2); return decode(brain16, half);
    default: refuse_type(type);
    }
}

inline void store(Type type, std::byte* at, double value) {
    uint32_t word = 0;
    uint16_t half = 0;
    switch (type) {
    case Type::f32:
        word = encode(binary32, value);
        std::memcpy(at, &word, 4);
        return;
    case Type::f16:
        half = static_cast<uint16_t>(encode(binary16, value));
        std::memcpy(at, &half, 2);
        return;
    case Type::bf16:
        half = static_cast<uint16_t>(encode(brain16, value));
        std::memcpy(at, &half, 2);
        return;
    default: refuse_type(type);
    }
}

inline bool is_floating(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16; }

} // namespace winnow::reference
