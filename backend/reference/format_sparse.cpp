// A block: [bits of the elements that are there, 4 bytes][f16 d][values]; x = d * value. Values of the first 16
// elements lie from the front on, those of the others from the end back.
#include "reference/formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/element.hpp"

namespace winnow::reference {
namespace {

constexpr size_t elements = 32, half_of_them = 16;
constexpr size_t scale_at = 4, values_at = 6; // bytes
constexpr float becomes_infinity = 65520;     // in F16
constexpr double largest_half = 65504;

using Elements = std::array<float, elements>;

struct Values {
    size_t count; // of values
    size_t bytes; // of one
    size_t size() const { return values_at + count * bytes; }
};

Values values_of(Type type) {
    if (type == Type::sparse16) return {21, 2};
    if (type == Type::sparse8) return {22, 1};
    refuse_type(type);
}

// The number of the value of each element that is there, in the order of the elements.
std::array<size_t, elements> places(uint32_t kept, size_t count) {
    std::array<size_t, elements> at{};
    size_t front = 0, end = count;
    for (size_t i = 0; i < elements; ++i)
        if ((kept >> i & 1) != 0) at[i] = i < half_of_them ? front++ : --end;
    return at;
}

uint32_t largest_of(const Elements& x, size_t count) {
    std::array<size_t, elements> order{};
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t left, size_t right) { return std::fabs(x[left]) > std::fabs(x[right]); });
    uint32_t kept = 0;
    for (size_t i = 0; i < count; ++i) kept |= uint32_t{1} << order[i];
    return kept;
}

bool is_held(Type type, const Elements& x) {
    return std::all_of(x.begin(), x.end(), [&](float value) {
        return std::isfinite(value) && (type == Type::sparse8 || std::fabs(value) < becomes_infinity);
    });
}

void store_u32(std::byte* at, uint32_t bits) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(bits >> 8 * i & 0xff);
}

void encode_elements(Type type, std::byte* at, const Elements& x) {
    const Values of = values_of(type);
    const bool is_number = is_held(type, x);
    const uint32_t kept = is_number ? largest_of(x, of.count) : (uint32_t{1} << of.count) - 1;
    std::fill_n(at, of.size(), std::byte{0});
    store_u32(at, kept);
    if (!is_number) {
        store(Type::f16, at + scale_at, static_cast<double>(std::numeric_limits<float>::quiet_NaN()));
        return;
    }
    const std::array<size_t, elements> to = places(kept, of.count);
    std::array<std::byte, 2 + elements> codes{}; // of sparse8: q8_0's
    if (type == Type::sparse8) {
        std::array<double, elements> values;
        std::copy(x.begin(), x.end(), values.begin());
        encode_ggml(Type::q8_0, codes.data(), elements, values.data());
        std::copy_n(codes.begin(), 2, at + scale_at);
    } else {
        store(Type::f16, at + scale_at, 1);
    }
    for (size_t i = 0; i < elements; ++i) {
        if ((kept >> i & 1) == 0) continue;
        std::byte* const value = at + values_at + to[i] * of.bytes;
        if (type == Type::sparse8)
            *value = codes[2 + i];
        else
            store(Type::f16, value, static_cast<double>(x[i]));
    }
}

} // namespace

void decode_sparse(Type type, const std::byte* row, int64_t n, double* x) {
    const Values of = values_of(type);
    for (int64_t first = 0; first < n; first += elements, row += of.size()) {
        uint32_t kept = 0;
        for (size_t i = 0; i < 4; ++i) kept |= std::to_integer<uint32_t>(row[i]) << 8 * i;
        const double scale = load(Type::f16, row + scale_at);
        const std::array<size_t, elements> from = places(kept, of.count);
        for (size_t i = 0; i < elements; ++i) {
            const std::byte* const value = row + values_at + from[i] * of.bytes;
            double code = 0;
            if ((kept >> i & 1) != 0)
                code = of.bytes == 2 ? load(Type::f16, value) : (std::to_integer<int>(*value) ^ 0x80) - 0x80;
            if (!std::isfinite(code)) code = std::copysign(largest_half, code);
            x[first + static_cast<int64_t>(i)] = scale * code;
        }
    }
}

void encode_sparse(Type type, std::byte* row, int64_t n, const double* x) {
    const Values of = values_of(type);
    for (int64_t first = 0; first < n; first += elements, row += of.size()) {
        Elements values;
        for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(x[first + static_cast<int64_t>(i)]);
        encode_elements(type, row, values);
    }
}

} // namespace winnow::reference
