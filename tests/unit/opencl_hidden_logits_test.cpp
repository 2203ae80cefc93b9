// A logit of -infinity hides its key, whatever its value holds, also where nothing else does: no mask, no position.
#include <gtest/gtest.h>

#include <tuple>

#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

class opencl_hidden_logits : public opencl_test, public testing::WithParamInterface<std::tuple<int64_t, Scores>> {};

TEST_P(opencl_hidden_logits, keep_what_their_values_hold_out) {
    const auto [tokens, scores] = GetParam();
    constexpr int64_t keys = 128, head_size = 64; // whole tiles of either kernel
    constexpr Near rounding{1e-5, 1e-5};
    Random random(7);
    SharedMemory memory;
    Sdpa args;
    args.q = memory.add("q", Type::f32, {1, 2, tokens, head_size});
    Segment& stored = args.segments.emplace_back();
    stored.k = memory.add("k", Type::f32, {1, 1, keys, head_size});
    stored.v = memory.add("v", Type::f32, {1, 1, keys, head_size});
    args.out = memory.add("out", Type::f32, {1, 2, tokens, head_size}, rounding);
    args.scale = 0.125f;
    args.scores_mode = scores;
    if (scores != Scores::none) args.scores_out = memory.add("scores", Type::f32, {1, 2, tokens, keys}, rounding);
    for (const Tensor& each : {args.q, stored.k, stored.v}) fill<float>(each, [&] { return normal(random); });
    for (int64_t head = 0; head < 2; ++head)
        for (int64_t token = 0; token < tokens; ++token) at<float>(args.q, head, token, 3) = 1;
    at<float>(stored.k, 0, 9, 3) = -infinity;
    at<float>(stored.v, 0, 9, 0) = not_a_number;
    at<float>(stored.v, 0, 9, 1) = infinity;
    memory.expect_same(cpu_device(), [&](Device& device) { device.launch(args, false); });
    EXPECT_TRUE(std::isfinite(at<float>(args.out, 0, 0, 0)));
}

INSTANTIATE_TEST_SUITE_P(kernels, opencl_hidden_logits,
                         testing::Combine(testing::Values(int64_t{1}, int64_t{20}),
                                          testing::Values(Scores::none, Scores::raw, Scores::biased, Scores::probs)),
                         [](const auto& each) {
                             return "tokens_" + std::to_string(std::get<0>(each.param)) + "_scores_" +
                                    std::to_string(static_cast<int>(std::get<1>(each.param)));
                         });

} // namespace
} // namespace winnow::opencl
