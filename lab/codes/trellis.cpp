// The trellis code: search, packing and training.
#include "trellis.hpp"

#include "numbers.hpp"
#include "rows.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace winnow::lab {
namespace {

// One element of the search. cost and next: [2^L] least errors of paths that end in each state, before and after it.
// from: [2^(L - B)] the high B bits of the best predecessor of the states with these high bits.
// The 2^B predecessors of a state have its high L - B bits as low bits, so that all loops run over adjacent states.
template <int L, int B>
void advance(const float* __restrict cost, float* __restrict next, uint8_t* __restrict from, float y, float weight,
             const float* __restrict table) {
    constexpr int high_states = 1 << (L - B);
    constexpr int codes = 1 << B;
    alignas(64) std::array<float, high_states> best;
    alignas(64) std::array<int32_t, high_states> which;
    for (int u = 0; u < high_states; ++u) {
        best[u] = cost[u];
        which[u] = 0;
    }
    for (int h = 1; h < codes; ++h) {
        for (int u = 0; u < high_states; ++u) {
            const float other = cost[h * high_states + u];
            const bool better = other < best[u];
            best[u] = better ? other : best[u];
            which[u] = better ? h : which[u];
        }
    }
    for (int u = 0; u < high_states; ++u) from[u] = static_cast<uint8_t>(which[u]);
    for (int u = 0; u < high_states; ++u) {
        for (int c = 0; c < codes; ++c) {
            const float difference = y - table[u * codes + c];
            next[u * codes + c] = best[u] + weight * (difference * difference);
        }
    }
}

using Advance = void (*)(const float*, float*, uint8_t*, float, float, const float*);

template <int L>
constexpr std::array<Advance, most_bits + 1> advances{nullptr,       advance<L, 1>, advance<L, 2>, advance<L, 3>,
                                                      advance<L, 4>, advance<L, 5>, advance<L, 6>};

std::vector<float> gaussian_rows(Gaussian& gaussian, size_t elements) {
    std::vector<float> rows(elements);
    for (float& x : rows) x = gaussian.next();
    return rows;
}

} // namespace

float Trellis::search(const float* row, int n, const int32_t* bits, const float* weights, uint16_t* states) {
    const size_t count = size_t{1} << L_;
    constexpr float infinite = std::numeric_limits<float>::infinity();
    alignas(64) std::array<float, 512> cost;
    alignas(64) std::array<float, 512> next;
    std::fill_n(cost.begin(), count, infinite);
    cost[0] = 0;
    from_.resize(static_cast<size_t>(n) * count);
    float* now = cost.data();
    float* then = next.data();
    for (int i = 0; i < n; ++i) {
        if (bits[i] == 0) continue;
        const Advance step = (L_ == 8 ? advances<8> : advances<9>)[static_cast<size_t>(bits[i])];
        step(now, then, from_.data() + static_cast<size_t>(i) * count, row[i], weights ? weights[i] : 1.0F,
             table(bits[i]));
        std::swap(now, then);
    }
    auto state = static_cast<size_t>(std::min_element(now, now + count) - now);
    const float error = now[state];
    for (int i = n - 1; i >= 0; --i) {
        states[i] = static_cast<uint16_t>(state);
        if (bits[i] == 0) continue;
        const size_t high = state >> bits[i];
        state = static_cast<size_t>(from_[static_cast<size_t>(i) * count + high]) << (L_ - bits[i]) | high;
    }
    return error;
}

size_t packed_bytes(int n, const int32_t* bits) {
    return (static_cast<size_t>(std::accumulate(bits, bits + n, 0)) + 7) / 8;
}

void pack_states(const uint16_t* states, int n, const int32_t* bits, uint8_t* bytes) {
    std::fill_n(bytes, packed_bytes(n, bits), uint8_t{0});
    size_t at = 0;
    for (int i = n - 1; i >= 0; --i) {
        for (int k = 0; k < bits[i]; ++k, ++at) {
            bytes[at / 8] = static_cast<uint8_t>(bytes[at / 8] | ((states[i] >> k) & 1) << (at % 8));
        }
    }
}

void decode_packed(const uint8_t* bytes, int n, const int32_t* bits, const float* tables, int L, float* values) {
    auto at = static_cast<size_t>(std::accumulate(bits, bits + n, 0));
    size_t state = 0;
    for (int i = 0; i < n; ++i) {
        size_t code = 0;
        for (int k = 0; k < bits[i]; ++k) {
            --at;
            code = code << 1 | ((bytes[at / 8] >> (at % 8)) & 1U);
        }
        const size_t mask = (size_t{1} << L) - 1;
        state = ((state << bits[i]) | code) & mask;
        values[i] = bits[i] ? tables[(static_cast<size_t>(bits[i]) << L) + state] : 0.0F;
    }
}

} // namespace winnow::lab

