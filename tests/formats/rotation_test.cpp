// The reference's rotation against a dense matrix written from its closed form: with n = m * size,
// R[a * size + b][c * size + d] = (delta(a, c) - 2/m if m > 1) * (-1)^(ones in b & d) / sqrt(size) * sign of c * size +
// d.
#include "reference/rotation.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "rows.hpp"

namespace winnow::formats {
namespace {

// splitmix64 of seed 0, as its authors publish it: a state that grows, then a mix.
class Splitmix64 {
public:
    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

private:
    uint64_t state_ = 0;
};

Vector dense_rotation(size_t n) {
    size_t size = 1;
    while (n % (2 * size) == 0) size *= 2;
    const size_t m = n / size;
    Vector signs;
    Splitmix64 random;
    while (signs.size() < n) {
        const uint64_t word = random.next();
        for (int bit = 0; bit < 32; ++bit) signs.push_back((word >> bit) & 1 ? -1 : 1);
    }
    Vector matrix(n * n);
    for (size_t row = 0; row < n; ++row)
        for (size_t column = 0; column < n; ++column) {
            double block = row / size == column / size ? 1 : 0;
            if (m > 1) block -= 2.0 / static_cast<double>(m);
            const int ones = std::popcount((row % size) & (column % size));
            matrix[row * n + column] =
                block * (ones % 2 ? -1 : 1) / std::sqrt(static_cast<double>(size)) * signs[column];
        }
    return matrix;
}

class rotation : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(sizes, rotation, testing::Range(16, 577, 16), testing::PrintToStringParamName());

// Each column of R and each row: R's transpose is its inverse.
TEST_P(rotation, is_the_matrix_and_its_inverse_the_transpose) {
    const auto n = static_cast<size_t>(GetParam());
    const Vector matrix = dense_rotation(n);
    for (size_t e = 0; e < n; ++e) {
        Vector forth(n, 0);
        forth[e] = 1;
        Vector back = forth;
        reference::rotate(forth.data(), static_cast<int64_t>(n));
        reference::rotate_back(back.data(), static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
            ASSERT_NEAR(forth[i], matrix[i * n + e], 1e-14) << "row " << i << ", column " << e;
            ASSERT_NEAR(back[i], matrix[e * n + i], 1e-14) << "row " << e << ", column " << i;
        }
    }
}

TEST_P(rotation, keeps_norms_and_comes_back) {
    std::mt19937 random(1);
    const Vector x = normal(random, GetParam());
    Vector y = x;
    reference::rotate(y.data(), GetParam());
    EXPECT_NEAR(norm(y), norm(x), 1e-12 * norm(x));
    EXPECT_GT(squared_distance(x, y), 0.1 * dot(x, x));
    reference::rotate_back(y.data(), GetParam());
    EXPECT_LT(squared_distance(x, y), 1e-24 * dot(x, x));
}

// A matrix that both sides compute alike could be wrong on both: the first signs in full.
TEST(rotation_signs, are_those_of_the_published_generator) {
    EXPECT_EQ(Splitmix64().next(), 0xe220a8397b1dcdafU);
    Vector impulse(16, 0);
    impulse[0] = 4; // column 0 of the transform is constant, so this gives the sign of element 0
    reference::rotate(impulse.data(), 16);
    EXPECT_EQ(impulse, Vector(16, -1)); // bit 0 of ...af is set
}

// One element in the way of a single outlier: after the rotation all elements are of one size.
TEST(rotation_of_an_outlier, spreads_it) {
    for (int n : {64, 128, 256}) {
        Vector x(static_cast<size_t>(n), 0);
        x[5] = 100;
        reference::rotate(x.data(), n);
        for (double value : x) EXPECT_NEAR(std::fabs(value), 100 / std::sqrt(static_cast<double>(n)), 1e-12);
    }
}

TEST(rotation_of_nan, reaches_every_element_of_its_block) {
    Vector x(128, 1);
    x[77] = std::numeric_limits<double>::quiet_NaN();
    reference::rotate(x.data(), 128);
    for (double value : x) EXPECT_TRUE(std::isnan(value));
}

} // namespace
} // namespace winnow::formats
