// How near the turbo formats come to the optimum of Lloyd and Max, on 10^5 unit vectors of head size 128, evenly spread
// over all directions. The figures are printed, since lab/formats.md quotes them.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "rows.hpp"

namespace winnow::formats {
namespace {

struct Quality {
    double error = 0;  // squared, as a share of the variance
    double cosine = 0; // mean
};

Quality quality(const char* what, const std::function<Vector(const Vector&)>& through, int vectors = 100000) {
    std::mt19937 random(128);
    Quality mean;
    for (int i = 0; i < vectors; ++i) {
        Vector x = normal(random, 128);
        const double length = norm(x);
        for (double& value : x) value /= length;
        const Vector got = through(x);
        mean.error += squared_distance(x, got) / vectors;
        mean.cosine += cosine(x, got) / vectors;
    }
    std::printf("    %-34s squared error %.5f of the variance, mean cosine %.5f\n", what, mean.error, mean.cosine);
    return mean;
}

Quality of_type(Type type, Norm kind = Norm::plain) {
    return quality(type_name(type), [=](const Vector& x) { return round_trip(type, x, kind); });
}

TEST(turbo_quality, is_the_optimum_of_its_bits) {
    const Quality four = of_type(Type::turbo4), three_and_half = of_type(Type::turbo3_5), three = of_type(Type::turbo3),
                  two_and_half = of_type(Type::turbo2_5), two = of_type(Type::turbo2);
    EXPECT_NEAR(two.error, .1175, .02 * .1175);
    EXPECT_NEAR(three.error, .0345, .02 * .0345);
    EXPECT_NEAR(four.error, .0095, .02 * .0095);
    EXPECT_GE(two.cosine, .939);
    EXPECT_GE(three.cosine, .982);
    EXPECT_GE(four.cosine, .995);
    // A half of the elements at each of two widths: the mean of the two errors, so strictly between.
    EXPECT_NEAR(three_and_half.error, (three.error + four.error) / 2, .02 * three.error);
    EXPECT_NEAR(two_and_half.error, (two.error + three.error) / 2, .02 * two.error);
    EXPECT_LT(four.error, three_and_half.error);
    EXPECT_LT(three_and_half.error, three.error);
    EXPECT_LT(three.error, two_and_half.error);
    EXPECT_LT(two_and_half.error, two.error);
}

// The plain norm has the smallest error, which the other two spend on what they keep.
TEST(turbo_quality, is_best_with_the_plain_norm) {
    const auto with = [](const char* what, Norm kind) {
        return quality(
            what, [=](const Vector& x) { return round_trip(Type::turbo2, x, kind); }, 10000);
    };
    const Quality plain = with("TURBO2, plain norm", Norm::plain);
    const Quality corrected = with("TURBO2, corrected norm", Norm::corrected);
    const Quality unit_slope = with("TURBO2, unit slope", Norm::unit_slope);
    EXPECT_LT(plain.error, corrected.error);
    EXPECT_LT(corrected.error, unit_slope.error);
    EXPECT_NEAR(corrected.cosine, plain.cosine, 1e-4);
}

TEST(turbo_quality, survives_requantizing) {
    const auto steps = [](std::initializer_list<Type> types) {
        return [all = std::vector<Type>(types)](Vector x) {
            for (Type type : all) x = round_trip(type, x, Norm::corrected);
            return x;
        };
    };
    const Quality direct = quality("TURBO2", steps({Type::turbo2}), 20000);
    const Quality from_three = quality("TURBO3 to TURBO2", steps({Type::turbo3, Type::turbo2}), 20000);
    const Quality from_four =
        quality("TURBO4 to TURBO3 to TURBO2", steps({Type::turbo4, Type::turbo3, Type::turbo2}), 20000);
    const Quality affine = quality("AFFINE8_G64 to AFFINE4_G64", steps({Type::affine8_g64, Type::affine4_g64}), 20000);
    const Quality affine_direct = quality("AFFINE4_G64", steps({Type::affine4_g64}), 20000);
    EXPECT_GE(from_three.cosine, .93);
    EXPECT_GE(from_four.cosine, .92);
    EXPECT_GE(from_three.error, direct.error);
    EXPECT_GE(affine.error, affine_direct.error * .99);
    EXPECT_LE(affine.error, affine_direct.error * 1.1);
}

} // namespace
} // namespace winnow::formats
