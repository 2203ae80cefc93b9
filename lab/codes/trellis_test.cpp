// The codes of the lab against their definitions: all code sequences of short rows, and rows that nobody should send.
#include "numbers.hpp"
#include "trellis.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

namespace winnow::lab {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> gaussian(size_t count, uint64_t seed) {
    Gaussian numbers(seed);
    std::vector<float> all(count);
    for (float& x : all) x = numbers.next();
    return all;
}

std::vector<float> random_tables(int L) { return gaussian(static_cast<size_t>(most_bits + 1) << L, 11); }

// The least weighted squared error of all code sequences.
double least_error(const float* row, const std::vector<int32_t>& bits, const float* weights,
                   const std::vector<float>& tables, int L, size_t i = 0, size_t state = 0) {
    if (i == bits.size()) return 0;
    if (bits[i] == 0) return least_error(row, bits, weights, tables, L, i + 1, state);
    double least = std::numeric_limits<double>::infinity();
    for (size_t code = 0; code < size_t{1} << bits[i]; ++code) {
        const size_t next = (state << bits[i] | code) & ((size_t{1} << L) - 1);
        const double off = static_cast<double>(row[i]) - tables[(static_cast<size_t>(bits[i]) << L) + next];
        least = std::min(least, weights[i] * off * off + least_error(row, bits, weights, tables, L, i + 1, next));
    }
    return least;
}

double weighted_error(const float* row, const float* values, const float* weights, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i)
        sum += weights[i] * (static_cast<double>(row[i]) - values[i]) * (static_cast<double>(row[i]) - values[i]);
    return sum;
}

TEST(trellis, finds_the_least_error_of_all_sequences) {
    const std::vector<std::vector<int32_t>> cases{{2, 2, 2, 2}, {3, 3, 3, 3}, {2, 2, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1},
                                                  {5, 0, 3, 1}, {6, 4, 2},    {0, 0, 4, 4, 0, 3}};
    for (const int L : {8, 9}) {
        const std::vector<float> tables = random_tables(L);
        Trellis trellis(tables.data(), L);
        for (const std::vector<int32_t>& bits : cases) {
            for (uint64_t seed = 0; seed < 20; ++seed) {
                const size_t n = bits.size();
                const std::vector<float> row = gaussian(n, seed);
                std::vector<float> weights = gaussian(n, seed + 100);
                for (float& w : weights) w = w * w;
                std::vector<uint16_t> states(n);
                const float error =
                    trellis.search(row.data(), static_cast<int>(n), bits.data(), weights.data(), states.data());
                EXPECT_NEAR(error, least_error(row.data(), bits, weights.data(), tables, L), 1e-5);
            }
        }
    }
}

TEST(trellis, packed_rows_decode_to_the_states) {
    const std::vector<std::vector<int32_t>> cases{
        std::vector<int32_t>(64, 2), std::vector<int32_t>(64, 3), {5, 5, 4, 3, 0, 1, 2, 6, 1, 1}};
    for (const int L : {8, 9}) {
        const std::vector<float> tables = random_tables(L);
        Trellis trellis(tables.data(), L);
        for (const std::vector<int32_t>& bits : cases) {
            const int n = static_cast<int>(bits.size());
            const std::vector<float> row = gaussian(bits.size(), 5);
            const std::vector<float> weights(bits.size(), 1.0F);
            std::vector<uint16_t> states(bits.size());
            const float error = trellis.search(row.data(), n, bits.data(), nullptr, states.data());
            std::vector<uint8_t> bytes(packed_bytes(n, bits.data()), 0xFF);
            pack_states(states.data(), n, bits.data(), bytes.data());
            std::vector<float> values(bits.size());
            decode_packed(bytes.data(), n, bits.data(), tables.data(), L, values.data());
            double uncoded = 0;
            for (size_t i = 0; i < bits.size(); ++i) {
                if (bits[i] == 0) uncoded += static_cast<double>(row[i]) * row[i];
                EXPECT_EQ(values[i], bits[i] ? trellis.table(bits[i])[states[i]] : 0.0F);
            }
            EXPECT_NEAR(weighted_error(row.data(), values.data(), weights.data(), bits.size()), error + uncoded, 1e-4);
            std::vector<float> decoded(bits.size());
            ASSERT_EQ(
                winnow_lab_trellis_code(row.data(), decoded.data(), 1, n, bits.data(), nullptr, tables.data(), L, 0),
                done);
            EXPECT_EQ(decoded, values);
        }
    }
}

