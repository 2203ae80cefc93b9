// The turbo formats: their layout read in another way, and closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "reference/element.hpp"
#include "reference/rotation.hpp"
#include "rows.hpp"

namespace winnow::formats {
namespace {

const std::array<Type, 5> turbo_types = {Type::turbo4, Type::turbo3_5, Type::turbo3, Type::turbo2_5, Type::turbo2};
const std::array<Norm, 3> norms = {Norm::plain, Norm::corrected, Norm::unit_slope};
constexpr double step_of_half = 0x1p-11; // relative error of a normal number in binary16

const std::vector<Vector> centroids = {{},
                                       {},
                                       {-1.510418, -.452780, .452780, 1.510418},
                                       {-2.151946, -1.343909, -.756005, -.245094, .245094, .756005, 1.343909, 2.151946},
                                       {-2.732590, -2.069017, -1.618046, -1.256231, -.942340, -.656759, -.388048,
                                        -.128395, .128395, .388048, .656759, .942340, 1.256231, 1.618046, 2.069017,
                                        2.732590}};

std::vector<int> bits_of_chunks(Type type, size_t chunks) {
    const size_t more = (chunks + 1) / 2;
    std::vector<int> bits;
    for (size_t chunk = 0; chunk < chunks; ++chunk) switch (type) {
        case Type::turbo4: bits.push_back(4); break;
        case Type::turbo3: bits.push_back(3); break;
        case Type::turbo2: bits.push_back(2); break;
        case Type::turbo3_5: bits.push_back(chunk < more ? 4 : 3); break;
        default: bits.push_back(chunk < more ? 3 : 2);
        }
    return bits;
}

// What the bytes say, by shifting whole numbers: S * centroid for each element of R x.
Vector rotated_values(Type type, const Bytes& row, size_t n) {
    Vector y;
    size_t at = 0;
    for (int bits : bits_of_chunks(type, n / 16)) {
        uint64_t even = 0, odd = 0;
        std::memcpy(&even, row.data() + at, static_cast<size_t>(bits));
        std::memcpy(&odd, row.data() + at + bits, static_cast<size_t>(bits));
        at += static_cast<size_t>(2 * bits);
        for (int pair = 0; pair < 8; ++pair)
            for (uint64_t half : {even, odd})
                y.push_back(centroids[static_cast<size_t>(bits)][(half >> (bits * pair)) & ((1u << bits) - 1)]);
    }
    EXPECT_EQ(at + 2, row.size());
    const double scale = reference::load(Type::f16, row.data() + at);
    for (double& value : y) value *= scale;
    return y;
}

Vector rotated(Vector x) {
    reference::rotate(x.data(), static_cast<int64_t>(x.size()));
    return x;
}

class turbo : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(types, turbo, testing::ValuesIn(turbo_types),
                         [](const auto& named) { return type_name(named.param); });

TEST_P(turbo, reads_bytes_as_laid_out) {
    std::mt19937 random(2);
    for (size_t n = 16; n <= 576; n += 16) {
        Bytes row(row_bytes(GetParam(), static_cast<int64_t>(n)));
        for (std::byte& each : row) each = static_cast<std::byte>(random() & 0xff);
        reference::store(Type::f16, row.data() + row.size() - 2, 1.5);
        const Vector want = rotated_values(GetParam(), row, n);
        const Vector got = rotated(decode(GetParam(), row, static_cast<int64_t>(n)));
        for (size_t e = 0; e < n; ++e) ASSERT_NEAR(got[e], want[e], 1e-12) << "n " << n << ", element " << e;
    }
}

// Each element gets a centroid than which none is nearer, and the scale keeps what its norm promises.
TEST_P(turbo, writes_the_nearest_codes_and_the_scale_of_the_norm) {
    std::mt19937 random(3);
    for (size_t n = 16; n <= 576; n += 16)
        for (Norm kind : norms) {
            const Vector x = normal(random, static_cast<int64_t>(n), 3), y = rotated(x);
            const double spread = norm(x) / std::sqrt(static_cast<double>(n));
            const Bytes row = encode(GetParam(), x, kind);
            const double scale = reference::load(Type::f16, row.data() + row.size() - 2);
            Vector chosen = rotated_values(GetParam(), row, n);
            const std::vector<int> bits = bits_of_chunks(GetParam(), n / 16);
            for (size_t e = 0; e < n; ++e) {
                const double mine = std::fabs(y[e] / spread - chosen[e] / scale);
                for (double other : centroids[static_cast<size_t>(bits[e / 16])])
                    ASSERT_LE(mine, std::fabs(y[e] / spread - other) + 1e-9) << "n " << n << ", element " << e;
            }
            const double want = kind == Norm::plain       ? spread
                                : kind == Norm::corrected ? norm(x) / (norm(chosen) / scale)
                                                          : dot(x, x) / (dot(chosen, y) / scale);
            ASSERT_NEAR(scale, want, step_of_half * want) << "n " << n << ", norm " << static_cast<int>(kind);
        }
}

TEST_P(turbo, keeps_the_norm_or_the_slope) {
    std::mt19937 random(4);
    for (int64_t n : {16, 80, 128, 576}) {
        const Vector x = normal(random, n);
        EXPECT_NEAR(norm(round_trip(GetParam(), x, Norm::corrected)), norm(x), step_of_half * norm(x));
        EXPECT_NEAR(dot(x, round_trip(GetParam(), x, Norm::unit_slope)), dot(x, x), step_of_half * dot(x, x));
    }
}

TEST_P(turbo, treats_zeros_and_what_is_not_finite) {
    const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
    for (int64_t n : {16, 48, 128})
        for (Norm kind : norms) {
            const Vector zeros(static_cast<size_t>(n), 0);
            const Bytes of_zeros = encode(GetParam(), zeros, kind);
            EXPECT_EQ(decode(GetParam(), of_zeros, n), zeros);
            for (double bad : {nan, infinity, -infinity}) {
                Vector x(static_cast<size_t>(n), 1);
                x[7] = bad;
                Bytes row = encode(GetParam(), x, kind);
                for (double value : decode(GetParam(), row, n)) EXPECT_TRUE(std::isnan(value));
                EXPECT_EQ(hex({row.end() - 2, row.end()}), "007e");
                std::fill(row.end() - 2, row.end(), std::byte{0});
                EXPECT_EQ(hex(row), hex(of_zeros)) << "codes beside a NaN scale are those of zero";
            }
        }
}

TEST_P(turbo, saturates_and_vanishes_like_its_scale) {
    Vector x(64, 0);
    x[3] = 1e30;
    for (Norm kind : norms) {
        const Vector huge = round_trip(GetParam(), x, kind);
        const Bytes row = encode(GetParam(), x, kind);
        EXPECT_EQ(hex({row.end() - 2, row.end()}), "ff7b");
        for (double value : huge) EXPECT_TRUE(std::isfinite(value));
        EXPECT_GT(huge[3], 1e5);
        x[3] = 1e-30;
        EXPECT_EQ(round_trip(GetParam(), x, kind), Vector(64, 0));
        EXPECT_EQ(hex(encode(GetParam(), x, kind)), hex(encode(GetParam(), Vector(64, 0), kind)));
        x[3] = 1e30;
    }
}

// One element alone becomes 1 or -1 everywhere, and with the plain norm the scale is 1.
TEST_P(turbo, codes_one_outlier_in_closed_form) {
    const double nearest_to_one[] = {0, 0, 1.510418, .756005, .942340}; // by bits
    Vector x(64, 0);
    x[9] = 8;
    const std::vector<int> bits = bits_of_chunks(GetParam(), 4);
    const Vector y = rotated(x), got = rotated(round_trip(GetParam(), x, Norm::plain));
    for (size_t e = 0; e < 64; ++e) EXPECT_NEAR(got[e], nearest_to_one[bits[e / 16]] * y[e], 1e-12) << e;
    // Where all have one size and one code, both corrections give x itself.
    if (bits.front() != bits.back()) return;
    for (Norm kind : {Norm::corrected, Norm::unit_slope})
        EXPECT_NEAR(round_trip(GetParam(), x, kind)[9], 8, 8 * step_of_half);
}

} // namespace
} // namespace winnow::formats
