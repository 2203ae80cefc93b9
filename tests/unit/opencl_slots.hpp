// Segments of slots in host memory that two devices work on, the reference and then OpenCL, each from the same bytes.
// What OpenCL leaves has to be what the reference left: every byte of it, slots behind a head's last and the bytes
// around a tensor included, except where numbers are said to be near.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>

#include "device/slots.hpp"
#include "opencl_test.hpp"
#include "reference/device.hpp"

namespace winnow::opencl {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

using Random = std::mt19937_64;

inline int64_t draw(Random& random, int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
}
inline bool chance(Random& random, double probability) { return std::bernoulli_distribution(probability)(random); }
inline float normal(Random& random) { return std::normal_distribution<float>()(random); }
// A multiple of 1/64, so that sums and differences of rows and means are exact in single precision.
inline float short_normal(Random& random) { return std::round(64 * normal(random)) / 64; }
inline float power_of_two(Random& random, int64_t largest) {
    return std::ldexp(1.0f, static_cast<int>(draw(random, -largest, largest)));
}

inline Device& reference_device() {
    static reference::ReferenceDevice device(plain_request());
    return device;
}

template <typename T>
T& at(const Tensor& tensor, int64_t head, int64_t row, int64_t element) {
    std::byte* const begin = tensor.data + head * tensor.stride[1] + row * tensor.stride[2];
    return *reinterpret_cast<T*>(begin + element * static_cast<int64_t>(sizeof(T)));
}

template <typename T, typename Make>
void fill(const Tensor& tensor, const Make& make) {
    for (int64_t head = 0; tensor && head < tensor.shape[1]; ++head)
        for (int64_t row = 0; row < tensor.shape[2]; ++row)
            for (int64_t i = 0; i < tensor.shape[3]; ++i) at<T>(tensor, head, row, i) = make();
}

// How much numbers may differ; by default nothing may.
struct Near {
    double relative = 0, absolute = 0;
    bool is_scratch = false; // nobody may read what is left
    bool holds(double got, double expected) const {
        if (std::isnan(expected)) return std::isnan(got);
        return got == expected || std::abs(got - expected) <= absolute + relative * std::abs(expected);
    }
};
constexpr Near scratch{0, 0, true};

class SharedMemory {
public:
    // [1, heads, rows, elements], `spare` bytes behind the rows of each head and some around the whole.
    Tensor add(const char* name, Type type, std::array<int64_t, 4> shape, Near near = {}, int64_t spare = 0) {
        const auto row = static_cast<int64_t>(row_bytes(type, shape[3]));
        const int64_t head = shape[2] * row + spare;
        Region& region = regions_.emplace_back();
        region.name = name;
        region.bytes.resize(static_cast<size_t>(shape[1] * head + 2 * around), std::byte{0x5a});
        region.near = near;
        region.tensor.type = type;
        region.tensor.data = region.bytes.data() + around;
        region.tensor.shape = shape;
        region.tensor.stride = {head * shape[1], head, row, static_cast<int64_t>(type_size(type))};
        return region.tensor;
    }

    // Launches on the reference, and from the same bytes on the device, with whose results tests go on.
    template <typename Launch>
    void expect_same(Device& device, const Launch& launch) {
        std::vector<std::vector<std::byte>> before, expected;
        for (const Region& region : regions_) before.push_back(region.bytes);
        launch(reference_device());
        for (size_t i = 0; i < regions_.size(); ++i) {
            expected.push_back(regions_[i].bytes);
            std::copy(before[i].begin(), before[i].end(), regions_[i].bytes.begin());
        }
        launch(device);
        device.finish();
        for (size_t i = 0; i < regions_.size(); ++i) regions_[i].compare(expected[i]);
    }

    // All that is there, but for scratch.
    std::vector<std::vector<std::byte>> bytes() const {
        std::vector<std::vector<std::byte>> all;
        for (const Region& region : regions_)
            if (!region.near.is_scratch) all.push_back(region.bytes);
        return all;
    }

private:
    static constexpr int64_t around = 64;

    struct Region {
        const char* name;
        std::vector<std::byte> bytes;
        Near near;
        Tensor tensor;