TEST(trellis, windows_of_the_packed_row_are_the_states) {
    constexpr int n = 16;
    const std::vector<int32_t> bits(n, 3);
    const std::vector<float> tables = random_tables(8);
    const std::vector<float> row = gaussian(n, 3);
    std::vector<uint16_t> states(n);
    Trellis(tables.data(), 8).search(row.data(), n, bits.data(), nullptr, states.data());
    std::array<uint8_t, 8> bytes{}; // 6 of codes, with zeros above
    pack_states(states.data(), n, bits.data(), bytes.data());
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.size(); ++i) number |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    for (int i = 0; i < n; ++i) EXPECT_EQ(number >> (3 * (n - 1 - i)) & 255, states[static_cast<size_t>(i)]);
}

TEST(trellis, takes_the_lowest_states_of_equal_errors) {
    const std::vector<float> tables(static_cast<size_t>(most_bits + 1) << 8, 0.5F);
    const std::vector<int32_t> bits{2, 3, 1, 2, 2, 6, 5, 4};
    const std::vector<float> row = gaussian(bits.size(), 3);
    std::vector<uint16_t> states(bits.size(), 9);
    Trellis(tables.data(), 8).search(row.data(), static_cast<int>(bits.size()), bits.data(), nullptr, states.data());
    EXPECT_EQ(states, std::vector<uint16_t>(bits.size(), 0));
}

TEST(trellis, trained_tables_are_as_good_as_the_prototypes) {
    const std::array<double, 2> expected{.0907, .0241}; // mean squared error at 2 and 3 bits, measured by it
    std::vector<float> table(256);
    for (int b = 2; b <= 3; ++b) {
        double mse = 0;
        ASSERT_EQ(winnow_lab_trellis_train(8, b, 4, table.data(), &mse), done);
        EXPECT_NEAR(mse / expected[static_cast<size_t>(b - 2)], 1, 0.02) << b << " bits: " << mse;
        std::vector<float> again(256);
        ASSERT_EQ(winnow_lab_trellis_train(8, b, 4, again.data(), &mse), done);
        EXPECT_EQ(again, table);
    }
}

TEST(scalar, levels_are_lloyd_max) {
    const std::array<double, 6> expected{.36338, .11748, .034548, .009501, .002505, .000644}; // Max 1960, and more
    std::array<double, 64> levels{};
    for (int b = 1; b <= 6; ++b) {
        double mse = 0;
        ASSERT_EQ(winnow_lab_scalar_levels(b, levels.data(), &mse), done);
        EXPECT_NEAR(mse / expected[static_cast<size_t>(b - 1)], 1, 1e-3);
        for (size_t i = 0; i < size_t{1} << b; ++i) EXPECT_NEAR(levels[i], -levels[(size_t{1} << b) - 1 - i], 1e-9);
    }
}

