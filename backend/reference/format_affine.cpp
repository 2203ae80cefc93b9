// A row: [codes][f16 scale of each group][f16 bias of each group]; x = scale * code + bias. Quantizing is float
// arithmetic, one operation after another in MLX's order.
#include "reference/formats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/element.hpp"

namespace winnow::reference {
namespace {

constexpr float smallest_scale = 1e-7f;
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

struct Group {
    float scale = 0;
    float bias = 0;
    std::vector<int> codes;
};

// The places of a row's parts.
struct Layout {
    int bits;
    int64_t group, groups, scales, biases; // elements, count, bytes, bytes

    Layout(Type type, int64_t n)
        : bits(type < Type::affine4_g32 ? 8 : 4), group(group_elements(type)), groups(n / group), scales(n * bits / 8),
          biases(scales + 2 * groups) {}
};

// The edge of the range that is farther from zero is met, the other edge to within half a step. The scale is chosen so
// that zero is a code if it lies in the range; rounding the scale to a half moves it a little.
Group quantize(const std::vector<float>& x, int bits) {
    Group to;
    to.codes.resize(x.size());
    if (!std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); })) {
        to.scale = to.bias = quiet_nan;
        return to;
    }
    const float largest_code = static_cast<float>((1 << bits) - 1);
    const float minimum = *std::min_element(x.begin(), x.end());
    const float maximum = *std::max_element(x.begin(), x.end());
    const float range = maximum - minimum;
    to.scale = std::max(range / largest_code, smallest_scale);
    const bool from_minimum = std::fabs(minimum) > std::fabs(maximum);
    const float edge = from_minimum ? minimum : maximum;
    if (!from_minimum) to.scale = -to.scale;
    const float steps = std::rint(edge / to.scale);
    if (steps != 0) {
        to.scale = edge / steps;
        to.bias = edge;
    }
    for (size_t i = 0; i < x.size(); ++i) {
        const float above = x[i] - to.bias;
        const float code = std::rint(above / to.scale); // NaN where the range is beyond a float: 0
        to.codes[i] = code > 0 ? static_cast<int>(std::min(code, largest_code)) : 0;
    }
    // A scale that is 0 / 0 or the like says so without a sign.
    if (std::isnan(to.scale)) to.scale = quiet_nan;
    return to;
}

} // namespace

void decode_affine(Type type, const std::byte* row, int64_t n, double* x) {
    const Layout layout(type, n);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t group = i / layout.group;
        const int64_t bit = i * layout.bits;
        const int code = static_cast<int>(row[bit / 8]) >> (bit % 8) & ((1 << layout.bits) - 1);
        x[i] =
            load(Type::f16, row + layout.scales + 2 * group) * code + load(Type::f16, row + layout.biases + 2 * group);
    }
}

void encode_affine(Type type, std::byte* row, int64_t n, const double* x) {
    const Layout layout(type, n);
    std::fill_n(row, layout.scales, std::byte{0});
    for (int64_t group = 0; group < layout.groups; ++group) {
        const int64_t first = group * layout.group;
        std::vector<float> values(x + first, x + first + layout.group);
        const Group to = quantize(values, layout.bits);
        for (int64_t i = 0; i < layout.group; ++i) {
            const int64_t bit = (first + i) * layout.bits;
            row[bit / 8] |= static_cast<std::byte>(to.codes[static_cast<size_t>(i)] << (bit % 8));
        }
        store(Type::f16, row + layout.scales + 2 * group, to.scale);
        store(Type::f16, row + layout.biases + 2 * group, to.bias);
    }
}

} // namespace winnow::reference
