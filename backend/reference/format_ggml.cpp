// Quantizing is float arithmetic, one operation after another in ggml's order, since another order gives other bits.
// Reading is exact.
#include "reference/formats.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "reference/element.hpp"

namespace winnow::reference {
namespace {

constexpr int block = 32;
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

constexpr std::array<int, 16> iq4_nl_values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// What a block says: x = scale * (code - zero) + minimum, or scale * value of the code.
struct Block {
    float scale = 0;
    float minimum = 0; // only where the format has one
    std::array<int, block> code{};
};

// How a format lays its block out: [f16 scale][f16 minimum][4 bytes of fifth bits][codes].
struct Layout {
    int bits;
    bool has_minimum;
    int header() const { return has_minimum ? 4 : 2; }
    int bytes() const { return header() + block * bits / 8; }
};

Layout layout(Type type) {
    switch (type) {
    case Type::q8_0: return {8, false};
    case Type::q5_1: return {5, true};
    case Type::q5_0: return {5, false};
    case Type::q4_1: return {4, true};
    case Type::q4_0:
    case Type::iq4_nl: return {4, false};
    default: refuse_type(type);
    }
}

// A code's bits into place: element j and element j + 16 share a byte.
void pack(Layout layout, const Block& from, std::byte* at) {
    std::fill_n(at, layout.bytes(), std::byte{0});
    store(Type::f16, at, from.scale);
    if (layout.has_minimum) store(Type::f16, at + 2, from.minimum);
    std::byte* codes = at + layout.header();
    if (layout.bits == 8) {
        for (int i = 0; i < block; ++i) codes[i] = static_cast<std::byte>(from.code[static_cast<size_t>(i)] & 0xff);
        return;
    }
    if (layout.bits == 5) {
        for (int i = 0; i < block; ++i)
            codes[i / 8] |= static_cast<std::byte>(((from.code[static_cast<size_t>(i)] >> 4) & 1) << (i % 8));
        codes += 4;
    }
    for (int i = 0; i < block; ++i)
        codes[i % 16] |= static_cast<std::byte>((from.code[static_cast<size_t>(i)] & 15) << (i / 16 * 4));
}

Block unpack(Layout layout, const std::byte* at) {
    Block to;
    to.scale = static_cast<float>(load(Type::f16, at));
    if (layout.has_minimum) to.minimum = static_cast<float>(load(Type::f16, at + 2));
    const std::byte* codes = at + layout.header();
    if (layout.bits == 8) {
        for (int i = 0; i < block; ++i)
            to.code[static_cast<size_t>(i)] = (static_cast<int>(codes[i]) ^ 0x80) - 0x80; // its sign extended
        return to;
    }
    if (layout.bits == 5) {
        for (int i = 0; i < block; ++i)
            to.code[static_cast<size_t>(i)] = (static_cast<int>(codes[i / 8]) >> (i % 8) & 1) << 4;
        codes += 4;
    }
    for (int i = 0; i < block; ++i)
        to.code[static_cast<size_t>(i)] |= static_cast<int>(codes[i % 16]) >> (i / 16 * 4) & 15;
    return to;
}

// Towards zero. Where 1 / scale overflows (the scale that is stored is 0 then) products are infinite or NaN, which C
// leaves undefined; ggml's x86 builds end up with 0.
int truncated(float value) { return std::fabs(value) < 1e9f ? static_cast<int>(value) : 0; }

float inverse(float scale) { return scale != 0 ? 1.0f / scale : 0.0f; }

// The element with the largest magnitude, the first of several.
float extreme(const std::array<float, block>& x) {
    float largest = 0;
    float found = 0;
    for (float value : x)
        if (largest < std::fabs(value)) {
            largest = std::fabs(value);
            found = value;
        }
    return found;
}

Block quantize_q8_0(const std::array<float, block>& x) {
    Block to;
    to.scale = std::fabs(extreme(x)) / 127;
    const float factor = inverse(to.scale);
    for (size_t i = 0; i < block; ++i) to.code[i] = truncated(std::round(x[i] * factor));
    return to;
}

// q4_0 and q5_0: the extreme element becomes code 0, and the middle code stands for zero.
Block quantize_symmetric(const std::array<float, block>& x, int middle) {
    Block to;
    to.scale = extreme(x) / static_cast<float>(-middle);
    const float factor = inverse(to.scale);
    for (size_t i = 0; i < block; ++i) {
        const float scaled = x[i] * factor;
        to.code[i] = std::min(2 * middle - 1, truncated(scaled + (static_cast<float>(middle) + 0.5f)));
    }
    return to;
}

// q4_1 and q5_1: codes count from the minimum.
Block quantize_asymmetric(const std::array<float, block>& x, int levels) {
    Block to;
    to.minimum = *std::min_element(x.begin(), x.end());
    to.scale = (*std::max_element(x.begin(), x.end()) - to.minimum) / static_cast<float>(levels - 1);
    const float factor = inverse(to.scale);
    for (size_t i = 0; i < block; ++i) {
        const float above = x[i] - to.minimum;
        const float scaled = above * factor;
        to.code[i] = std::min(levels - 1, truncated(scaled + 0.5f));
    }
    return to;
}

// The nearest of the values; of two equally near ones the larger.
int nearest_iq4_nl(float x) {
    const auto above = std::upper_bound(iq4_nl_values.begin(), iq4_nl_values.end(), x,
                                        [](float left, int right) { return left < static_cast<float>(right); });
    if (above == iq4_nl_values.begin()) return 0;
    if (above == iq4_nl_values.end()) return 15;
    const int index = static_cast<int>(above - iq4_nl_values.begin());
    return x - static_cast<float>(*(above - 1)) < static_cast<float>(*above) - x ? index - 1 : index;
}

// The scale is the least squares fit for the codes that the extreme element's scale gives, weighted by x^2.
Block quantize_iq4_nl(const std::array<float, block>& x) {
    Block to;
    const float largest = extreme(x);
    if (std::fabs(largest) < 1e-15f) { // ggml leaves these codes undefined: the value next to zero
        to.code.fill(nearest_iq4_nl(0));
        return to;
    }
    const float factor = 1 / (largest / static_cast<float>(iq4_nl_values[0]));
    float products = 0;
    float squares = 0;
    for (size_t i = 0; i < block; ++i) {
        to.code[i] = nearest_iq4_nl(factor * x[i]);
        const float value = static_cast<float>(iq4_nl_values[static_cast<size_t>(to.code[i])]);
        const float weight = x[i] * x[i];
        const float weighted = weight * value;
        const float product = weighted * x[i];
        const float square = weighted * value;
        products += product;
        squares += square;
    }
    to.scale = squares > 0 ? products / squares : 0.0f;
    if (std::isnan(to.scale)) to.scale = quiet_nan; // squares that overflowed: without a sign
    return to;
}

Block quantize(Type type, const std::array<float, block>& x) {
    if (!std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); })) {
        Block unknown; // ggml leaves it undefined; here everything in the block reads as NaN
        unknown.scale = unknown.minimum = quiet_nan;
        return unknown;
    }
    switch (type) {
    case Type::q8_0: return quantize_q8_0(x);
    case Type::q5_1: return quantize_asymmetric(x, 32);
    case Type::q5_0: return quantize_symmetric(x, 16);
    case Type::q4_1: return quantize_asymmetric(x, 16);
    case Type::q4_0: return quantize_symmetric(x, 8);
    case Type::iq4_nl: return quantize_iq4_nl(x);
    default: refuse_type(type);
    }
}

