// A problem of attention over the slots of several segments, and its answer by the formula, as a loop in double
// precision. What packed rows stand for is asked of the device's own kv_dequantize, which has its judge elsewhere.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "device/slots.hpp"

namespace winnow::opencl {

// Host memory with a tensor over it.
struct HostTensor {
    std::vector<std::byte> bytes;
    Tensor tensor;

    HostTensor() = default;
    HostTensor(Type type, const std::array<int64_t, 4>& shape) {
        const auto row = static_cast<int64_t>(row_bytes(type, shape[3]));
        bytes.resize(static_cast<size_t>(shape[0] * shape[1] * shape[2] * row));
        tensor.type = type;
        tensor.shape = shape;
        tensor.stride = {shape[1] * shape[2] * row, shape[2] * row, row,
                         is_packed(type) ? 0 : static_cast<int64_t>(type_size(type))};
        tensor.data = bytes.data();
    }
    HostTensor(const HostTensor&) = delete;
    HostTensor& operator=(const HostTensor&) = delete;
    HostTensor(HostTensor&&) = default; // a moved vector keeps its memory
    HostTensor& operator=(HostTensor&&) = default;

    std::byte* row(int64_t head, int64_t token) {
        return bytes.data() + head * tensor.stride[1] + token * tensor.stride[2];
    }
    template <class T>
    T& at(int64_t head, int64_t token, int64_t element) {
        return reinterpret_cast<T*>(row(head, token))[element];
    }
};

struct SegmentSizes {
    Type k, v;
    int64_t slots;
    bool k_mean = false, v_mean = false;
    double filled = 0.7; // share of the slots
};

struct SlotCase {
    const char* name = "";
    int64_t kv_heads = 2, group = 4, q_len = 1, head_size = 128, v_head_size = 128;
    std::vector<SegmentSizes> segments{};
    const char* variants = "";
    bool host_threads = false;
    bool is_causal = true;
    int64_t window_left = 0;
    float softcap = 0, v_threshold = 0;
    Type mask = Type::none;
    std::string_view with{}; // of alibi, sinks, slopes, scores and stats, those that there are
    bool has(std::string_view what) const { return with.find(what) != with.npos; }
};

inline void PrintTo(const SlotCase& one, std::ostream* out) { *out << one.name; }

// One segment with its rows, and what they stand for.
struct SlotRows {
    HostTensor k, v, tokens, k_mean, v_mean;
    HostTensor k_values, v_values; // F32, means added
    Segment store() const {
        Segment result;
        result.k = k.tensor;
        result.v = v.tensor;
        result.tokens = tokens.tensor;
        result.k_mean = k_mean.tensor;
        result.v_mean = v_mean.tensor;
        return result;
    }
};

class SlotProblem {
public:
    SlotProblem(Device& device, const SlotCase& sizes) : device_(device), case_(sizes) {
        int64_t slots = 0;
        for (const SegmentSizes& segment : sizes.segments) slots += segment.slots;
        numbers_ = slots + 40;
        std::vector<std::vector<int32_t>> token_ids(static_cast<size_t>(sizes.kv_heads)); // a head's own selection
        for (std::vector<int32_t>& one : token_ids) {
            for (int32_t number = 0; number < numbers_; ++number) one.push_back(number);
            std::shuffle(one.begin(), one.end(), random_);
        }
        for (const SegmentSizes& segment : sizes.segments) add_store(segment, token_ids);
        Sdpa& args = attention_.sdpa;
        const int64_t q_heads = sizes.kv_heads * sizes.group;
        q_ = normal({1, q_heads, sizes.q_len, sizes.head_size}, 2);
        out_ = HostTensor(Type::f32, {1, q_heads, sizes.q_len, sizes.v_head_size});
        args.q = q_.tensor;
        args.out = out_.tensor;
        args.scale = 1 / std::sqrt(static_cast<float>(sizes.head_size));
        args.softcap = sizes.softcap;
        args.is_causal = sizes.is_causal;
        args.window_left = sizes.window_left;
        args.q_offset = numbers_ - sizes.q_len - 20; // later tokens exist
        args.v_threshold = sizes.v_threshold;
        if (sizes.has("alibi")) args.alibi_slopes = (alibi_ = normal({1, 1, 1, q_heads}, .02)).tensor;
        if (sizes.has("sinks")) args.head_sink = (sinks_ = normal({1, 1, 1, q_heads}, 1)).tensor;
        if (sizes.has("slopes")) args.mask_slopes = (slopes_ = normal({1, 1, 1, q_heads}, 1)).tensor;
        if (sizes.has("stats")) args.row_stats = (stats_ = HostTensor(Type::f32, {1, q_heads, sizes.q_len, 2})).tensor;
        if (sizes.has("scores")) {
            args.scores_mode = Scores::biased;
            args.scores_out = (scores_ = HostTensor(Type::f32, {1, q_heads, sizes.q_len, slots})).tensor;
        }
        if (sizes.mask != Type::none) args.mask = make_mask(numbers_ - 10).tensor; // the last numbers have no column
        for (const std::unique_ptr<SlotRows>& one : rows_) attention_.segments.push_back(one->store());
    }