        // Takes what is near for what is expected; the rest has to be.
        void compare(const std::vector<std::byte>& expected) const {
            std::vector<std::byte> got = bytes;
            for (int64_t head = 0; head < tensor.shape[1]; ++head)
                for (int64_t row = 0; row < tensor.shape[2]; ++row) {
                    const auto begin = static_cast<size_t>(around + head * tensor.stride[1] + row * tensor.stride[2]);
                    take_what_is_near(got.data() + begin, expected.data() + begin);
                }
            const auto differs = std::mismatch(got.begin(), got.end(), expected.begin()).first;
            if (differs == got.end()) return;
            const int64_t offset = differs - got.begin() - around, in_head = offset % tensor.stride[1];
            const int64_t row = in_head / tensor.stride[2], byte = in_head % tensor.stride[2];
            ADD_FAILURE() << name << " in " << type_name(tensor.type) << ": head " << offset / tensor.stride[1]
                          << ", row " << row << ", byte " << byte << values(expected, differs - got.begin(), byte % 4);
        }

        // What lies there, `in_number` bytes behind the beginning of a number of four.
        std::string values(const std::vector<std::byte>& expected, int64_t at, int64_t in_number) const {
            if (tensor.type != Type::f32 && tensor.type != Type::i32)
                return ": " + std::to_string(std::to_integer<int>(bytes[static_cast<size_t>(at)])) +
                       ", the reference " + std::to_string(std::to_integer<int>(expected[static_cast<size_t>(at)]));
            const int64_t begin = at - in_number;
            const auto text = [&](const std::byte* from) {
                float real = 0;
                int32_t whole = 0;
                std::memcpy(&real, from, sizeof real);
                std::memcpy(&whole, from, sizeof whole);
                return tensor.type == Type::f32 ? std::to_string(real) : std::to_string(whole);
            };
            return ": " + text(bytes.data() + begin) + ", the reference " + text(expected.data() + begin);
        }

        void take_what_is_near(std::byte* got, const std::byte* expected) const {
            const auto size = static_cast<size_t>(row_bytes(tensor.type, tensor.shape[3]));
            if (near.is_scratch || (is_rotated(tensor.type) && is_same_rotated_row(got, expected, size))) {
                std::memcpy(got, expected, size);
                return;
            }
            if (near.relative == 0 && near.absolute == 0) return;
            const std::vector<float> is = numbers(got, size), wanted = numbers(expected, size);
            const size_t element = type_size(tensor.type);
            for (size_t i = 0; i < is.size(); ++i)
                if (near.holds(static_cast<double>(is[i]), static_cast<double>(wanted[i])))
                    std::memcpy(got + i * element, expected + i * element, element);
        }

        // Kernels rotate in single precision, so that a number between two codes may get either, and the factor, the
        // row's last two bytes, may be a unit in its last place off. Neighbouring codes are at most 1.1 |x| / sqrt(n)
        // apart. Of short numbers R x is sometimes 0, which is such a place: one byte in so many elements as share a
        // chunk may have such codes, one or two of them.
        bool is_same_rotated_row(const std::byte* got, const std::byte* expected, size_t size) const {
            double codes = 0, square = 0, difference = 0;
            for (size_t i = 0; i + 2 < size; ++i) codes += got[i] != expected[i] ? 2 : 0;
            const std::vector<float> is = numbers(got, size), wanted = numbers(expected, size);
            for (size_t i = 0; i < is.size(); ++i) {
                square += std::pow(static_cast<double>(wanted[i]), 2);
                difference += std::pow(static_cast<double>(is[i]) - static_cast<double>(wanted[i]), 2);
            }
            const double step = 1.1 * std::sqrt(codes / static_cast<double>(is.size()));
            return codes <= static_cast<double>(is.size() / 8) &&
                   std::sqrt(difference) <= (0x1p-10 + step) * std::sqrt(square);
        }

        std::vector<float> numbers(const std::byte* row, size_t size) const {
            std::vector<float> values(static_cast<size_t>(tensor.shape[3]));
            std::vector<std::byte> copy(row, row + size);
            KvDequantize args;
            args.src = args.dst = tensor;
            args.src.data = copy.data();
            args.src.shape = args.dst.shape = {1, 1, 1, tensor.shape[3]};
            args.dst.type = Type::f32;
            args.dst.data = reinterpret_cast<std::byte*>(values.data());
            args.dst.stride = {0, 0, 0, 4};
            reference_device().launch(args, false);
            return values;
        }
    };

