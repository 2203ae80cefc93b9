// sparse16 and sparse8: which elements are there, where their values lie, and what they read as; read here from the
// page, byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "rows.hpp"

namespace winnow::formats {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

struct Kind {
    Type type;
    size_t count, bytes; // of a block's values, of the block
};

uint32_t kept_of(const Bytes& row, size_t at) {
    uint32_t kept = 0;
    std::memcpy(&kept, row.data() + at, 4);
    return kept;
}

class sparse : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(types, sparse, testing::Values(Kind{Type::sparse16, 21, 48}, Kind{Type::sparse8, 22, 28}),
                         [](const auto& named) { return type_name(named.param.type); });

TEST_P(sparse, keep_the_largest_magnitudes) {
    std::mt19937 random(3);
    for (int time = 0; time < 200; ++time) {
        Vector x = normal(random, 32);
        for (double& each : x) each = static_cast<double>(static_cast<float>(each));
        if (time % 2 == 1) // many of one magnitude
            for (double& each : x) each = std::copysign(std::ceil(2 * std::fabs(each)), each);
        const Bytes row = encode(GetParam().type, x);
        ASSERT_EQ(row.size(), GetParam().bytes);
        const uint32_t kept = kept_of(row, 0);
        ASSERT_EQ(std::popcount(kept), static_cast<int>(GetParam().count));
        for (size_t i = 0; i < 32; ++i)
            for (size_t j = 0; j < 32; ++j) {
                if ((kept >> i & 1) == 0 || (kept >> j & 1) == 1) continue;
                ASSERT_GE(std::fabs(x[i]), std::fabs(x[j]));
                const bool stays_first = std::fabs(x[i]) != std::fabs(x[j]) || i < j;
                ASSERT_TRUE(stays_first) << i << " " << j;
            }
    }
}

// The bytes, and so the places: from the front, and from the end.
TEST_P(sparse, lay_values_from_both_ends) {
    const bool is_wide = GetParam().type == Type::sparse16;
    Vector x(32, 0);
    for (const size_t i : {3, 7, 15, 16, 20, 31}) x[i] = static_cast<double>(i);
    const Bytes row = encode(GetParam().type, x);
    const auto value = [&](size_t place) {
        return is_wide ? decode(Type::f16,
                                {row.begin() + 6 + 2 * static_cast<int64_t>(place),
                                 row.begin() + 8 + 2 * static_cast<int64_t>(place)},
                                1)[0]
                       : std::to_integer<int>(row[6 + place]) * 31 / 127.0;
    };
    const uint32_t kept = kept_of(row, 0);
    for (const size_t i : {3, 7, 15, 16, 20, 31}) {
        ASSERT_EQ(kept >> i & 1, 1u) << i;
        const uint32_t below = kept & ((uint32_t{1} << i) - 1);
        const size_t place = i < 16 ? static_cast<size_t>(std::popcount(below))
                                    : GetParam().count - 1 - static_cast<size_t>(std::popcount(below >> 16));
        EXPECT_NEAR(value(place), x[i], is_wide ? 0 : .2) << i;
    }
    EXPECT_EQ(decode(GetParam().type, row, 32)[19], 0);
}

TEST_P(sparse, read_what_is_there_as_the_format_of_its_values) {
    std::mt19937 random(4);
    const Vector x = normal(random, 96, 3);
    const Bytes row = encode(GetParam().type, x);
    const Vector got = decode(GetParam().type, row, 96);
    const bool is_wide = GetParam().type == Type::sparse16;
    const Vector whole = round_trip(is_wide ? Type::f16 : Type::q8_0, x);
    for (size_t i = 0; i < 96; ++i) {
        const bool is_there = (kept_of(row, i / 32 * GetParam().bytes) >> i % 32 & 1) == 1;
        EXPECT_EQ(got[i], is_there ? whole[i] : 0) << i;
    }
}

TEST_P(sparse, say_nan_in_the_block_that_holds_none_of_the_numbers) {
    std::mt19937 random(5);
    const bool is_wide = GetParam().type == Type::sparse16;
    for (const float bad : {nan, infinity, -infinity, is_wide ? 65520.0f : nan}) {
        Vector x = normal(random, 96);
        x[40] = static_cast<double>(bad);
        const Bytes row = encode(GetParam().type, x);
        const auto at = static_cast<int64_t>(GetParam().bytes);
        EXPECT_EQ(hex({row.begin() + at, row.begin() + 2 * at}),
                  (is_wide ? "ffff1f00007e" : "ffff3f00007e") + std::string(2 * GetParam().bytes - 12, '0'));
        const Vector got = decode(GetParam().type, row, 96);
        for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(got[i]), i / 32 == 1) << i;
    }
    EXPECT_EQ(round_trip(Type::sparse16, Vector(32, 65519))[0], 65504);
}

// What elastic zeroing left is there as it was, as long as it has zeroed no fewer elements than are left out.
TEST_P(sparse, lose_nothing_of_a_block_with_enough_zeros) {
    std::mt19937 random(6);
    Vector x = round_trip(Type::f16, normal(random, 32));
    for (size_t i = 0; i < 11; ++i) x[3 * i % 32] = 0;
    const Vector got = round_trip(GetParam().type, x);
    const Vector want = GetParam().type == Type::sparse16 ? x : round_trip(Type::q8_0, x);
    EXPECT_EQ(got, want);
    EXPECT_EQ(round_trip(GetParam().type, Vector(64, 0)), Vector(64, 0));
}

} // namespace
} // namespace winnow::formats
