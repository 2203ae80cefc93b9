// Small stores in host memory for the tests of the reference's operations on slots: a row has two elements, unless said
// otherwise, and numbers that one can follow on paper.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "device/slots.hpp"
#include "reference/device.hpp"

namespace winnow::reference {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// A dense tensor [1, a, b, c].
template <typename T>
struct Array {
    std::array<int64_t, 3> shape{};
    std::vector<T> values;

    Array() = default;
    Array(std::array<int64_t, 3> dimensions, T value)
        : shape(dimensions), values(static_cast<size_t>(dimensions[0] * dimensions[1] * dimensions[2]), value) {}

    T& at(int64_t a, int64_t b, int64_t c) { return values[static_cast<size_t>((a * shape[1] + b) * shape[2] + c)]; }
    // The innermost row.
    std::vector<T> row(int64_t a, int64_t b = 0) {
        T* const first = &at(a, b, 0);
        return {first, first + shape[2]};
    }
    void set_row(int64_t a, int64_t b, std::vector<T> row) { std::copy(row.begin(), row.end(), &at(a, b, 0)); }

    operator Tensor() {
        if (values.empty()) return {};
        Tensor tensor;
        tensor.type = std::is_same_v<T, float> ? Type::f32 : Type::i32;
        tensor.data = reinterpret_cast<std::byte*>(values.data());
        const int64_t size = sizeof(T);
        tensor.shape = {1, shape[0], shape[1], shape[2]};
        tensor.stride = {shape[0] * shape[1] * shape[2] * size, shape[1] * shape[2] * size, shape[2] * size, size};
        return tensor;
    }
};

using Floats = Array<float>;
using Ints = Array<int32_t>;

// Token n of head h has the key {n, 10 h + n} and the value {100 + n, h - n}, less the means where there are some.
inline std::vector<float> key_of(int64_t head, int32_t token_id) {
    return {static_cast<float>(token_id), static_cast<float>(10 * head + token_id)};
}
inline std::vector<float> value_of(int64_t head, int32_t token_id) {
    return {static_cast<float>(100 + token_id), static_cast<float>(head - token_id)};
}

struct TestSegment {
    Floats k, v, importance, k_mean, v_mean;
    Ints tokens;

    TestSegment() = default;
    // The slot map of each head; where it is negative the rows are NaN.
    explicit TestSegment(const std::vector<std::vector<int32_t>>& maps) {
        const auto heads = static_cast<int64_t>(maps.size()), slots = static_cast<int64_t>(maps[0].size());
        k = v = Floats({heads, slots, 2}, not_a_number);
        importance = Floats({heads, 1, slots}, 0);
        tokens = Ints({heads, 1, slots}, free_slot);
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t slot = 0; slot < slots; ++slot) {
                const int32_t entry = maps[static_cast<size_t>(head)][static_cast<size_t>(slot)];
                tokens.at(head, 0, slot) = entry;
                if (entry < 0) continue;
                k.set_row(head, slot, key_of(head, entry & ~anchor_flag));
                v.set_row(head, slot, value_of(head, entry & ~anchor_flag));
            }
    }

    operator Segment() { return {k, v, tokens, importance, k_mean, v_mean}; }
    std::vector<int32_t> map(int64_t head) { return tokens.row(head); }

    // Each live slot has the rows of its token, which it stands for with the means.
    void expect_rows() {
        for (int64_t head = 0; head < tokens.shape[0]; ++head)
            for (int64_t slot = 0; slot < tokens.shape[2]; ++slot) {
                const int32_t entry = tokens.at(head, 0, slot);
                if (entry < 0) continue;
                EXPECT_EQ(plus(k.row(head, slot), k_mean, head), key_of(head, entry & ~anchor_flag)) << slot;
                EXPECT_EQ(plus(v.row(head, slot), v_mean, head), value_of(head, entry & ~anchor_flag)) << slot;
            }
    }

private:
    static std::vector<float> plus(std::vector<float> row, Floats& mean, int64_t head) {
        for (size_t d = 0; d < row.size() && !mean.values.empty(); ++d)
            row[d] += mean.at(head, 0, static_cast<int64_t>(d));
        return row;
    }
};

class reference_slots : public testing::Test {
protected:
    static DeviceRequest request() {
        DeviceRequest request;
        request.device = "cpu";
        return request;
    }
    ReferenceDevice device_{request()};
};

} // namespace winnow::reference