    const SlotAttention& attention() const { return attention_; }

    void run() {
        // What was there before must not shine through.
        for (HostTensor* one : {&out_, &scores_, &stats_})
            std::fill(one->bytes.begin(), one->bytes.end(), std::byte{0x7e});
        device_.launch(attention_);
        device_.finish();
    }

    void check() {
        for (int64_t head = 0; head < case_.kv_heads * case_.group; ++head)
            for (int64_t token = 0; token < case_.q_len; ++token) check_row(head, token);
    }

private:
    static constexpr double infinity = std::numeric_limits<double>::infinity();

    HostTensor normal(const std::array<int64_t, 4>& shape, double deviation) {
        HostTensor result(Type::f32, shape);
        std::normal_distribution<float> distribution(0, static_cast<float>(deviation));
        auto* values = reinterpret_cast<float*>(result.bytes.data());
        std::generate_n(values, result.bytes.size() / sizeof(float), [&] { return distribution(random_); });
        return result;
    }

    void add_store(const SegmentSizes& sizes, std::vector<std::vector<int32_t>>& token_ids) {
        const int64_t heads = case_.kv_heads;
        const std::array<int64_t, 4> k_shape{1, heads, sizes.slots, case_.head_size};
        const std::array<int64_t, 4> v_shape{1, heads, sizes.slots, case_.v_head_size};
        SlotRows& rows = *rows_.emplace_back(std::make_unique<SlotRows>());
        rows.tokens = HostTensor(Type::i32, {1, heads, 1, sizes.slots});
        if (sizes.slots == 0) { // no memory, either
            rows.k.tensor.shape = k_shape;
            rows.v.tensor.shape = v_shape;
            return;
        }
        rows.k = HostTensor(sizes.k, k_shape);
        rows.v = HostTensor(sizes.v, v_shape);
        const HostTensor k = normal(k_shape, 1), v = normal(v_shape, 1);
        HostTensor every(Type::i64, {1, 1, 1, sizes.slots});
        for (int64_t slot = 0; slot < sizes.slots; ++slot) every.at<int64_t>(0, 0, slot) = slot;
        KvAppend append;
        append.k.src = k.tensor;
        append.k.cache = rows.k.tensor;
        append.v.src = v.tensor;
        append.v.cache = rows.v.tensor;
        append.k.row_indices = append.v.row_indices = every.tensor;
        device_.launch(append, false);
        rows.k_values = HostTensor(Type::f32, k_shape);
        rows.v_values = HostTensor(Type::f32, v_shape);
        device_.launch(KvDequantize{rows.k.tensor, rows.k_values.tensor, {}}, false);
        device_.launch(KvDequantize{rows.v.tensor, rows.v_values.tensor, {}}, false);
        device_.finish();
        if (sizes.k_mean) add_mean(rows.k_mean = normal({1, heads, 1, case_.head_size}, 1), rows.k_values);
        if (sizes.v_mean) add_mean(rows.v_mean = normal({1, heads, 1, case_.v_head_size}, 1), rows.v_values);
        std::bernoulli_distribution is_filled(sizes.filled), is_anchor(.3);
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t slot = 0; slot < sizes.slots; ++slot) {
                int32_t& entry = rows.tokens.at<int32_t>(head, 0, slot);
                std::vector<int32_t>& left = token_ids[static_cast<size_t>(head)];
                if (is_filled(random_)) {
                    entry = left.back() | (is_anchor(random_) ? anchor_flag : 0);
                    left.pop_back();
                    continue;
                }
                entry = free_slot; // and what lies there is not a number
                std::memset(rows.k.row(head, slot), 0xff, static_cast<size_t>(rows.k.tensor.stride[2]));
                std::memset(rows.v.row(head, slot), 0xff, static_cast<size_t>(rows.v.tensor.stride[2]));
            }
    }

