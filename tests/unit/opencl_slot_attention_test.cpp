// Attention over the slots of several segments, on PoCL, against the formula.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "opencl_slot_problem.hpp"
#include "pocl_required.hpp"

namespace winnow::opencl {
namespace {

// Before anything in this program asks for the platforms: several devices of one core each.
const int environment_is_set = ::setenv("POCL_DEVICES", "basic basic basic pthread", 0);

void run_in_threads(void* calls, uint32_t count, winnow_task task, void* data) {
    ++*static_cast<int*>(calls);
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i < count; ++i) threads.emplace_back([=] { task(data, i); });
    task(data, 0);
    for (std::thread& thread : threads) thread.join();
}

std::unique_ptr<Device> make_device(const SlotCase& one, int* parallel_calls) {
    DeviceRequest request;
    request.device = "cpu";
    request.variants = one.variants;
    request.log = [](int32_t, const std::string&) {};
    if (one.host_threads) {
        request.parallel_for = run_in_threads;
        request.parallel_user_data = parallel_calls;
    }
    return backend::create(request);
}

class SlotAttentionTest : public testing::TestWithParam<SlotCase> {
protected:
    void SetUp() override {
        ASSERT_EQ(environment_is_set, 0);
        try {
            device = make_device(GetParam(), &parallel_calls);
        } catch (const Error& error) {
            WINNOW_SKIP_WITHOUT_POCL(error.what());
        }
    }
    int parallel_calls = 0;
    std::unique_ptr<Device> device;
};

TEST_P(SlotAttentionTest, MatchesTheFormula) {
    SlotProblem problem(*device, GetParam());
    const int calls_before = parallel_calls;
    problem.run();
    problem.check();
    problem.run(); // and leaves the counters of its splits as they were
    problem.check();
    if (GetParam().host_threads && parallel_calls == calls_before)
        WINNOW_SKIP_WITHOUT_POCL("no platform lists a single-core CPU device several times");
}

using T = Type;
const SegmentSizes residual{T::f16, T::f16, 52};
const SegmentSizes turbo{T::turbo4, T::turbo3, 400, true, true};
const SegmentSizes plain_turbo{T::turbo3, T::turbo2, 150};

std::vector<SlotCase> make_cases() {
    std::vector<SlotCase> cases;
    const auto add = [&](const char* name, std::vector<SegmentSizes> segments) -> SlotCase& {
        SlotCase& one = cases.emplace_back();
        one.name = name;
        one.segments = std::move(segments);
        return one;
    };
    const auto shape = [](SlotCase& one, int64_t kv_heads, int64_t group, int64_t q_len, int64_t size, int64_t v_size) {
        one.kv_heads = kv_heads;
        one.group = group;
        one.q_len = q_len;
        one.head_size = size;
        one.v_head_size = v_size;
    };
    add("OneSegment", {{T::f16, T::f16, 300}});
    add("ResidualAndPacked", {residual, turbo});
    add("InSplits", {residual, turbo}).variants = "splits=5";
    add("InTwoLaunches", {residual, turbo}).variants = "splits=3,launches=2";
    {
        SlotCase& one = add("OnHostThreads", {residual, turbo});
        one.kv_heads = 4;
        one.variants = "splits=3";
        one.host_threads = true;
    }
    {
        SlotCase& one = add("ScoresAndStatistics", {residual, turbo});
        one.variants = "splits=2";
        one.with = "sinks scores stats";
    }
    shape(add("EmptyBesideFull", {{T::f16, T::f16, 64, false, false, 1}, {T::q8_0, T::q8_0, 0}}), 2, 1, 1, 64, 64);
    {
        SlotCase& one = add("BiasesAndAffinePacked", {residual, {T::affine8_g32, T::affine4_g64, 200, false, true}});
        shape(one, 2, 1, 1, 64, 64);
        one.window_left = 150;
        one.softcap = 5;
        one.with = "alibi sinks scores stats";
    }
    {
        SlotCase& one = add("FewQueries", {{T::f16, T::bf16, 37}, {T::q8_0, T::q4_0, 128, true, false, 1}});
        shape(one, 2, 5, 3, 96, 96);
        one.window_left = 60;
        one.variants = "splits=2";
        one.with = "scores stats";
    }
    {
        SlotCase& one = add("BooleanMaskByCells", {residual, plain_turbo});
        shape(one, 1, 8, 1, 64, 64);
        one.is_causal = false;
        one.mask = T::boolean;
        one.with = "scores stats";
    }
    {
        SlotCase& one = add("HalfMaskWithSlopes", {residual, plain_turbo});
        shape(one, 2, 3, 2, 64, 64);
        one.is_causal = false;
        one.mask = T::f16;
        one.variants = "splits=2";
        one.with = "slopes stats";
    }
    {
        SlotCase& one = add("OddHeadSizes", {{T::f32, T::f16, 90}, {T::bf16, T::f32, 41, true, true}});
        shape(one, 1, 2, 1, 72, 24);
        one.mask = T::f32;
        one.with = "slopes scores stats";
    }
    shape(add("TinyHeads", {{T::f16, T::f16, 40, true, true}, {T::f32, T::f32, 40, true, true}}), 1, 2, 1, 8, 4);
    add("ThresholdForValues", {residual, turbo}).v_threshold = 1e-4f;
    {
        SlotCase& one =
            add("FourSegments",
                {residual, {T::q8_0, T::q8_0, 70}, {T::turbo4, T::turbo4, 130}, {T::q4_0, T::q4_0, 65, true, true}});
        shape(one, 1, 2, 1, 64, 64);
        one.variants = "splits=4";
        one.with = "sinks scores stats";
    }
    {
        SlotCase& one = add("ChunkOfAPrompt", {residual, turbo});
        one.q_len = 32;
        one.variants = "splits=2";
        one.with = "sinks scores stats";
    }
    {
        SlotCase& one =
            add("NineHeadsAndManyQueries", {{T::f16, T::f16, 70}, {T::turbo4, T::turbo3_5, 100, true, true}});
        shape(one, 1, 9, 17, 80, 80);
        one.window_left = 80;
        one.softcap = 3;
        one.mask = T::f16;
        one.with = "alibi scores stats";
    }
    {
        SlotCase& one = add("ChunkInTwoLaunches", {residual, plain_turbo});
        shape(one, 1, 2, 32, 64, 64);
        one.window_left = 40;
        one.mask = T::boolean;
        one.variants = "splits=3,launches=2";
        one.with = "stats";
    }
    {
        SlotCase& one = add("OneQueryByBlocks", {residual, {T::turbo3, T::turbo2, 150, true, true}});
        shape(one, 1, 1, 1, 64, 64);
        one.variants = "kernel=prefill";
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, SlotAttentionTest, testing::ValuesIn(make_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

class SlotAttentionRefusalTest : public testing::Test {};

std::string refusal(Device& device, const SlotAttention& attention) {
    try {
        return "accepted by " + device.validate(attention);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        return error.what();
    }
}

TEST_F(SlotAttentionRefusalTest, NamesTheVariantOrTheReason) {
    SlotCase one;
    one.segments = {residual, {T::turbo4, T::turbo3, 400}};
    std::unique_ptr<Device> device;
    try {
        device = make_device(one, nullptr);
    } catch (const Error& error) {
        WINNOW_SKIP_WITHOUT_POCL(error.what());
    }
    SlotProblem problem(*device, one);
    EXPECT_EQ(device->validate(problem.attention()), "sdpa_vector_quantized_cpu_slots_f16_f16_turbo4_turbo3_d128_r4");
    SlotAttention probs = problem.attention();
    probs.sdpa.scores_mode = Scores::probs;
    EXPECT_EQ(refusal(*device, probs), "attention over segments gives biased scores only");
    SlotAttention empty = problem.attention();
    for (Segment& segment : empty.segments) segment.k.shape[2] = 0;
    EXPECT_EQ(refusal(*device, empty), "attention over segments without a slot");
    SlotAttention large = problem.attention();
    for (Segment& segment : large.segments) segment.k.shape[3] = 1024;
    large.sdpa.q.shape[3] = 1024;
    EXPECT_NE(refusal(*device, large).find("head sizes up to 576"), std::string::npos);
    SlotAttention many = problem.attention();
    many.segments.insert(many.segments.end(), 3, many.segments[0]);
    EXPECT_EQ(refusal(*device, many), "attention over more than 4 segments");
}

} // namespace
} // namespace winnow::opencl