    std::deque<Region> regions_;
};

// Rows of any storage format, made of the numbers that `make` gives for each head, row and element.
template <typename Make>
void store_rows(const Tensor& rows, const Make& make, Norm norm = Norm::corrected) {
    if (rows.shape[2] == 0) return;
    SharedMemory source;
    KvAppend args;
    args.k.src = source.add("source", Type::f32, rows.shape);
    args.k.cache = rows;
    args.k.row_indices = source.add("indices", Type::i32, {1, 1, 1, rows.shape[2]});
    args.k.norm = norm;
    for (int64_t row = 0; row < rows.shape[2]; ++row) {
        at<int32_t>(args.k.row_indices, 0, 0, row) = static_cast<int32_t>(row);
        for (int64_t head = 0; head < rows.shape[1]; ++head)
            for (int64_t i = 0; i < rows.shape[3]; ++i) at<float>(args.k.src, head, row, i) = make(head, row, i);
    }
    reference_device().launch(args, false);
}

inline void store_random_rows(const Tensor& rows, Random& random) {
    store_rows(rows, [&](int64_t, int64_t, int64_t) { return short_normal(random); });
}

struct SegmentShape {
    Type k = Type::f16, v = Type::f16;
    int64_t heads = 2, slots = 0, k_size = 16, v_size = 16;
    bool has_importance = false, has_k_mean = false, has_v_mean = false;
    int64_t spare = 3; // slots
    Near importance{}, mean{};
};

// Rows and means of random numbers; every slot is free.
inline Segment add_segment(SharedMemory& memory, Random& random, const SegmentShape& shape) {
    const auto bytes = [&](Type type, int64_t size) {
        return shape.spare * static_cast<int64_t>(row_bytes(type, size));
    };
    Segment segment;
    segment.k = memory.add("k", shape.k, {1, shape.heads, shape.slots, shape.k_size}, {}, bytes(shape.k, shape.k_size));
    segment.v = memory.add("v", shape.v, {1, shape.heads, shape.slots, shape.v_size}, {}, bytes(shape.v, shape.v_size));
    const std::array<int64_t, 4> map{1, shape.heads, 1, shape.slots};
    segment.tokens = memory.add("tokens", Type::i32, map, {}, 4 * shape.spare);
    if (shape.has_importance)
        segment.importance = memory.add("importance", Type::f32, map, shape.importance, 4 * shape.spare);
    if (shape.has_k_mean)
        segment.k_mean = memory.add("k_mean", Type::f32, {1, shape.heads, 1, shape.k_size}, shape.mean);
    if (shape.has_v_mean)
        segment.v_mean = memory.add("v_mean", Type::f32, {1, shape.heads, 1, shape.v_size}, shape.mean);
    store_random_rows(segment.k, random);
    store_random_rows(segment.v, random);
    fill<float>(segment.k_mean, [&] { return short_normal(random); });
    fill<float>(segment.v_mean, [&] { return short_normal(random); });
    fill<int32_t>(segment.tokens, [] { return free_slot; });
    fill<float>(segment.importance, [&] { return std::abs(normal(random)); });
    return segment;
}

// In each head some slots hold tokens, an anchor now and then, whose token ids `next` gives; the rows of the others are
// no numbers.
template <typename Next>
void set_tokens(const Segment& segment, Random& random, double share_live, const Next& next) {
    for (int64_t head = 0; head < segment.kv_heads(); ++head)
        for (int64_t slot = 0; slot < segment.slots(); ++slot) {
            int32_t& token = at<int32_t>(segment.tokens, head, 0, slot);
            token = free_slot;
            if (chance(random, share_live)) {
                token = next(head, slot) | (chance(random, .1) ? anchor_flag : 0);
                continue;
            }
            for (const Tensor* rows : {&segment.k, &segment.v})
                std::memset(&at<std::byte>(*rows, head, slot, 0), 0xff, row_bytes(rows->type, rows->shape[3]));
        }
}

// How far attention in single precision may be from the reference's over so many slots, where rows and means of K and V
// are normal numbers, and those of the queries times the scale have this deviation.
struct Closeness {
    double score, probability, output; // absolute, relative, absolute
};
inline Closeness closeness(int64_t head_size, int64_t slots, double scale) {
    // |q| |k| of the longest; each of 16 lanes adds up so many products, and a rotation takes some steps before.
    const double norms = 2.2 * static_cast<double>(head_size) * scale;
    const double score = 0x1p-23 * static_cast<double>(head_size / 16 + 24) * norms;
    const double probability = 2 * score + 0x1p-23 * static_cast<double>(slots + 16);
    return {score, probability, 8 * probability}; // values are below 8
}

using opencl_slots = opencl_test;

} // namespace winnow::opencl
