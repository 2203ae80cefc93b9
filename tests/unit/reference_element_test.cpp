// The reference's storage formats against the definition in another form: ldexp and nearbyint, and every 16-bit number.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "reference/element.hpp"

namespace winnow::reference {
namespace {

double defined_value(BinaryFormat format, uint32_t bits) {
    const int exponent = static_cast<int>((bits >> format.fraction_bits) & format.exponent_mask());
    const double fraction =
        std::ldexp(static_cast<double>(bits & ((1u << format.fraction_bits) - 1)), -format.fraction_bits);
    const double sign = (bits & format.sign()) ? -1 : 1;
    if (exponent == static_cast<int>(format.exponent_mask())) {
        const double infinity = std::numeric_limits<double>::infinity();
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * infinity;
    }
    return sign * (exponent == 0 ? std::ldexp(fraction, 1 - format.bias())
                                 : std::ldexp(1 + fraction, exponent - format.bias()));
}

class reference_element : public testing::TestWithParam<BinaryFormat> {};
INSTANTIATE_TEST_SUITE_P(halves, reference_element, testing::Values(binary16, brain16),
                         [](const auto& named) { return named.index == 0 ? "binary16" : "brain16"; });

TEST_P(reference_element, decodes_and_encodes_every_number) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const double want = defined_value(GetParam(), bits), got = decode(GetParam(), bits);
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << bits;
            ASSERT_TRUE(std::isnan(decode(GetParam(), encode(GetParam(), got)))) << bits;
            continue;
        }
        ASSERT_EQ(got, want) << bits;
        ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
        ASSERT_EQ(encode(GetParam(), got), bits);
    }
}

// Between two neighbours: below the middle down, above it up, the middle itself to the even one; beyond the largest
// the neighbour is infinity, which stands where the next number would.
TEST_P(reference_element, rounds_to_the_nearest_and_ties_to_even) {
    const BinaryFormat format = GetParam();
    for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
        const double low = decode(format, bits);
        const bool is_largest = bits + 1 == format.infinity();
        const double high = is_largest ? std::ldexp(1, format.bias() + 1) : decode(format, bits + 1);
        const double middle = (low + high) / 2;
        ASSERT_EQ(encode(format, std::nextafter(middle, 0)), bits);
        ASSERT_EQ(encode(format, middle), bits + (bits & 1));
        ASSERT_EQ(encode(format, std::nextafter(middle, INFINITY)), bits + 1);
        ASSERT_EQ(encode(format, -middle), (bits + (bits & 1)) | format.sign());
    }
}

TEST(reference_binary32, floats_are_what_the_machine_has) {
    std::mt19937_64 engine(1);
    for (int at = 0; at < 1000000; ++at) {
        const auto bits = static_cast<uint32_t>(engine());
        const float number = std::bit_cast<float>(bits);
        if (std::isnan(number)) continue;
        ASSERT_EQ(decode(binary32, bits), static_cast<double>(number));
        ASSERT_EQ(encode(binary32, number), bits);
        // A double that lies anywhere near, rounded by the machine.
        const double near = std::ldexp(static_cast<double>(number), static_cast<int>(engine() % 3) - 1) *
                            (1 + static_cast<double>(engine() >> 11) * 0x1p-70);
        ASSERT_EQ(encode(binary32, near), std::bit_cast<uint32_t>(static_cast<float>(near)));
    }
}

} // namespace
} // namespace winnow::reference