    static void add_mean(HostTensor& mean, HostTensor& values) {
        const std::array<int64_t, 4>& shape = values.tensor.shape;
        for (int64_t head = 0; head < shape[1]; ++head)
            for (int64_t slot = 0; slot < shape[2]; ++slot)
                for (int64_t d = 0; d < shape[3]; ++d) values.at<float>(head, slot, d) += mean.at<float>(head, 0, d);
    }

    // One mask for all heads, as runtimes have it. f16 has the values 0, -1 and -infinity.
    const HostTensor& make_mask(int64_t columns) {
        mask_ = HostTensor(case_.mask, {1, 1, case_.q_len, columns});
        mask_values_.resize(static_cast<size_t>(case_.q_len * columns));
        std::discrete_distribution<int> choice{5, 3, 2};
        for (size_t i = 0; i < mask_values_.size(); ++i) {
            const int chosen = choice(random_);
            mask_values_[i] = chosen == 2 ? -infinity : case_.mask == Type::boolean ? 0 : -chosen;
            std::byte* const bytes = mask_.bytes.data() + i * type_size(case_.mask);
            const uint16_t half = chosen == 2 ? 0xfc00 : chosen == 1 ? 0xbc00 : 0;
            const auto single = static_cast<float>(mask_values_[i]);
            if (case_.mask == Type::boolean)
                *bytes = std::byte(chosen != 2);
            else if (case_.mask == Type::f16)
                std::memcpy(bytes, &half, sizeof half);
            else
                std::memcpy(bytes, &single, sizeof single);
        }
        return mask_;
    }

    // What mask and ALiBi add; -infinity where the row does not see the number.
    double bias(int64_t head, int64_t token, int64_t number) {
        const Sdpa& args = attention_.sdpa;
        const int64_t position = args.q_offset + token;
        if (case_.is_causal && number > position) return -infinity;
        if (case_.window_left != 0 && number <= position - case_.window_left) return -infinity;
        double result = 0;
        if (case_.mask != Type::none) {
            const int64_t columns = args.mask.shape[3];
            if (number >= columns) return -infinity;
            result = mask_values_[static_cast<size_t>(token * columns + number)];
            if (case_.has("slopes") && result != -infinity) result *= slopes_.at<float>(0, 0, head);
        }
        if (case_.has("alibi")) result += alibi_.at<float>(0, 0, head) * static_cast<double>(number - position);
        return result;
    }

    struct Seen {
        double score;
        const float* value;
    };

