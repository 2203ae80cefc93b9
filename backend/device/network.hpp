// A small network of a KV head that predicts, from what the cache keeps of a token, how much attention the token is
// going to get: the definition that kernels are held to.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace winnow {

// A hidden unit: what it takes of each input, its bias, and what the prediction takes of it.
struct HiddenUnit {
    float importance = 0, age = 0, bias = 0, out = 0;
};

inline constexpr int64_t network_hidden = 8;
inline constexpr int64_t network_numbers = 4 * network_hidden; // of a KV head: the hidden units, one after another
inline constexpr double largest_network_number = 1 << 20;      // or its negative: no prediction overflows a float

// Of an importance of NaN, as of one below it.
inline constexpr double least_importance_input = 1.0 / (1 << 24), largest_importance_input = 1 << 24;

// The inputs are logarithms: of the importance within these limits, and of the queries that saw the token, at least
// one. Hidden units are 0 where they would be negative.
inline double predict(const HiddenUnit* units, double importance, int64_t queries_seen) {
    const double kept =
        importance > least_importance_input ? std::min(importance, largest_importance_input) : least_importance_input;
    const double by_importance = std::log(kept), by_age = std::log(std::max<double>(1, queries_seen));
    double sum = 0;
    for (int64_t i = 0; i < network_hidden; ++i) {
        const HiddenUnit& unit = units[i];
        const double hidden = static_cast<double>(unit.importance) * by_importance +
                              static_cast<double>(unit.age) * by_age + static_cast<double>(unit.bias);
        sum += static_cast<double>(unit.out) * std::max(hidden, 0.0);
    }
    return sum;
}

} // namespace winnow
