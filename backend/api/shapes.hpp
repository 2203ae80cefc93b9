// Checks between shapes, and the types a role admits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "api/structs.hpp"
#include "api/tensor.hpp"

namespace winnow::api {

inline constexpr auto dense_types = {Type::f32, Type::f16, Type::bf16};
inline constexpr auto storage_types = {
    Type::f32,         Type::f16,         Type::bf16,         Type::q8_0,        Type::q5_1,        Type::q5_0,
    Type::q4_1,        Type::q4_0,        Type::iq4_nl,       Type::affine8_g32, Type::affine8_g64, Type::affine8_g128,
    Type::affine4_g32, Type::affine4_g64, Type::affine4_g128, Type::turbo4,      Type::turbo3,      Type::turbo2,
    Type::turbo3_5,    Type::turbo2_5,    Type::sparse16,     Type::sparse8};
inline constexpr auto index_types = {Type::i32, Type::i64};
inline constexpr auto float_type = {Type::f32};
inline constexpr auto mask_types = {Type::f32, Type::f16, Type::boolean};

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

inline void expect_not_negative(int64_t value, const char* name) {
    if (value < 0) invalid(std::string(name) + " is " + std::to_string(value) + ", expected at least 0");
}

inline int64_t to_window(int64_t tokens, const char* name) {
    expect_not_negative(tokens, name);
    return std::min(tokens, position_limit);
}

inline float to_scale(float scale, int64_t head_size, const char* name) {
    if (!std::isfinite(scale)) invalid(std::string(name) + " is not finite");
    return scale != 0 ? scale : 1.0f / std::sqrt(static_cast<float>(head_size));
}

inline float to_softcap(float softcap, const char* name) {
    if (!std::isfinite(softcap) || softcap < 0) {
        invalid(std::string(name) + " is " + std::to_string(softcap) + ", expected a finite number of at least 0");
    }
    return softcap;
}

// [mb, mh, mq, mk] over q: modulo by batch and by head, one row for all or one for each token, and the same of columns.
inline void expect_mask(const Tensor& mask, const char* name, const Tensor& q, int64_t columns, const char* of) {
    const auto& shape = mask.shape;
    expect_divides(shape[0], name, 0, q.shape[0], "q");
    expect_divides(shape[1], name, 1, q.shape[1], "q");
    if (shape[2] != 1 && shape[2] < q.shape[2]) {
        invalid(std::string(name) + ".shape[2] is " + std::to_string(shape[2]) + ", expected 1 or at least q_len, " +
                std::to_string(q.shape[2]));
    }
    if (shape[3] != 1 && shape[3] < columns) {
        invalid(std::string(name) + ".shape[3] is " + std::to_string(shape[3]) + ", expected 1 or at least " + of +
                ", " + std::to_string(columns));
    }
}

inline void expect_mask_slopes(const Tensor& slopes, const char* name, const Tensor& mask) {
    if (!slopes) return;
    if (!mask) invalid(std::string(name) + " is given without attn_mask");
    if (mask.type == Type::boolean) {
        invalid(std::string(name) + " is given with a BOOL attn_mask, expected an additive one");
    }
}

inline void expect_count(const char* name, int64_t value, int64_t most, int64_t least = 1) {
    if (value >= least && value <= most) return;
    invalid(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
            std::to_string(most));
}

inline void expect_absent(const void* given, const char* name, const char* why) {
    if (given != nullptr) invalid(std::string(name) + " is given, expected NULL " + why);
}

inline Norm to_norm(uint32_t value, const char* name) {
    if (value > WINNOW_NORM_UNIT_SLOPE) {
        invalid(std::string(name) + " is " + std::to_string(value) + ", expected WINNOW_NORM_*, 0 to 3");
    }
    return value == WINNOW_NORM_DEFAULT ? Norm::corrected : static_cast<Norm>(value);
}

} // namespace winnow::api