// The definition, without any of the library's short cuts.
std::vector<float> plain_scalar(const float* row, const std::vector<int32_t>& bits, const float* weights, int first,
                                int last) {
    double squares = 0, coded = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
        squares += bits[i] ? static_cast<double>(row[i]) * row[i] : 0;
        coded += bits[i] != 0;
    }
    double least = std::numeric_limits<double>::infinity();
    std::vector<float> best;
    for (int t = first; t <= last; ++t) {
        std::vector<float> values(bits.size());
        double products = 0, sizes = 0;
        for (size_t i = 0; i < bits.size(); ++i) {
            if (bits[i] == 0) continue;
            std::array<double, 64> levels{};
            double mse = 0;
            winnow_lab_scalar_levels(bits[i], levels.data(), &mse);
            const double x = row[i] / (std::sqrt(squares / coded) * (0.76 + 0.06 * t));
            const auto nearest =
                std::min_element(levels.begin(), levels.begin() + (1 << bits[i]),
                                 [&](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
            values[i] = static_cast<float>(*nearest);
            products += weights[i] * static_cast<double>(values[i]) * row[i];
            sizes += weights[i] * static_cast<double>(values[i]) * values[i];
        }
        const float scale = round_to_half(static_cast<float>(products / sizes));
        for (float& value : values) value *= scale;
        const double error = weighted_error(row, values.data(), weights, bits.size());
        if (error < least - 1e-12) {
            least = error;
            best = values;
        }
    }
    return best;
}

TEST(scalar, codes_are_those_of_the_definition) {
    const std::vector<int32_t> bits{5, 1, 4, 3, 0, 2, 2, 6, 3, 0, 1, 5};
    const int n = static_cast<int>(bits.size());
    for (uint64_t seed = 0; seed < 50; ++seed) {
        const std::vector<float> row = gaussian(bits.size(), seed);
        std::vector<float> weights = gaussian(bits.size(), seed + 1000);
        for (float& w : weights) w = w * w;
        std::vector<float> decoded(bits.size());
        for (const int search : {0, 1}) {
            ASSERT_EQ(winnow_lab_scalar_code(row.data(), decoded.data(), 1, n, bits.data(), weights.data(), search),
                      done);
            EXPECT_EQ(decoded, plain_scalar(row.data(), bits, weights.data(), search ? 0 : 4, search ? 8 : 4));
        }
    }
}

TEST(numbers, rounds_to_halves) {
    const std::vector<std::array<float, 2>> cases{{0, 0},
                                                  {1, 1},
                                                  {1 + 0x1p-11F, 1},
                                                  {1 + 3 * 0x1p-11F, 1 + 0x1p-9F},
                                                  {0.1F, 0x1.998p-4F},
                                                  {65519, 65504},
                                                  {1e30F, 65504},
                                                  {-1e30F, -65504},
                                                  {0x1p-24F, 0x1p-24F},
                                                  {0x1p-25F, 0},
                                                  {0x1.8p-24F, 0x1p-23F},
                                                  {0x1p-14F, 0x1p-14F}};
    for (const auto& [x, half] : cases) EXPECT_EQ(round_to_half(x), half) << x;
}

// Calls both codes with one row of four elements.
std::array<int, 3> code_all(const std::vector<float>& row, const std::vector<int32_t>& bits,
                            std::vector<float>& decoded, const float* weights = nullptr) {
    const std::vector<float> tables = random_tables(8);
    const int n = static_cast<int>(bits.size());
    decoded.assign(row.size(), 7.0F);
    const int scalar = winnow_lab_scalar_code(row.data(), decoded.data(), 1, n, bits.data(), weights, 1);
    std::array<int, 3> results{scalar, 0, 0};
    for (const int norm : {0, 1}) {
        results[static_cast<size_t>(norm) + 1] =
            winnow_lab_trellis_code(row.data(), decoded.data(), 1, n, bits.data(), weights, tables.data(), 8, norm);
    }
    return results;
}

TEST(hostile, rows_that_are_not_finite_are_refused) {
    std::vector<float> decoded;
    for (const float bad : {infinity, -infinity, not_a_number}) {
        for (size_t at = 0; at < 4; ++at) { // the last has no bits
            std::vector<float> row{1, -2, 0.5F, 3};
            row[at] = bad;
            EXPECT_EQ(code_all(row, {2, 3, 2, 0}, decoded), (std::array<int, 3>{not_finite, not_finite, not_finite}));
        }
    }
    const std::array<float, 4> weights{1, not_a_number, 1, 1};
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, 3, 2, 0}, decoded, weights.data()),
              (std::array<int, 3>{not_finite, not_finite, not_finite}));
}

TEST(hostile, extremes_are_coded) {
    std::vector<float> decoded;
    const std::array<int, 3> all_done{done, done, done};
    EXPECT_EQ(code_all({0, 0, 0, 0}, {2, 3, 2, 0}, decoded), all_done);
    EXPECT_EQ(decoded, std::vector<float>(4, 0.0F));
    EXPECT_EQ(code_all({1, 2, 3, 4}, {0, 0, 0, 0}, decoded), all_done);
    EXPECT_EQ(decoded, std::vector<float>(4, 0.0F));
    EXPECT_EQ(code_all({1e-45F, 0, -1e-45F, 0}, {2, 3, 2, 0}, decoded), all_done);
    for (const float x : decoded) EXPECT_EQ(x, 0.0F);
    const std::array<float, 4> none{0, 0, 0, 0};
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, 3, 2, 0}, decoded, none.data()), all_done);
    const std::array<float, 4> unlike{3e38F, 1e-38F, 1, 0};
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, 3, 2, 0}, decoded, unlike.data()), all_done);
    // Without a scale the squares of such numbers overflow.
    EXPECT_EQ(code_all({3e38F, -3e38F, 1, 0}, {2, 3, 2, 0}, decoded), (std::array<int, 3>{done, not_finite, done}));
    for (const float x : decoded) EXPECT_TRUE(std::isfinite(x));
}

TEST(hostile, bad_arguments_are_refused) {
    std::vector<float> decoded;
    const std::array<int, 3> bad{bad_argument, bad_argument, bad_argument};
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, 7, 2, 0}, decoded), bad);
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, -1, 2, 0}, decoded), bad);
    EXPECT_EQ(code_all({1, 2, 3, 4}, {}, decoded), bad);
    const std::array<float, 4> negative{1, -1, 1, 1};
    EXPECT_EQ(code_all({1, 2, 3, 4}, {2, 2, 2, 2}, decoded, negative.data()), bad);
    double mse = 0;
    EXPECT_EQ(winnow_lab_trellis_train(10, 2, 1, decoded.data(), &mse), bad_argument);
    EXPECT_EQ(winnow_lab_trellis_train(8, 0, 1, decoded.data(), &mse), bad_argument);
    EXPECT_EQ(winnow_lab_scalar_levels(7, &mse, &mse), bad_argument);
}

} // namespace
} // namespace winnow::lab
