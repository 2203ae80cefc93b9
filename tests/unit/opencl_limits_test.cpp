// What is refused for its size, tensor by tensor: supports says it before there is any memory, with the tensor's
// name, what was given and the limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "opencl/memory.hpp"
#include "opencl/platform.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

Tensor tensor(Type type, std::array<int64_t, 4> shape) {
    Tensor result;
    result.type = type;
    result.shape = shape;
    result.stride[3] = static_cast<int64_t>(type_size(type));
    auto step = static_cast<int64_t>(row_bytes(type, shape[3]));
    for (size_t axis = 3; axis-- > 0; step *= shape[axis]) result.stride[axis] = step;
    return result;
}

Sdpa sdpa() {
    Sdpa args;
    args.q = args.out = tensor(Type::f32, {2, 4, 3, 64});
    Segment& stored = args.segments.emplace_back();
    stored.k = stored.v = tensor(Type::q8_0, {2, 2, 20, 64});
    args.mask = tensor(Type::f16, {2, 1, 3, 20});
    args.mask_slopes = args.alibi_slopes = args.head_sink = tensor(Type::f32, {1, 1, 1, 4});
    args.scores_out = tensor(Type::f32, {2, 4, 3, 20});
    args.scores_mode = Scores::probs;
    args.row_stats = tensor(Type::f32, {2, 4, 3, 2});
    args.v_rows_skipped = tensor(Type::i32, {2, 4, 3, 1});
    args.scale = 1;
    return args;
}

KvAppend kv_append() {
    AppendRows side;
    side.src = tensor(Type::f32, {2, 2, 3, 64});
    side.cache = tensor(Type::q4_0, {2, 2, 20, 64});
    side.row_indices = tensor(Type::i32, {2, 1, 1, 3});
    return {side, side};
}

KvRequantize kv_requantize(Type from, Type to, int64_t elements) {
    KvRequantize args;
    args.src = tensor(from, {2, 2, 20, elements});
    args.dst = tensor(to, {2, 2, 20, elements});
    args.row_indices = tensor(Type::i64, {2, 1, 1, 3});
    return args;
}

KvDequantize kv_dequantize(Type from, int64_t elements) {
    KvDequantize args;
    args.src = tensor(from, {2, 2, 20, elements});
    args.dst = tensor(Type::f16, {2, 2, 3, elements});
    args.row_indices = tensor(Type::i32, {2, 1, 1, 3});
    return args;
}

Hadamard hadamard(int64_t elements) {
    Hadamard args;
    args.src = args.dst = tensor(Type::f32, {2, 1, 3, elements});
    return args;
}

class opencl_limits : public opencl_test {
protected:
    void SetUp() override {
        opencl_test::SetUp();
        if (is_over()) return;
        device_ = backend::create(cpu_request());
        winnow_device_info info{};
        device_->info(info);
        limit_ = info.max_allocation_size;
    }

    // The reason, "" where the call is taken.
    template <typename Args>
    std::string refusal(const Args& args) const {
        try {
            EXPECT_NE(device_->validate(args), "");
            return "";
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED) << error.what();
            return error.what();
        }
    }

    template <typename Args>
    void expect_refused(const Args& args, std::initializer_list<std::string> parts) const {
        const std::string text = refusal(args);
        for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
        // The call itself says the same.
        EXPECT_THROW(device_->launch(args, false), Error);
    }

    // Each tensor in turn reaches a byte beyond what one buffer of the device can hold, or just not.
    template <typename Args>
    void expect_extents_limited(const Args& good,
                                const std::vector<std::pair<std::string, std::function<Tensor&(Args&)>>>& tensors) {
        const uint64_t pages = 2 * page_size(); // an import begins and ends with a page
        EXPECT_EQ(refusal(good), "");
        for (const auto& [name, of] : tensors) {
            SCOPED_TRACE(name);
            Args args = good;
            Tensor& one = of(args);
            one.stride[0] = 0;
            const auto room = static_cast<int64_t>(limit_ - pages - one.extent());
            one.stride[0] = room;
            EXPECT_EQ(refusal(args), "");
            one.stride[0] = room + 2;
            expect_refused(args, {name + " ", std::to_string(one.extent()) + " bytes", std::to_string(limit_)});
        }
    }

    std::unique_ptr<Device> device_;
    uint64_t limit_ = 0;
};

TEST_F(opencl_limits, a_tensor_of_attention_is_not_larger_than_a_buffer) {
    expect_extents_limited<Sdpa>(sdpa(),
                                 {{"sdpa: q", [](Sdpa& a) -> Tensor& { return a.q; }},
                                  {"sdpa: k", [](Sdpa& a) -> Tensor& { return a.segments[0].k; }},
                                  {"sdpa: v", [](Sdpa& a) -> Tensor& { return a.segments[0].v; }},
                                  {"sdpa: out", [](Sdpa& a) -> Tensor& { return a.out; }},
                                  {"sdpa: attn_mask", [](Sdpa& a) -> Tensor& { return a.mask; }},
                                  {"sdpa: scores_out", [](Sdpa& a) -> Tensor& { return a.scores_out; }},
                                  {"sdpa: row_stats", [](Sdpa& a) -> Tensor& { return a.row_stats; }},
                                  {"sdpa: v_rows_skipped", [](Sdpa& a) -> Tensor& { return a.v_rows_skipped; }}});
}

