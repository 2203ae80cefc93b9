// A row: [chunks of 16 codes][f16 scale]; the row's element e after the rotation is scale * centroid of code e.
#include "reference/formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/element.hpp"
#include "reference/rotation.hpp"

namespace winnow::reference {
namespace {

constexpr int64_t chunk = 16; // elements
constexpr double largest_scale = 65504;
constexpr double least_root_mean_square = 0x1p-25; // half of the smallest scale: rows below are stored as zeros

// Centroids of Lloyd and Max for the normal distribution with variance 1, the positive half, ascending.
constexpr std::array<double, 2> half_of_4 = {.452780, 1.510418};
constexpr std::array<double, 4> half_of_8 = {.245094, .756005, 1.343909, 2.151946};
constexpr std::array<double, 8> half_of_16 = {.128395,  .388048,  .656759,  .942340,
                                              1.256231, 1.618046, 2.069017, 2.732590};

template <size_t count>
std::vector<double> mirrored(const std::array<double, count>& positive) {
    std::vector<double> all;
    for (size_t i = count; i-- > 0;) all.push_back(-positive[i]);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
}

const std::vector<double>& codebook(int bits) {
    static const std::vector<double> of_2 = mirrored(half_of_4);
    static const std::vector<double> of_3 = mirrored(half_of_8);
    static const std::vector<double> of_4 = mirrored(half_of_16);
    return bits == 2 ? of_2 : bits == 3 ? of_3 : of_4;
}

int code_bits(Type type, int64_t at_chunk, int64_t chunks) {
    const bool in_first_half = at_chunk < (chunks + 1) / 2;
    switch (type) {
    case Type::turbo4: return 4;
    case Type::turbo3: return 3;
    case Type::turbo2: return 2;
    case Type::turbo3_5: return in_first_half ? 4 : 3;
    case Type::turbo2_5: return in_first_half ? 3 : 2;
    default: refuse_type(type);
    }
}

// A chunk of b-bit codes is 2b bytes: the eight even elements, lowest bits first, then the eight odd ones.
int first_bit(int bits, int64_t element) { return bits * static_cast<int>(element / 2 + (element % 2) * 8); }

int read_code(const std::byte* at, int bits, int64_t element) {
    int code = 0;
    for (int i = 0; i < bits; ++i) {
        const int bit = first_bit(bits, element) + i;
        code |= (static_cast<int>(at[bit / 8]) >> (bit % 8) & 1) << i;
    }
    return code;
}

void write_code(std::byte* at, int bits, int64_t element, int code) {
    for (int i = 0; i < bits; ++i) {
        const int bit = first_bit(bits, element) + i;
        at[bit / 8] |= static_cast<std::byte>((code >> i & 1) << (bit % 8));
    }
}

// The nearest centroid; exactly between two, the lower.
int nearest(const std::vector<double>& centroids, double z) {
    int code = 0;
    for (size_t i = 0; i + 1 < centroids.size(); ++i)
        if (z > (centroids[i] + centroids[i + 1]) / 2) code = static_cast<int>(i) + 1;
    return code;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

double scale_of(Norm norm, const std::vector<double>& y, const std::vector<double>& chosen) {
    const double squared = dot(y, y);
    switch (norm) {
    case Norm::plain: return std::sqrt(squared / static_cast<double>(y.size()));
    case Norm::corrected: return std::sqrt(squared / dot(chosen, chosen));
    case Norm::unit_slope: return squared / dot(chosen, y);
    }
    return std::numeric_limits<double>::quiet_NaN();
}

} // namespace

void decode_turbo(Type type, const std::byte* row, int64_t n, double* x) {
    const double scale = load(Type::f16, row + row_bytes(type, n) - 2);
    for (int64_t at = 0; at < n / chunk; ++at) {
        const int bits = code_bits(type, at, n / chunk);
        const std::vector<double>& centroids = codebook(bits);
        for (int64_t i = 0; i < chunk; ++i)
            x[at * chunk + i] = scale * centroids[static_cast<size_t>(read_code(row, bits, i))];
        row += 2 * bits;
    }
    rotate_back(x, n);
}

void encode_turbo(Type type, std::byte* row, int64_t n, const double* x, Norm norm) {
    const bool is_finite = std::all_of(x, x + n, [](double value) { return std::isfinite(value); });
    std::vector<double> y(x, x + n);
    if (!is_finite) std::fill(y.begin(), y.end(), 0); // the codes of zero, so that only the scale says NaN
    rotate(y.data(), n);
    const double root_mean_square = scale_of(Norm::plain, y, y);
    const bool vanishes = root_mean_square < least_root_mean_square;

    std::vector<double> chosen;
    std::fill_n(row, row_bytes(type, n), std::byte{0});
    for (int64_t at = 0; at < n / chunk; ++at) {
        const int bits = code_bits(type, at, n / chunk);
        const std::vector<double>& centroids = codebook(bits);
        for (int64_t i = 0; i < chunk; ++i) {
            const double z = vanishes ? 0 : y[static_cast<size_t>(at * chunk + i)] / root_mean_square;
            const int code = nearest(centroids, z);
            write_code(row, bits, i, code);
            chosen.push_back(centroids[static_cast<size_t>(code)]);
        }
        row += 2 * bits;
    }

    double scale = vanishes ? 0 : std::min(scale_of(norm, y, chosen), largest_scale);
    if (!is_finite) scale = std::numeric_limits<double>::quiet_NaN();
    store(Type::f16, row, scale);
}

} // namespace winnow::reference
