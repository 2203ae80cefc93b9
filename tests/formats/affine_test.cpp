// The affine formats against golden vectors of MLX (mlx_golden.txt, which mlx_golden.py wrote), and where MLX has no
// answer.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "reference/element.hpp"
#include "rows.hpp"

namespace winnow::formats {
namespace {

const std::vector<Type> affine_types = {Type::affine8_g32, Type::affine8_g64, Type::affine8_g128,
                                        Type::affine4_g32, Type::affine4_g64, Type::affine4_g128};

Bytes bytes_of(const std::string& digits) {
    Bytes bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    return bytes;
}

TEST(affine, writes_the_bits_that_mlx_writes) {
    std::ifstream file(WINNOW_FORMATS_DIR "/mlx_golden.txt");
    ASSERT_TRUE(file) << WINNOW_FORMATS_DIR "/mlx_golden.txt";
    std::string line, input;
    Vector x;
    size_t rows = 0;
    while (std::getline(file, line)) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        std::string kind, name, digits;
        words >> kind >> name >> digits;
        const Bytes bytes = bytes_of(digits);
        if (kind == "input") {
            input = name;
            x.clear();
            for (size_t i = 0; i < bytes.size(); i += 2) x.push_back(reference::load(Type::f16, bytes.data() + i));
            continue;
        }
        ASSERT_EQ(kind, "row") << line;
        const Type type = type_named(name);
        ASSERT_NE(type, Type::none) << name;
        EXPECT_EQ(hex(encode(type, x)), digits) << input << " as " << name;
        ++rows;
    }
    EXPECT_GE(rows, 100U);
}

class affine_of : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(types, affine_of, testing::ValuesIn(affine_types),
                         [](const auto& named) { return type_name(named.param); });

TEST_P(affine_of, says_nan_in_the_group_that_holds_one_and_no_other) {
    const int64_t group = group_elements(GetParam());
    const auto codes = static_cast<size_t>(row_bytes(GetParam(), group)) - 4;
    for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Vector x(static_cast<size_t>(2 * group), 0.5);
        x[1] = bad;
        x[static_cast<size_t>(group) + 2] = 0.25;
        const Bytes row = encode(GetParam(), x);
        const Vector got = decode(GetParam(), row, 2 * group);
        for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i < static_cast<size_t>(group)) << i;
        EXPECT_NEAR(got[static_cast<size_t>(group) + 2], 0.25, 1e-4);
        EXPECT_EQ(hex({row.begin(), row.begin() + static_cast<int64_t>(codes)}), std::string(2 * codes, '0'));
        EXPECT_EQ(hex(row).substr(4 * codes, 4), "007e");
    }
}

// Beyond half's range the scale or bias says infinity; no code is undefined.
TEST_P(affine_of, overflows_like_its_arithmetic) {
    const auto n = static_cast<size_t>(group_elements(GetParam()));
    for (double huge : {1e6, 1e38, 3.4e38}) {
        Vector x(n, huge);
        x[0] = -huge;
        const Vector got = round_trip(GetParam(), x);
        for (double value : got) EXPECT_FALSE(std::isfinite(value));
        for (double value : round_trip(GetParam(), Vector(n, huge))) EXPECT_FALSE(std::isfinite(value));
    }
}

// Half a step inside; at the edge nearer to zero another half, since the steps are made to meet zero and the far edge.
// And what rounding scale and bias to halves adds over all codes.
TEST_P(affine_of, comes_within_a_step) {
    std::mt19937 random(6);
    const int64_t n = group_elements(GetParam());
    const bool wide = row_bytes(GetParam(), n) >= static_cast<uint64_t>(n);
    for (int repeat = 0; repeat < 200; ++repeat) {
        const Vector x = normal(random, n);
        const auto [least, most] = std::minmax_element(x.begin(), x.end());
        const double step = (*most - *least) / (wide ? 255 : 15);
        const Vector got = round_trip(GetParam(), x);
        for (size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(got[i], x[i], step * 1.02 + (*most - *least) * 0x1p-10 + 0x1p-10);
    }
}

} // namespace
} // namespace winnow::formats
