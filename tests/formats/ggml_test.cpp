// The reference against ggml itself: bytes of its reference quantizers, and numbers of its dequantizers, bit for bit.
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "reference/element.hpp"
#include "rows.hpp"

namespace winnow::formats {
namespace {

constexpr size_t block = 32;

const std::map<Type, ggml_type> ggml_types = {{Type::q8_0, GGML_TYPE_Q8_0}, {Type::q5_1, GGML_TYPE_Q5_1},
                                              {Type::q5_0, GGML_TYPE_Q5_0}, {Type::q4_1, GGML_TYPE_Q4_1},
                                              {Type::q4_0, GGML_TYPE_Q4_0}, {Type::iq4_nl, GGML_TYPE_IQ4_NL}};

class ggml : public testing::TestWithParam<std::pair<const Type, ggml_type>> {
protected:
    Type type() const { return GetParam().first; }
    const ggml_type_traits& traits() const { return *ggml_get_type_traits(GetParam().second); }

    Bytes quantized(const std::vector<float>& x) const {
        Bytes row(row_bytes(type(), static_cast<int64_t>(x.size())));
        traits().from_float_ref(x.data(), row.data(), static_cast<int64_t>(x.size()));
        return row;
    }
};
INSTANTIATE_TEST_SUITE_P(types, ggml, testing::ValuesIn(ggml_types.begin(), ggml_types.end()),
                         [](const auto& named) { return type_name(named.param.first); });

// Blocks of every kind that a quantizer may trip over, from the smallest numbers to the largest.
std::vector<std::vector<float>> blocks() {
    std::mt19937 random(7);
    std::vector<std::vector<float>> all;
    const auto add = [&](auto value) {
        std::vector<float> x(block);
        for (size_t i = 0; i < block; ++i) x[i] = static_cast<float>(value(i));
        all.push_back(x);
    };
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int repeat = 0; repeat < 2000; ++repeat) {
        add([&](size_t) { return normal(random); });
        add([&](size_t) { return uniform(random); });
        const double center = 10 * normal(random);
        add([&](size_t) { return center + normal(random); });
        add([&](size_t) { return center; });
        const double size = std::pow(2.0, 140 * uniform(random)); // from denormals to beyond half's range
        add([&](size_t) { return std::clamp(size * normal(random), -3e38, 3e38); });
        const size_t place = random() % block;
        add([&](size_t i) { return i == place ? 1e4 * center : normal(random); });
        add([&](size_t) { return static_cast<double>(static_cast<int>(random() % 31)) - 15; }); // ties
        add([&](size_t) {
            return (static_cast<double>(static_cast<int>(random() % 255)) - 127) / 2;
        });                                                                   // ties of rounding
        add([&](size_t) { return random() % 4 == 0 ? uniform(random) : 0; }); // mostly zeros
        add([&](size_t) { return std::fabs(normal(random)); });
        add([&](size_t) { return std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffff)); }); // denormals
    }
    for (double same : {0.0, -0.0, 1.0, -1.0, 3.4e38, -3.4e38, 1e-45, -1e-45, 65504.0, 6e-8, 1e-38, 2e-15, 1e-15})
        add([&](size_t) { return same; });
    add([](size_t i) { return i % 2 ? 3.4e38 : -3.4e38; }); // a range beyond a float
    add([](size_t i) { return i % 2 ? 1 : -1; });
    return all;
}

// Where ggml says nothing: iq4_nl's codes of a block that is all but zero, and which NaN a scale is.
bool is_unsaid(Type type, const std::vector<float>& x) {
    return type == Type::iq4_nl &&
           std::all_of(x.begin(), x.end(), [](float value) { return std::fabs(value) < 1e-15f; });
}

TEST_P(ggml, writes_the_same_bytes) {
    size_t compared = 0;
    for (const std::vector<float>& x : blocks()) {
        Bytes want = quantized(x);
        Bytes got = encode(type(), {x.begin(), x.end()});
        if (is_unsaid(type(), x)) {
            EXPECT_EQ(hex(got), "0000" + std::string(32, '8'));
            continue;
        }
        if (std::isnan(reference::load(Type::f16, want.data()))) {
            EXPECT_EQ(hex({got.begin(), got.begin() + 2}), "007e");
            std::copy_n(got.begin(), 2, want.begin());
        }
        ASSERT_EQ(hex(got), hex(want)) << "x[0] " << x[0] << ", x[1] " << x[1];
        ++compared;
    }
    EXPECT_GT(compared, 15000U);
}

TEST_P(ggml, writes_the_same_rows) {
    std::mt19937 random(8);
    for (int64_t n = 32; n <= 576; n += 32) {
        const Vector wide = normal(random, n);
        const std::vector<float> x(wide.begin(), wide.end());
        ASSERT_EQ(hex(encode(type(), {x.begin(), x.end()})), hex(quantized(x))) << n;
    }
}

// Bytes at random: codes that no quantizer writes, scales that are negative, infinite or NaN.
TEST_P(ggml, reads_the_same_numbers) {
    std::mt19937 random(9);
    for (int repeat = 0; repeat < 20000; ++repeat) {
        Bytes row(row_bytes(type(), block));
        for (std::byte& each : row) each = static_cast<std::byte>(random() & 0xff);
        std::vector<float> want(block);
        traits().to_float(row.data(), want.data(), block);
        const Vector got = decode(type(), row, block);
        for (size_t i = 0; i < block; ++i) {
            if (std::isnan(want[i]))
                ASSERT_TRUE(std::isnan(got[i])) << hex(row);
            else
                ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(got[i])), std::bit_cast<uint32_t>(want[i]))
                    << hex(row);
        }
    }
}

TEST_P(ggml, has_rows_of_the_same_size) {
    EXPECT_EQ(ggml_row_size(GetParam().second, 256), row_bytes(type(), 256));
    EXPECT_EQ(ggml_blck_size(GetParam().second), row_multiple(type()));
}

} // namespace
} // namespace winnow::formats
