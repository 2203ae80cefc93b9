// Segments of slots in host memory, and a device to work on them: what the tests of the operations on slots share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "device/slots.hpp"
#include "opencl/platform.hpp"
#include "pocl_required.hpp"

namespace winnow::opencl {

using Random = std::mt19937_64;

inline int64_t draw(Random& random, int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
}
inline bool chance(Random& random, double probability) { return std::bernoulli_distribution(probability)(random); }
inline float normal(Random& random) { return std::normal_distribution<float>()(random); }

inline void run_in_threads(void*, uint32_t count, winnow_task task, void* data) {
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i < count; ++i) threads.emplace_back([=] { task(data, i); });
    task(data, 0);
    for (std::thread& thread : threads) thread.join();
}

// A device for all tests, or one whose operations are divided among threads; null where there is no driver.
inline Device* device(bool is_divided = false) {
    static std::unique_ptr<Device> devices[2];
    std::unique_ptr<Device>& made = devices[is_divided ? 1 : 0];
    if (made == nullptr) {
        try {
            if (list_devices().empty()) return nullptr;
        } catch (const Error&) {
            return nullptr;
        }
        DeviceRequest request;
        request.device = "cpu";
        request.log = [](int32_t, const std::string&) {};
        if (is_divided) request.parallel_for = run_in_threads;
        made = backend::create(request);
    }
    return made.get();
}

template <typename T>
Tensor tensor_of(Type type, std::vector<T>& memory, std::array<int64_t, 4> shape, int64_t head_stride) {
    Tensor tensor;
    tensor.type = type;
    tensor.data = reinterpret_cast<std::byte*>(memory.data());
    tensor.shape = shape;
    const auto row = static_cast<int64_t>(row_bytes(type, shape[3]));
    tensor.stride = {head_stride * shape[1], head_stride, row, static_cast<int64_t>(type_size(type))};
    return tensor;
}

template <typename T>
Tensor dense_of(Type type, std::vector<T>& memory, std::array<int64_t, 4> shape) {
    return tensor_of(type, memory, shape, static_cast<int64_t>(row_bytes(type, shape[3])) * shape[2]);
}

// Rows of a cache: [heads][capacity][row], of which the first `slots` are used.
struct Rows {
    Type type;
    int64_t heads, slots, capacity, size;
    std::vector<uint8_t> bytes;

    Rows(Type type_, int64_t heads_, int64_t slots_, int64_t size_, int64_t spare = 0)
        : type(type_), heads(heads_), slots(slots_), capacity(slots_ + spare), size(size_),
          bytes(static_cast<size_t>(heads_ * capacity * row()), 0x5a) {}

    int64_t row() const { return static_cast<int64_t>(row_bytes(type, size)); }
    Tensor tensor() { return tensor_of(type, bytes, {1, heads, slots, size}, capacity * row()); }
    std::vector<uint8_t> at(int64_t head, int64_t slot) const {
        const auto first = bytes.begin() + (head * capacity + slot) * row();
        return {first, first + row()};
    }
};

// Floats of every row, without any mean.
inline std::vector<float> values_of(Device& device, Rows& rows) {
    std::vector<float> values(static_cast<size_t>(rows.heads * rows.slots * rows.size));
    if (rows.slots == 0) return values;
    KvDequantize args;
    args.src = rows.tensor();
    args.dst = dense_of(Type::f32, values, {1, rows.heads, rows.slots, rows.size});
    device.launch(args, false);
    device.finish();
    return values;
}

// Segments floats, all rows, by kv_append, which has tests of its own.
inline void fill(Device& device, Rows& rows, std::vector<float>& values, Norm norm = Norm::corrected) {
    if (rows.slots == 0) return;
    std::vector<int32_t> indices(static_cast<size_t>(rows.slots));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i);
    KvAppend args;
    args.k.src = dense_of(Type::f32, values, {1, rows.heads, rows.slots, rows.size});
    args.k.cache = rows.tensor();
    args.k.row_indices = dense_of(Type::i32, indices, {1, 1, 1, rows.slots});
    args.k.norm = norm;
    device.launch(args, false);
    device.finish();
}

struct HostSegment {
    Rows k, v;
    int64_t capacity;
    std::vector<int32_t> tokens;
    std::vector<float> importance, k_mean, v_mean; // empty: absent

    HostSegment(Type k_type, Type v_type, int64_t heads, int64_t slots, int64_t k_size, int64_t v_size,
                bool has_importance, bool has_means, int64_t spare = 3)
        : k(k_type, heads, slots, k_size, spare), v(v_type, heads, slots, v_size, spare), capacity(slots + spare),
          tokens(static_cast<size_t>(heads * capacity), free_slot) {
        if (has_importance) importance.resize(tokens.size());
        if (has_means) {
            k_mean.resize(static_cast<size_t>(heads * k_size));
            v_mean.resize(static_cast<size_t>(heads * v_size));
        }
    }

    int64_t heads() const { return k.heads; }
    int64_t slots() const { return k.slots; }
    int32_t& token(int64_t head, int64_t slot) { return tokens[static_cast<size_t>(head * capacity + slot)]; }
    int32_t token(int64_t head, int64_t slot) const { return tokens[static_cast<size_t>(head * capacity + slot)]; }
    float& weight(int64_t head, int64_t slot) { return importance[static_cast<size_t>(head * capacity + slot)]; }
    float weight(int64_t head, int64_t slot) const { return importance[static_cast<size_t>(head * capacity + slot)]; }

    Segment store() {
        Segment result;
        result.k = k.tensor();
        result.v = v.tensor();
        result.tokens = tensor_of(Type::i32, tokens, {1, heads(), 1, slots()}, capacity * 4);
        if (!importance.empty())
            result.importance = tensor_of(Type::f32, importance, {1, heads(), 1, slots()}, capacity * 4);
        if (!k_mean.empty()) result.k_mean = dense_of(Type::f32, k_mean, {1, heads(), 1, k.size});
        if (!v_mean.empty()) result.v_mean = dense_of(Type::f32, v_mean, {1, heads(), 1, v.size});
        return result;
    }

    void fill_rows(Device& device, Random& random) {
        for (Rows* rows : {&k, &v}) {
            std::vector<float> values(static_cast<size_t>(rows->heads * rows->slots * rows->size));
            for (float& value : values) value = normal(random);
            fill(device, *rows, values);
        }
        for (std::vector<float>* mean : {&k_mean, &v_mean})
            for (float& value : *mean) value = normal(random);
    }
};

// Equal bit for bit, NaN included.
template <typename T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

class SlotsTest : public testing::Test {
protected:
    void SetUp() override {
        if (device() == nullptr) WINNOW_SKIP_WITHOUT_POCL("no OpenCL driver offers a device");
    }
};

} // namespace winnow::opencl
