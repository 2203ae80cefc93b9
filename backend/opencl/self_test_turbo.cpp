// Codes, factor and bytes of a turbo row.
#include "opencl/self_test_turbo.hpp"

#include <array>
#include <cmath>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr std::array positive_of_3{.245094, .756005, 1.343909, 2.151946};
constexpr std::array positive_of_4{.128395, .388048, .656759, .942340, 1.256231, 1.618046, 2.069017, 2.732590};

double centroid(int bits, uint32_t code) {
    const uint32_t half = uint32_t{1} << (bits - 1);
    const auto positive = [&](uint32_t i) { return bits == 3 ? positive_of_3.at(i) : positive_of_4.at(i); };
    return code < half ? -positive(half - 1 - code) : positive(code - half);
}

// How far x is from the nearest number at which it would be rounded to another half; in the last place of one.
double distance_from_tie(double x, double& rounded) {
    int exponent = 0;
    const double places = std::ldexp(std::frexp(x, &exponent), 11);
    rounded = std::ldexp(std::nearbyint(places), exponent - 11);
    return std::abs(places - std::floor(places) - .5);
}

} // namespace

void TurboRow::store(uint8_t* at) const {
    for (size_t chunk = 0; chunk < codes.size(); chunk += 16)
        for (size_t odd = 0; odd < 2; ++odd) {
            uint32_t joined = 0;
            for (size_t i = 0; i < 8; ++i) joined |= codes[chunk + 2 * i + odd] << bits * static_cast<int>(i);
            for (int byte = 0; byte < bits; ++byte) *at++ = static_cast<uint8_t>(joined >> 8 * byte);
        }
    const uint16_t half = half_bits(factor);
    at[0] = static_cast<uint8_t>(half);
    at[1] = static_cast<uint8_t>(half >> 8);
}

std::vector<double> TurboRow::numbers() const {
    std::vector<double> row;
    for (const uint32_t code : codes) row.push_back(factor * centroid(bits, code));
    rotate_back(row);
    return row;
}

TurboRow quantized(int bits, Norm norm, const std::vector<double>& x, bool& is_clear) {
    constexpr double near_midpoint = 1e-4, near_tie = .02;
    std::vector<double> z = x;
    rotate_row(z);
    double squares = 0, of_centroids = 0, products = 0; // |x|^2, |c|^2 and c . y of the page
    for (const double each : z) squares += each * each;
    const double r = std::sqrt(squares / static_cast<double>(x.size()));
    TurboRow row{bits, {}, 0};
    is_clear = true;
    for (double& each : z) {
        each /= r;
        uint32_t code = 0;
        for (uint32_t below = 0; below + 1 < uint32_t{1} << bits; ++below) {
            const double midpoint = (centroid(bits, below) + centroid(bits, below + 1)) / 2;
            if (each > midpoint) code = below + 1;
            is_clear = is_clear && std::abs(each - midpoint) > near_midpoint;
        }
        row.codes.push_back(code);
        of_centroids += centroid(bits, code) * centroid(bits, code);
        products += centroid(bits, code) * each * r;
    }
    double factor = 0;
    const double exact = norm == Norm::unit_slope ? squares / products : std::sqrt(squares / of_centroids);
    is_clear = distance_from_tie(exact, factor) > near_tie && is_clear;
    row.factor = static_cast<float>(factor);
    return row;
}

} // namespace winnow::opencl
