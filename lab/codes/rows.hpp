// What the trellis and the scalar code do alike with a row.
#pragma once

#include "numbers.hpp"
#include "trellis.hpp"

#include <algorithm>
#include <vector>

namespace winnow::lab {

// Rows of a smaller root mean square have a scale that rounds to 0.
constexpr double least_rms = 0x1p-60;

// The weights of a row's elements, divided by the largest, so that weighted errors do not overflow.
class RowWeights {
public:
    // Checks bits and weights. weights: NULL for 1 everywhere.
    int set(int n, const int32_t* bits, const float* weights) {
        if (n < 1 || n > most_elements || !bits) return bad_argument;
        for (int i = 0; i < n; ++i) {
            if (bits[i] < 0 || bits[i] > most_bits) return bad_argument;
            if (weights && !std::isfinite(weights[i])) return not_finite;
            if (weights && weights[i] < 0) return bad_argument;
        }
        scaled_.assign(static_cast<size_t>(n), 1.0F);
        const float largest = weights ? *std::max_element(weights, weights + n) : 0.0F;
        for (size_t i = 0; largest > 0 && i < scaled_.size(); ++i) scaled_[i] = weights[i] / largest;
        return done;
    }

    const float* data() const { return scaled_.data(); }

private:
    std::vector<float> scaled_;
};

// Returns the root mean square of the elements with bits: 0 if there are none, not finite if any element is not.
inline double row_rms(const float* row, int n, const int32_t* bits) {
    double sum = 0;
    double others = 0;
    int coded = 0;
    for (int i = 0; i < n; ++i) {
        const double square = static_cast<double>(row[i]) * static_cast<double>(row[i]);
        sum += bits[i] ? square : 0;
        others += square;
        coded += bits[i] != 0;
    }
    if (!std::isfinite(others)) return others;
    return coded ? std::sqrt(sum / coded) : 0;
}

struct ScaledError {
    float scale;  // a half
    double error; // weighted squared error, less the weighted square of the row
};

// Returns the half that is the best scale for `values` (0 for elements without bits) as an approximation of `row`.
inline ScaledError best_scale(const float* values, const float* row, const float* weights, int n) {
    double products = 0;
    double squares = 0;
    for (int i = 0; i < n; ++i) {
        const double weighted = static_cast<double>(weights[i]) * static_cast<double>(values[i]);
        products += weighted * static_cast<double>(row[i]);
        squares += weighted * static_cast<double>(values[i]);
    }
    const float scale = squares > 0 ? round_to_half(static_cast<float>(products / squares)) : 0.0F;
    return {scale, static_cast<double>(scale) * static_cast<double>(scale) * squares -
                       2 * static_cast<double>(scale) * products};
}

} // namespace winnow::lab
