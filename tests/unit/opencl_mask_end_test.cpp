// Where the keys end that a mask shows, by which a decode step is divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "opencl/sdpa_kernel.hpp"
#include "opencl_test.hpp"
#include "reference_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Rows of a mask, in the type's own bits.
class MaskRows {
public:
    MaskRows(Type type, int64_t rows, int64_t keys) : bytes_(static_cast<size_t>(rows * keys) * type_size(type)) {
        mask.type = type;
        mask.shape = {1, 1, rows, keys};
        const auto element = static_cast<int64_t>(type_size(type));
        mask.stride = {rows * keys * element, rows * keys * element, keys * element, element};
        mask.data = bytes_.data();
        for (int64_t column = 0; column < rows * keys; ++column) set(column, 0);
    }

    // Adds `value` to a key's logit; of a boolean mask, anything but -infinity shows the key.
    void set(int64_t column, float value) {
        std::byte* at = bytes_.data() + column * mask.stride[3];
        if (mask.type == Type::boolean) {
            *at = std::byte{value != -infinity};
        } else if (mask.type == Type::f32) {
            std::memcpy(at, &value, sizeof value);
        } else {
            uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            auto half = static_cast<uint16_t>(bits >> 16); // of BF16; 0, -infinity and the lowest have their own of F16
            if (mask.type == Type::f16) half = value == 0 ? 0 : value == -infinity ? 0xfc00 : 0xfbff;
            std::memcpy(at, &half, sizeof half);
        }
    }

    void hide_from(int64_t first) {
        for (int64_t column = first; column < mask.shape[3]; ++column) set(column, -infinity);
    }

    Tensor mask;

private:
    std::vector<std::byte> bytes_;
};

class opencl_mask_end : public testing::TestWithParam<Type> {};

TEST_P(opencl_mask_end, is_where_the_last_visible_key_ends) {
    constexpr int64_t keys = 768;
    for (const int64_t seen : {768, 767, 700, 512, 257}) {
        MaskRows rows(GetParam(), 1, keys);
        rows.hide_from(seen);
        rows.set(3, -infinity);
        EXPECT_EQ(end_of_seen(rows.mask, keys), seen);
    }
}

TEST_P(opencl_mask_end, reads_512_columns_at_most_and_leaves_a_key) {
    MaskRows rows(GetParam(), 1, 768);
    rows.hide_from(0);
    EXPECT_EQ(end_of_seen(rows.mask, 768), 256);
    MaskRows few(GetParam(), 1, 5);
    few.hide_from(0);
    EXPECT_EQ(end_of_seen(few.mask, 5), 1);
}

TEST_P(opencl_mask_end, is_the_last_key_of_a_mask_with_more_rows) {
    MaskRows rows(GetParam(), 2, 64);
    for (int64_t column = 0; column < 2 * 64; ++column) rows.set(column, -infinity);
    EXPECT_EQ(end_of_seen(rows.mask, 64), 64);
}

TEST_P(opencl_mask_end, takes_the_lowest_finite_value_for_visible) {
    MaskRows rows(GetParam(), 1, 64);
    rows.hide_from(32);
    rows.set(40, std::numeric_limits<float>::lowest());
    EXPECT_EQ(end_of_seen(rows.mask, 64), 41);
}

using reference::Floats;
using opencl_mask_of_a_call = opencl_test;

// Keys of zeros: the output is the mean of the values that are seen, and value j is j.
TEST_F(opencl_mask_of_a_call, is_read_once_what_was_enqueued_has_written_it) {
    constexpr int64_t keys = 512, size = 32;
    for (Device* device : {&cpu_device(), &divided_device()}) {
        Floats q({1, 1, size}, 0), k({1, keys, size}, 0), v = k, out = q, mask({1, 1, keys}, 0), nothing_hidden = mask;
        for (int64_t at = 0; at < keys * size; ++at) v.values[static_cast<size_t>(at)] = static_cast<float>(at / size);
        std::fill(mask.values.begin() + 100, mask.values.end(), -infinity);
        Sdpa args;
        args.q = q;
        args.segments.resize(1);
        args.segments[0].k = k;
        args.segments[0].v = v;
        args.out = out;
        args.mask = mask;
        args.scale = 1;
        device->launch(args, false);
        device->finish();
        EXPECT_NEAR(out.values[0], 49.5F, 1e-3F);
        device->launch(KvDequantize{nothing_hidden, mask, {}}, false);
        device->launch(args, false);
        device->finish();
        EXPECT_NEAR(out.values[0], 255.5F, 1e-3F);
    }
}

INSTANTIATE_TEST_SUITE_P(types, opencl_mask_end, testing::Values(Type::boolean, Type::f16, Type::bf16, Type::f32),
                         [](const auto& test) { return std::string(type_name(test.param)); });

} // namespace
} // namespace winnow::opencl
