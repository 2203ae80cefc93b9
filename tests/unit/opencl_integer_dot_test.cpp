// Attention whose keys meet Q in 8 bits (dot=integer): what that rounds, what it must not touch, and that an
// instruction gives what several without it give.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

struct Keys {
    Type type;
    int64_t head_size, group;
};

const Keys rotated_keys[] = {{Type::turbo4, 128, 1}, {Type::turbo4, 64, 8}, {Type::turbo4, 192, 5}};
const Keys keys_in_order[] = {
    {Type::affine8_g128, 128, 8}, {Type::affine4_g128, 128, 4}, {Type::affine8_g64, 64, 1}, {Type::affine4_g64, 64, 3}};

std::string name_of(const testing::TestParamInfo<Keys>& each) {
    return std::string(type_name(each.param.type)) + "_d" + std::to_string(each.param.head_size) + "_g" +
           std::to_string(each.param.group);
}

// One query token; its rows are rows of Q, which `make` fills, with keys at random.
struct Case {
    static constexpr int64_t kv_heads = 2, keys = 70; // the last tile is cut short

    SharedMemory memory;
    Sdpa args;

    Case(const Keys& what, uint64_t seed, const std::function<float(Random&, int64_t row, int64_t element)>& make) {
        const int64_t rows = kv_heads * what.group;
        Random random(seed);
        args.q = memory.add("q", Type::f32, {1, rows, 1, what.head_size});
        args.k = memory.add("k", what.type, {1, kv_heads, keys, what.head_size});
        args.v = memory.add("v", Type::f32, {1, kv_heads, keys, 16});
        args.out = memory.add("out", Type::f32, {1, rows, 1, 16});
        args.scores_out = memory.add("scores", Type::f32, {1, rows, 1, keys});
        args.scores_mode = Scores::raw;
        args.scale = 1;
        store_rows(args.k, [&](int64_t, int64_t, int64_t) { return normal(random); });
        fill<float>(args.v, [&] { return normal(random); });
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t i = 0; i < what.head_size; ++i) at<float>(args.q, row, 0, i) = make(random, row, i);
    }

    std::vector<float> scores(Device& device) const {
        device.launch(args, false);
        device.finish();
        std::vector<float> all;
        for (int64_t row = 0; row < args.q_heads(); ++row)
            for (int64_t key = 0; key < keys; ++key) all.push_back(at<float>(args.scores_out, row, 0, key));
        return all;
    }
};

std::unique_ptr<Device> device_with(const std::string& dot) { return backend::create(cpu_request("dot=" + dot)); }

Device& emulating_device() {
    static const std::unique_ptr<Device> device = device_with("emulated");
    return *device;
}

float drawn(Random& random, int64_t, int64_t) { return normal(random); }

class opencl_integer_dot : public opencl_test, public testing::WithParamInterface<Keys> {};
class opencl_integer_dot_in_order : public opencl_integer_dot {}; // of keys that meet Q as it is, not R q

TEST_P(opencl_integer_dot, rounds_queries_and_centroids_and_nothing_else) {
    const Case one(GetParam(), 1, drawn);
    EXPECT_NE(emulating_device().validate(one.args).find("_integer"), std::string::npos);
    const std::vector<float> expected = one.scores(reference_device()), got = one.scores(emulating_device());
    double square = 0, difference = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        square += std::pow(static_cast<double>(expected[i]), 2);
        difference += std::pow(static_cast<double>(got[i] - expected[i]), 2);
    }
    // A step of Q is a 127th of some three times its root mean square, and a number is off by 1 / sqrt(12) of it at
    // random: .7 %. Centroids in steps of a 127th of the largest one add half of a percent.
    const double error = std::sqrt(difference / square);
    RecordProperty("error_per_mille", static_cast<int>(std::lround(1000 * error)));
    EXPECT_LT(error, is_rotated(GetParam().type) ? .014 : .011);
    EXPECT_GT(error, .002);
}

TEST_P(opencl_integer_dot_in_order, loses_nothing_of_whole_numbers) {
    const Case one(GetParam(), 2, [](Random& random, int64_t, int64_t i) {
        return i == 5 ? 127.0f : static_cast<float>(draw(random, -127, 127));
    });
    const std::vector<float> expected = one.scores(reference_device()), got = one.scores(emulating_device());
    for (size_t i = 0; i < got.size(); ++i) // sums of as many products of about 70 and 1
        EXPECT_NEAR(got[i], expected[i], 1e-6 * 70 * static_cast<double>(GetParam().head_size)) << i;
}

TEST_P(opencl_integer_dot, an_instruction_gives_the_same_bits) {
    const Case one(GetParam(), 3, drawn);
    const std::unique_ptr<Device> device = device_with("integer");
    try {
        EXPECT_NE(device->validate(one.args).find("_integer"), std::string::npos);
    } catch (const Error& error) {
        ASSERT_NE(std::string(error.what()).find("dot=integer is forced, but the device has neither"),
                  std::string::npos);
        GTEST_SKIP() << error.what();
    }
    const std::vector<float> expected = one.scores(emulating_device()), got = one.scores(*device);
    for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
}

// A single row that has no 8 bits makes its group go without.
TEST_P(opencl_integer_dot, queries_that_are_not_finite_are_not_rounded) {
    for (const float special : {infinity, -infinity, not_a_number}) {
        const Case one(GetParam(), 4, [&](Random& random, int64_t row, int64_t i) {
            return row == 0 && i == 7 ? special : normal(random);
        });
        const std::vector<float> expected = one.scores(reference_device()), got = one.scores(emulating_device());
        for (size_t i = 0; i < static_cast<size_t>(GetParam().group * Case::keys); ++i) {
            if (std::isfinite(expected[i]))
                EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
            else if (is_rotated(GetParam().type)) // R q is infinite in every element, and of either sign
                EXPECT_FALSE(std::isfinite(got[i])) << i << ": " << got[i];
            else
                EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i])
                    << i << ": " << got[i];
        }
    }
}

// The inverse of a tiny magnitude would be infinite, and so would be what is multiplied with it.
TEST_P(opencl_integer_dot, rows_of_zeros_and_of_tiny_numbers_score_0) {
    Case one(GetParam(), 5, [](Random&, int64_t row, int64_t) { return row == 0 ? 0.0f : 1e-38f; });
    one.args.scale = 1e38f;
    for (const float score : one.scores(emulating_device())) EXPECT_EQ(score, 0);
}

INSTANTIATE_TEST_SUITE_P(rotated, opencl_integer_dot, testing::ValuesIn(rotated_keys), name_of);
INSTANTIATE_TEST_SUITE_P(in_order, opencl_integer_dot, testing::ValuesIn(keys_in_order), name_of);
INSTANTIATE_TEST_SUITE_P(whole, opencl_integer_dot_in_order, testing::ValuesIn(keys_in_order), name_of);

class opencl_integer_dot_names : public opencl_test {};

TEST_F(opencl_integer_dot_names, say_it_only_where_it_is_so) {
    for (const Keys& other : {Keys{Type::f16, 128, 4}, Keys{Type::q8_0, 128, 4}, Keys{Type::turbo4, 96, 4},
                              Keys{Type::affine8_g64, 128, 4}, Keys{Type::turbo3, 128, 4}}) {
        const Case one(other, 6, drawn);
        EXPECT_EQ(emulating_device().validate(one.args).find("_integer"), std::string::npos) << type_name(other.type);
    }
    const Case one({Type::turbo4, 128, 4}, 6, drawn);
    EXPECT_EQ(cpu_device().validate(one.args).find("_integer"), std::string::npos);
}

} // namespace
} // namespace winnow::opencl
