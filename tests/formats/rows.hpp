// Rows for the tests of formats: vectors of numbers, their packed bytes, and how far apart two vectors are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reference/row.hpp"

namespace winnow::formats {

using Vector = std::vector<double>;
using Bytes = std::vector<std::byte>;

inline Bytes encode(Type type, const Vector& x, Norm norm = Norm::corrected) {
    const Bytes filling(row_bytes(type, static_cast<int64_t>(x.size())),
                        std::byte{0xa5}); // all of which has to be overwritten
    Bytes row = filling;
    reference::encode_row(type, row.data(), static_cast<int64_t>(x.size()), x.data(), norm);
    return row;
}

inline Vector decode(Type type, const Bytes& row, int64_t n) {
    Vector x(static_cast<size_t>(n));
    reference::decode_row(type, row.data(), n, x.data());
    return x;
}

inline Vector round_trip(Type type, const Vector& x, Norm norm = Norm::corrected) {
    return decode(type, encode(type, x, norm), static_cast<int64_t>(x.size()));
}

inline double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

inline double norm(const Vector& a) { return std::sqrt(dot(a, a)); }

inline double cosine(const Vector& a, const Vector& b) { return dot(a, b) / (norm(a) * norm(b)); }

inline double squared_distance(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

inline Vector normal(std::mt19937& random, int64_t n, double deviation = 1) {
    std::normal_distribution<double> distribution(0, deviation);
    Vector x(static_cast<size_t>(n));
    for (double& value : x) value = distribution(random);
    return x;
}

inline std::string hex(const Bytes& bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (std::byte each : bytes) {
        text += digits[static_cast<size_t>(each) / 16];
        text += digits[static_cast<size_t>(each) % 16];
    }
    return text;
}

// The type of a name as type_name has it; none if there is none.
inline Type type_named(const std::string& name) {
    for (uint32_t number = 1; number < 64; ++number)
        if (name == type_name(static_cast<Type>(number))) return static_cast<Type>(number);
    return Type::none;
}

} // namespace winnow::formats