TEST_F(opencl_limits, a_tensor_of_an_append_is_not_larger_than_a_buffer) {
    using Of = Tensor& (*)(KvAppend&);
    const std::vector<std::pair<std::string, std::function<Tensor&(KvAppend&)>>> tensors = {
        {"kv_append: k_src", Of([](KvAppend& a) -> Tensor& { return a.k.src; })},
        {"kv_append: k_cache", Of([](KvAppend& a) -> Tensor& { return a.k.cache; })},
        {"kv_append: k_row_indices", Of([](KvAppend& a) -> Tensor& { return a.k.row_indices; })},
        {"kv_append: v_src", Of([](KvAppend& a) -> Tensor& { return a.v.src; })},
        {"kv_append: v_cache", Of([](KvAppend& a) -> Tensor& { return a.v.cache; })},
        {"kv_append: row indices of v", Of([](KvAppend& a) -> Tensor& { return a.v.row_indices; })}};
    expect_extents_limited<KvAppend>(kv_append(), tensors);
}

TEST_F(opencl_limits, a_tensor_of_the_operations_on_rows_is_not_larger_than_a_buffer) {
    expect_extents_limited<KvRequantize>(
        kv_requantize(Type::q8_0, Type::q4_0, 64),
        {{"kv_requantize: src", [](KvRequantize& a) -> Tensor& { return a.src; }},
         {"kv_requantize: dst", [](KvRequantize& a) -> Tensor& { return a.dst; }},
         {"kv_requantize: row_indices", [](KvRequantize& a) -> Tensor& { return a.row_indices; }}});
    expect_extents_limited<KvDequantize>(
        kv_dequantize(Type::q8_0, 64),
        {{"kv_dequantize: src", [](KvDequantize& a) -> Tensor& { return a.src; }},
         {"kv_dequantize: dst", [](KvDequantize& a) -> Tensor& { return a.dst; }},
         {"kv_dequantize: row_indices", [](KvDequantize& a) -> Tensor& { return a.row_indices; }}});
    expect_extents_limited<Hadamard>(hadamard(64), {{"hadamard: src", [](Hadamard& a) -> Tensor& { return a.src; }},
                                                    {"hadamard: dst", [](Hadamard& a) -> Tensor& { return a.dst; }}});
}

TEST_F(opencl_limits, only_rows_that_are_taken_as_a_whole_have_a_limit) {
    KvAppend append = kv_append();
    const auto set_rows = [&](Type type, int64_t elements) {
        append.v.src = tensor(Type::f32, {2, 2, 3, elements});
        append.v.cache = tensor(type, {2, 2, 20, elements});
    };
    for (const Type type : {Type::f16, Type::q8_0, Type::q4_0, Type::iq4_nl, Type::affine8_g32, Type::affine4_g128}) {
        set_rows(type, 1 << 20);
        EXPECT_EQ(refusal(append), "");
        EXPECT_EQ(refusal(kv_dequantize(type, 1 << 20)), "");
    }
    EXPECT_EQ(refusal(kv_requantize(Type::f16, Type::q8_0, 1 << 20)), "");
    EXPECT_EQ(refusal(kv_requantize(Type::q5_1, Type::q4_0, 1 << 20)), "");

    set_rows(Type::turbo3, 576);
    EXPECT_EQ(refusal(append), "");
    set_rows(Type::turbo3, 592);
    expect_refused(append, {"kv_append: v_cache", "TURBO3", "576", "592"});
    EXPECT_EQ(refusal(kv_dequantize(Type::turbo2, 576)), "");
    expect_refused(kv_dequantize(Type::turbo2, 592), {"kv_dequantize: src", "TURBO2", "576", "592"});
    expect_refused(kv_requantize(Type::turbo4, Type::f16, 592), {"kv_requantize: src", "TURBO4", "576", "592"});
    expect_refused(kv_requantize(Type::q8_0, Type::turbo4, 608), {"kv_requantize: dst", "TURBO4", "576", "608"});
    expect_refused(hadamard(592), {"hadamard: src", "576", "592"});
    EXPECT_EQ(refusal(hadamard(576)), "");
    // Scales and biases lie behind all codes of a row, where a row in place still has what is to be read.
    EXPECT_EQ(refusal(kv_requantize(Type::f16, Type::affine4_g32, 4096)), "");
    expect_refused(kv_requantize(Type::f16, Type::affine4_g32, 4128),
                   {"kv_requantize: dst", "AFFINE4_G32", "4096", "4128"});
    expect_refused(kv_requantize(Type::affine8_g64, Type::q4_0, 4160),
                   {"kv_requantize: src", "AFFINE8_G64", "4096", "4160"});
}

} // namespace
} // namespace winnow::opencl
