// Checks between shapes, and the types a role admits.
#pragma once

#include <array>
#include <string>

#include "api/structs.hpp"
#include "api/tensor.hpp"

namespace winnow::api {

inline constexpr auto dense_types = {Type::f32, Type::f16, Type::bf16};
inline constexpr auto storage_types = {Type::f32,         Type::f16,         Type::bf16,         Type::q8_0,
                                       Type::q5_1,        Type::q5_0,        Type::q4_1,         Type::q4_0,
                                       Type::iq4_nl,      Type::affine8_g32, Type::affine8_g64,  Type::affine8_g128,
                                       Type::affine4_g32, Type::affine4_g64, Type::affine4_g128, Type::turbo4,
                                       Type::turbo3,      Type::turbo2,      Type::turbo3_5,     Type::turbo2_5};
inline constexpr auto index_types = {Type::i32, Type::i64};

inline constexpr const char* axis_names[4] = {"batch", "heads", "tokens", "elements"};

// Compares axis by axis; a negative length in expected fits anything.
inline void expect_shape(const Tensor& tensor, const char* name, const std::array<int64_t, 4>& expected) {
    for (int axis = 0; axis < 4; ++axis) {
        if (expected[axis] < 0 || tensor.shape[axis] == expected[axis]) continue;
        invalid(std::string(name) + ".shape[" + std::to_string(axis) + "] (" + axis_names[axis] + ") is " +
                std::to_string(tensor.shape[axis]) + ", expected " + std::to_string(expected[axis]) +
                "; the shape is " + shape_text(tensor));
    }
}

// Broadcasting by modulo or division: tensor.shape[axis] has to divide the number of `of`.
inline void expect_divides(int64_t length, const char* tensor, int axis, int64_t number, const char* of) {
    if (number % length == 0) return;
    invalid(std::string(tensor) + ".shape[" + std::to_string(axis) + "] is " + std::to_string(length) +
            ", expected a divisor of " + std::to_string(number) + ", the " + axis_names[axis] + " of " + of);
}

inline void expect_flag(uint32_t value, const char* name) {
    if (value > 1) invalid(std::string(name) + " is " + std::to_string(value) + ", expected 0 or 1");
}

inline Norm to_norm(uint32_t value, const char* name) {
    if (value > WINNOW_NORM_UNIT_SLOPE) {
        invalid(std::string(name) + " is " + std::to_string(value) + ", expected WINNOW_NORM_*, 0 to 3");
    }
    return value == WINNOW_NORM_DEFAULT ? Norm::corrected : static_cast<Norm>(value);
}

} // namespace winnow::api