using namespace winnow::lab;

int winnow_lab_trellis_code(const float* rows, float* decoded, int64_t count, int n, const int32_t* bits,
                            const float* weights, const float* tables, int L, int norm) {
    if (!rows || !decoded || !tables || count < 0 || (L != 8 && L != 9) || norm < 0 || norm > 1) return bad_argument;
    RowWeights scaled;
    if (const int bad = scaled.set(n, bits, weights)) return bad;
    // tables[0] is unused, and so are tables of bits that no element has; they may hold anything.
    Trellis trellis(tables, L);
    std::vector<float> unit(static_cast<size_t>(n));
    std::vector<float> values_of_row(static_cast<size_t>(n));
    std::vector<uint16_t> states(static_cast<size_t>(n));
    for (int64_t r = 0; r < count; ++r) {
        const float* row = rows + r * n;
        const double rms = row_rms(row, n, bits);
        if (!std::isfinite(rms)) return not_finite;
        const double divisor = norm == 1 && rms >= least_rms ? rms : 1;
        for (int i = 0; i < n; ++i) unit[i] = static_cast<float>(row[i] / divisor);
        if (!std::isfinite(trellis.search(unit.data(), n, bits, scaled.data(), states.data()))) return not_finite;
        for (int i = 0; i < n; ++i) values_of_row[i] = bits[i] ? trellis.table(bits[i])[states[i]] : 0.0F;
        const float scale = norm == 1 ? best_scale(values_of_row.data(), row, scaled.data(), n).scale : 1.0F;
        for (int i = 0; i < n; ++i) decoded[r * n + i] = scale * values_of_row[i];
    }
    return done;
}

int winnow_lab_trellis_train_passes(int L, int bits, uint64_t seed, int passes, float* table, double* mse) {
    if (!table || !mse || passes < 0 || (L != 8 && L != 9) || bits < 1 || bits > most_bits) return bad_argument;
    constexpr int length = 64;
    constexpr size_t row_count = 1500;
    constexpr size_t test_rows = 4000;
    Gaussian gaussian(seed);
    const size_t count = size_t{1} << L;
    std::vector<size_t> rank(count >> bits);
    std::iota(rank.begin(), rank.end(), size_t{0});
    for (size_t i = rank.size(); i > 1; --i) std::swap(rank[i - 1], rank[gaussian.next_bits() % i]);

    std::vector<float> tables((most_bits + 1) * count);
    float* values = tables.data() + static_cast<size_t>(bits) * count;
    for (size_t s = 0; s < count; ++s) {
        const auto code = static_cast<double>(s & ((size_t{1} << bits) - 1));
        const double place = (static_cast<double>(rank[s >> bits]) + 0.5) / static_cast<double>(rank.size());
        values[s] = static_cast<float>(normal_quantile((code + place) / (1 << bits)));
    }
    const std::vector<float> rows = gaussian_rows(gaussian, row_count * length);
    const std::vector<float> test = gaussian_rows(gaussian, test_rows * length);
    const std::vector<int32_t> all_bits(length, bits);
    std::array<uint16_t, length> states{};
    Trellis trellis(tables.data(), L);
    for (int pass = 0; pass < passes; ++pass) {
        std::vector<double> sums(count);
        std::vector<int> counts(count);
        for (size_t r = 0; r < row_count; ++r) {
            const float* row = rows.data() + r * length;
            trellis.search(row, length, all_bits.data(), nullptr, states.data());
            for (size_t i = 0; i < length; ++i) {
                sums[states[i]] += row[i];
                ++counts[states[i]];
            }
        }
        for (size_t s = 0; s < count; ++s) {
            if (counts[s]) values[s] = static_cast<float>(sums[s] / counts[s]);
        }
    }
    double error = 0;
    for (size_t r = 0; r < test_rows; ++r) {
        error += trellis.search(test.data() + r * length, length, all_bits.data(), nullptr, states.data());
    }
    *mse = error / static_cast<double>(test_rows * length);
    std::copy_n(values, count, table);
    return done;
}

int winnow_lab_trellis_train(int L, int bits, uint64_t seed, float* table, double* mse) {
    return winnow_lab_trellis_train_passes(L, bits, seed, 20, table, mse);
}
