// What the ggml formats do where ggml says nothing.
#include <gtest/gtest.h>

#include <limits>

#include "rows.hpp"

namespace winnow::formats {
namespace {

class ggml_blocks : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(types, ggml_blocks,
                         testing::Values(Type::q8_0, Type::q5_1, Type::q5_0, Type::q4_1, Type::q4_0, Type::iq4_nl),
                         [](const auto& named) { return type_name(named.param); });

TEST_P(ggml_blocks, say_nan_in_the_block_that_holds_one_and_no_other) {
    std::mt19937 random(5);
    for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity()}) {
        Vector x = normal(random, 96);
        x[40] = bad;
        const Bytes row = encode(GetParam(), x);
        const bool has_minimum = GetParam() == Type::q4_1 || GetParam() == Type::q5_1;
        const size_t size = row.size() / 3;
        const std::string want = (has_minimum ? "007e007e" : "007e") + std::string(2 * size, '0');
        EXPECT_EQ(hex({row.begin() + static_cast<int64_t>(size), row.begin() + static_cast<int64_t>(2 * size)}),
                  want.substr(0, 2 * size));
        const Vector got = decode(GetParam(), row, 96);
        for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(got[i]), i / 32 == 1) << i;
        x[40] = 0;
        EXPECT_EQ(hex({row.begin(), row.begin() + static_cast<int64_t>(size)}),
                  hex(encode(GetParam(), {x.begin(), x.begin() + 32})));
    }
}

TEST_P(ggml_blocks, read_zeros_as_zeros) { EXPECT_EQ(round_trip(GetParam(), Vector(64, 0)), Vector(64, 0)); }

} // namespace
} // namespace winnow::formats