    void check_row(int64_t head, int64_t token) {
        constexpr double rounding = 0x1p-23;
        const Sdpa& args = attention_.sdpa;
        const int64_t kv_head = head / case_.group;
        const float* const q = &q_.at<float>(head, token, 0);
        std::vector<Seen> seen;
        double maximum = -infinity, largest_value = 0, score_error = 0;
        int64_t column = 0;
        for (const std::unique_ptr<SlotRows>& rows : rows_)
            for (int64_t slot = 0; slot < rows->tokens.tensor.shape[3]; ++slot, ++column) {
                const int32_t entry = rows->tokens.at<int32_t>(kv_head, 0, slot);
                const double added = entry < 0 ? -infinity : bias(head, token, entry & ~anchor_flag);
                double score = -infinity;
                if (added != -infinity) {
                    const float* const k = &rows->k_values.at<float>(kv_head, slot, 0);
                    double dot = 0, q_square = 0, k_square = 0;
                    for (int64_t d = 0; d < case_.head_size; ++d) {
                        dot += double(q[d]) * double(k[d]);
                        q_square += double(q[d]) * double(q[d]);
                        k_square += double(k[d]) * double(k[d]);
                    }
                    score = dot * double(args.scale);
                    if (case_.softcap != 0) score = double(case_.softcap) * std::tanh(score / double(case_.softcap));
                    score += added;
                    // Sums of head_size products, with rotations that keep the norms; then a few roundings.
                    const double error =
                        rounding * (double(case_.head_size) * double(args.scale) * std::sqrt(q_square * k_square) +
                                    8 * std::abs(score) + 8 * std::abs(added));
                    score_error = std::max(score_error, error);
                    seen.push_back({score, &rows->v_values.at<float>(kv_head, slot, 0)});
                    maximum = std::max(maximum, score);
                    for (int64_t d = 0; d < case_.v_head_size; ++d)
                        largest_value = std::max(largest_value, double(std::abs(seen.back().value[d])));
                }
                if (!case_.has("scores")) continue;
                const double given = double(scores_.at<float>(head, token, column));
                if (score == -infinity) {
                    ASSERT_EQ(given, -infinity) << where(head, token) << ", column " << column;
                } else {
                    ASSERT_NEAR(given, score, score_error) << where(head, token) << ", column " << column;
                }
            }

        double sum = 0;
        if (!seen.empty() && case_.has("sinks")) {
            const double sink = double(sinks_.at<float>(0, 0, head));
            maximum = std::max(maximum, sink);
            sum = std::exp(sink - maximum);
        }
        for (const Seen& one : seen) sum += std::exp(one.score - maximum);
        const double relative = 2 * score_error + rounding * double(seen.size() + 16);
        if (case_.has("stats")) {
            ASSERT_EQ(double(stats_.at<float>(head, token, 0)) == -infinity, seen.empty()) << where(head, token);
            if (!seen.empty()) {
                ASSERT_NEAR(double(stats_.at<float>(head, token, 0)), maximum, score_error) << where(head, token);
            }
            ASSERT_NEAR(double(stats_.at<float>(head, token, 1)), sum, sum * relative) << where(head, token);
        }
        const double passed_over = double(case_.v_threshold) * double(seen.size());
        // The rotation back mixes the elements, whose errors are those of the largest.
        const double allowed = (relative * 8 + passed_over) * std::max(largest_value, 1e-30);
        for (int64_t d = 0; d < case_.v_head_size; ++d) {
            double expected = 0;
            for (const Seen& one : seen) expected += std::exp(one.score - maximum) / sum * double(one.value[d]);
            ASSERT_NEAR(double(out_.at<float>(head, token, d)), expected, allowed) << where(head, token) << ", " << d;
        }
    }

    std::string where(int64_t head, int64_t token) const {
        return std::string(case_.name) + ": head " + std::to_string(head) + ", query " + std::to_string(token);
    }

    Device& device_;
    const SlotCase& case_;
    std::mt19937 random_{7};
    int64_t numbers_ = 0;
    std::vector<std::unique_ptr<SlotRows>> rows_;
    HostTensor q_, out_, alibi_, sinks_, slopes_, stats_, scores_, mask_;
    std::vector<double> mask_values_;
    SlotAttention attention_;
};

} // namespace winnow::opencl