double value(Type type, const Block& from, int i) {
    const int code = from.code[static_cast<size_t>(i)];
    const double scale = static_cast<double>(from.scale);
    switch (type) {
    case Type::q8_0: return scale * code;
    case Type::q5_1:
    case Type::q4_1: return scale * code + static_cast<double>(from.minimum);
    case Type::q5_0: return scale * (code - 16);
    case Type::q4_0: return scale * (code - 8);
    case Type::iq4_nl: return scale * iq4_nl_values[static_cast<size_t>(code)];
    default: refuse_type(type);
    }
}

} // namespace

void decode_ggml(Type type, const std::byte* row, int64_t n, double* x) {
    const Layout of = layout(type);
    for (int64_t first = 0; first < n; first += block, row += of.bytes()) {
        const Block from = unpack(of, row);
        for (int i = 0; i < block; ++i) x[first + i] = value(type, from, i);
    }
}

void encode_ggml(Type type, std::byte* row, int64_t n, const double* x) {
    const Layout of = layout(type);
    for (int64_t first = 0; first < n; first += block, row += of.bytes()) {
        std::array<float, block> values;
        for (int i = 0; i < block; ++i) values[static_cast<size_t>(i)] = static_cast<float>(x[first + i]);
        pack(of, quantize(type, values), row);
    }
}

} // namespace winnow::reference
