// Numbers that both codes of the lab need: the normal distribution, halves and a generator of random numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace winnow::lab {

inline double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

inline double normal_below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// Returns x with normal_below(x) = p, by bisection; 0 < p < 1.
inline double normal_quantile(double p) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; ++i) {
        const double middle = 0.5 * (low + high);
        (normal_below(middle) < p ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

// Rounds to the nearest IEEE half, ties to even. Beyond the range of halves it is the largest half, 65504.
inline float round_to_half(float x) {
    const float size = std::fabs(x);
    if (size >= 65504) return std::copysign(65504.0F, x);
    int exponent = 0;
    std::frexp(size, &exponent);
    const int unit = (exponent > -13 ? exponent : -13) - 11; // of the last bit; -24 for subnormal halves
    return std::copysign(std::ldexp(std::nearbyint(std::ldexp(size, -unit)), unit), x);
}

// Gaussian numbers from SplitMix64 and the Box-Muller transform: the same for the same seed, but for
// what the system's log and cos differ in.
class Gaussian {
public:
    explicit Gaussian(uint64_t seed) : state_(seed) {}

    uint64_t next_bits() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
        return z ^ (z >> 31);
    }

    float next() {
        const double radius = std::sqrt(-2 * std::log((static_cast<double>(next_bits() >> 11) + 0.5) * 0x1p-53));
        const double angle = 2 * std::numbers::pi * static_cast<double>(next_bits() >> 11) * 0x1p-53;
        return static_cast<float>(radius * std::cos(angle));
    }

private:
    uint64_t state_;
};

} // namespace winnow::lab
