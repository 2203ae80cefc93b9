// The scalar code: Lloyd-Max levels of a Gaussian with a scale for each row.
#include "numbers.hpp"
#include "rows.hpp"
#include "trellis.hpp"

#include <algorithm>
#include <array>

namespace winnow::lab {
namespace {

// Levels of one number of bits for a Gaussian of variance 1.
struct Levels {
    std::vector<double> exact;
    double mse = 0;
    std::array<float, 64> values{};
    std::array<float, 64> limits{}; // limits[i]: between the levels i and i + 1
};

// Lloyd's iteration: each level moves to the mean of what is nearest to it, until nothing moves.
Levels lloyd_max(int bits) {
    const size_t count = size_t{1} << bits;
    Levels levels;
    levels.exact.resize(count);
    for (size_t i = 0; i < count; ++i) { // the best levels in the limit of many
        levels.exact[i] = std::sqrt(3.0) * normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(count));
    }
    std::vector<double>& level = levels.exact;
    double moved = 1;
    for (int pass = 0; pass < 100000 && moved > 1e-13; ++pass) {
        moved = 0;
        levels.mse = 1;
        double density = 0;
        double below = 0;
        const std::vector<double> old = level;
        for (size_t i = 0; i < count; ++i) {
            const bool last = i + 1 == count;
            const double limit = last ? 0 : 0.5 * (old[i] + old[i + 1]);
            const double next_density = last ? 0 : normal_density(limit);
            const double next_below = last ? 1 : normal_below(limit);
            const double probability = next_below - below;
            level[i] = (density - next_density) / probability;
            levels.mse -= probability * level[i] * level[i];
            moved = std::max(moved, std::fabs(level[i] - old[i]));
            density = next_density;
            below = next_below;
        }
    }
    for (size_t i = 0; i < count; ++i) {
        levels.values[i] = static_cast<float>(level[i]);
        if (i + 1 < count) levels.limits[i] = static_cast<float>(0.5 * (level[i] + level[i + 1]));
    }
    return levels;
}

const Levels& levels_of(int bits) {
    static const std::array<Levels, most_bits> all{lloyd_max(1), lloyd_max(2), lloyd_max(3),
                                                   lloyd_max(4), lloyd_max(5), lloyd_max(6)};
    return all[static_cast<size_t>(bits) - 1];
}

// A row with its elements ordered by bits, so that a loop over elements of the same bits can be vectorised.
struct Ordered {
    std::vector<int> order;                        // elements with bits, fewest bits first
    std::array<size_t, most_bits + 2> starts{};    // starts[b]: the first with b bits in `order`
    std::vector<float> row, values, best, weights; // in that order
};

Ordered order_by_bits(int n, const int32_t* bits, const float* weights) {
    Ordered ordered;
    for (int b = 1; b <= most_bits; ++b) {
        ordered.starts[static_cast<size_t>(b)] = ordered.order.size();
        for (int i = 0; i < n; ++i) {
            if (bits[i] != b) continue;
            ordered.order.push_back(i);
            ordered.weights.push_back(weights[i]);
        }
    }
    ordered.starts[most_bits + 1] = ordered.order.size();
    for (auto* part : {&ordered.row, &ordered.values, &ordered.best}) part->resize(ordered.order.size());
    return ordered;
}

// Takes the nearest level of row[i] * factor, the lower of two at the same distance.
void take_levels(const float* __restrict row, size_t n, int bits, float factor, float* __restrict values) {
    const Levels& levels = levels_of(bits);
    for (size_t i = 0; i < n; ++i) {
        const float x = row[i] * factor;
        int32_t code = 0;
        for (int32_t half = 1 << (bits - 1); half; half >>= 1) {
            code += x > levels.limits[static_cast<size_t>(code + half - 1)] ? half : 0;
        }
        values[i] = levels.values[static_cast<size_t>(code)];
    }
}

// Finds the best values of ordered.row into ordered.best and returns their scale.
float search_scale(Ordered& ordered, double rms, int first, int last) {
    double least = 0;
    float scale = 0;
    for (int t = first; t <= last; ++t) {
        const auto factor = static_cast<float>(1 / (rms * (0.76 + 0.06 * t)));
        for (int b = 1; b <= most_bits; ++b) {
            const size_t from = ordered.starts[static_cast<size_t>(b)];
            const size_t to = ordered.starts[static_cast<size_t>(b) + 1];
            if (from == to) continue;
            take_levels(ordered.row.data() + from, to - from, b, factor, ordered.values.data() + from);
        }
        const ScaledError found = best_scale(ordered.values.data(), ordered.row.data(), ordered.weights.data(),
                                             static_cast<int>(ordered.row.size()));
        if (t == first || found.error < least) {
            least = found.error;
            scale = found.scale;
            ordered.best.swap(ordered.values);
        }
    }
    return scale;
}

} // namespace
} // namespace winnow::lab

using namespace winnow::lab;

int winnow_lab_scalar_code(const float* rows, float* decoded, int64_t count, int n, const int32_t* bits,
                           const float* weights, int search) {
    if (!rows || !decoded || count < 0 || search < 0 || search > 1) return bad_argument;
    RowWeights scaled;
    if (const int bad = scaled.set(n, bits, weights)) return bad;
    Ordered ordered = order_by_bits(n, bits, scaled.data());
    for (int64_t r = 0; r < count; ++r) {
        const double rms = row_rms(rows + r * n, n, bits);
        if (!std::isfinite(rms)) return not_finite;
        std::fill_n(decoded + r * n, n, 0.0F);
        if (rms < least_rms) continue;
        for (size_t i = 0; i < ordered.order.size(); ++i) ordered.row[i] = rows[r * n + ordered.order[i]];
        const float scale = search_scale(ordered, rms, search ? 0 : 4, search ? 8 : 4);
        for (size_t i = 0; i < ordered.order.size(); ++i) decoded[r * n + ordered.order[i]] = scale * ordered.best[i];
    }
    return done;
}

int winnow_lab_scalar_levels(int bits, double* levels, double* mse) {
    if (!levels || !mse || bits < 1 || bits > most_bits) return bad_argument;
    const Levels& found = levels_of(bits);
    std::copy(found.exact.begin(), found.exact.end(), levels);
    *mse = found.mse;
    return done;
}
