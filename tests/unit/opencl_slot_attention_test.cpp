// Attention over the slots of several segments as the reference does it.
#include "cache/layer/layer.hpp"
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

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
    bool in_parts = false; // a launch for each segment
    int64_t window_left = 0;
    float softcap = 0, v_threshold = 0;
    Type mask = Type::none;
    std::string_view with{}; // of alibi, sinks, slopes, scores and stats, those that there are
    bool has(std::string_view what) const { return with.find(what) != with.npos; }
};

void PrintTo(const SlotCase& one, std::ostream* out) { *out << one.name; }

// One launch for each segment, what there is so far carried from one to the next.
void attend_in_parts(Device& device, const Sdpa& whole) {
    Tensor carried =
        cache::tensor_of(Type::f32, whole.q_heads(), whole.q_len(), device.carried_floats(whole.v_head_size()));
    const std::unique_ptr<Buffer> memory = device.allocate(carried.extent());
    carried.buffer = memory.get();
    for (size_t i = 0; i < whole.segments.size(); ++i) {
        Sdpa part = whole;
        part.segments = {whole.segments[i]};
        part.carry = {carried, i > 0, i + 1 < whole.segments.size()};
        device.launch(part, false);
    }
    device.finish();
}

struct Problem {
    SharedMemory memory;
    Sdpa args;
    bool in_parts = false;

    explicit Problem(const SlotCase& one) : in_parts(one.in_parts) {
        Random random(7);
        int64_t slots = 0;
        for (const SegmentSizes& segment : one.segments) slots += segment.slots;
        const int64_t token_ids = slots + 40, q_heads = one.kv_heads * one.group;
        std::vector<std::vector<int32_t>> left(static_cast<size_t>(one.kv_heads)); // a head's own selection
        for (std::vector<int32_t>& each : left) {
            for (int32_t token_id = 0; token_id < token_ids; ++token_id) each.push_back(token_id);
            std::shuffle(each.begin(), each.end(), random);
        }
        for (const SegmentSizes& sizes : one.segments) {
            Segment& segment = args.segments.emplace_back(add_segment(memory, random,
                                                                      {.k = sizes.k,
                                                                       .v = sizes.v,
                                                                       .heads = one.kv_heads,
                                                                       .slots = sizes.slots,
                                                                       .k_size = one.head_size,
                                                                       .v_size = one.v_head_size,
                                                                       .has_k_mean = sizes.k_mean,
                                                                       .has_v_mean = sizes.v_mean}));
            set_tokens(segment, random, sizes.filled, [&](int64_t head, int64_t) {
                std::vector<int32_t>& each = left[static_cast<size_t>(head)];
                const int32_t token_id = each.back();
                each.pop_back();
                return token_id;
            });
        }
        const Closeness near = closeness(one.head_size, slots, 2 / std::sqrt(static_cast<double>(one.head_size)));
        const auto add = [&](const char* name, std::array<int64_t, 4> shape, float deviation) {
            const Tensor tensor = memory.add(name, Type::f32, shape);
            fill<float>(tensor, [&] { return deviation * normal(random); });
            return tensor;
        };
        args.q = add("q", {1, q_heads, one.q_len, one.head_size}, 2);
        args.out = memory.add("out", Type::f32, {1, q_heads, one.q_len, one.v_head_size},
                              {0, near.output + 8 * static_cast<double>(one.v_threshold) * static_cast<double>(slots)});
        args.scale = 1 / std::sqrt(static_cast<float>(one.head_size));
        args.softcap = one.softcap;
        args.is_causal = one.is_causal;
        args.window_left = one.window_left;
        args.q_offset = token_ids - one.q_len - 20; // later tokens exist
        args.v_threshold = one.v_threshold;
        if (one.has("alibi")) args.alibi_slopes = add("alibi_slopes", {1, 1, 1, q_heads}, .02f);
        if (one.has("sinks")) args.head_sink = add("head_sink", {1, 1, 1, q_heads}, 1);
        if (one.has("slopes")) args.mask_slopes = add("mask_slopes", {1, 1, 1, q_heads}, 1);
        if (one.has("stats"))
            args.row_stats =
                memory.add("row_stats", Type::f32, {1, q_heads, one.q_len, 2}, {near.probability, near.score});
        if (one.has("scores")) {
            args.scores_mode = Scores::biased;
            args.scores_out = memory.add("scores", Type::f32, {1, q_heads, one.q_len, slots}, {0, near.score});
        }
        if (one.mask != Type::none) add_mask(random, one, token_ids - 10); // the last token ids have no column
    }

    void expect_same(Device& device) {
        memory.expect_same(device, [&](Device& any) {
            if (in_parts)
                attend_in_parts(any, args);
            else
                any.launch(args, false);
        });
    }

private:
    // One mask for all heads, as runtimes have it, of the values 0, -1 and -infinity.
    void add_mask(Random& random, const SlotCase& one, int64_t columns) {
        args.mask = memory.add("mask", one.mask, {1, 1, one.q_len, columns});
        std::discrete_distribution<size_t> choice{5, 3, 2};
        if (one.mask == Type::boolean)
            fill<uint8_t>(args.mask, [&] { return std::array<uint8_t, 3>{1, 1, 0}[choice(random)]; });
        else if (one.mask == Type::f16)
            fill<uint16_t>(args.mask, [&] { return std::array<uint16_t, 3>{0, 0xbc00, 0xfc00}[choice(random)]; });
        else
            fill<float>(args.mask, [&] { return std::array{0.0f, -1.0f, -infinity}[choice(random)]; });
    }
};

class opencl_slot_attention : public opencl_test, public testing::WithParamInterface<SlotCase> {};

TEST_P(opencl_slot_attention, is_the_attention_of_the_reference) {
    const SlotCase& one = GetParam();
    std::atomic<int> divisions{0};
    const std::unique_ptr<Device> device =
        backend::create(cpu_request(one.variants, one.host_threads ? &divisions : nullptr));
    Problem problem(one);
    const int before = divisions;
    problem.expect_same(*device);
    problem.expect_same(*device); // and leaves the counters of its splits as they were
    if (one.host_threads && divisions == before) WINNOW_SKIP_WITHOUT_POCL(undivided);
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
    add("one_segment", {{T::f16, T::f16, 300}});
    add("residual_and_packed", {residual, turbo});
    add("in_splits", {residual, turbo}).variants = "splits=5";
    add("in_two_launches", {residual, turbo}).variants = "splits=3,launches=2";
    {
        SlotCase& one = add("on_host_threads", {residual, turbo});
        one.kv_heads = 4;
        one.variants = "splits=3";
        one.host_threads = true;
    }
    {
        SlotCase& one = add("scores_and_statistics", {residual, turbo});
        one.variants = "splits=2";
        one.with = "sinks scores stats";
    }
    shape(add("full", {{T::f16, T::f16, 64, false, false, 1}}), 2, 1, 1, 64, 64);
    {
        SlotCase& one = add("biases_and_affine_packed", {residual, {T::affine8_g32, T::affine4_g64, 200, false, true}});
        shape(one, 2, 1, 1, 64, 64);
        one.window_left = 150;
        one.softcap = 5;
        one.with = "alibi sinks scores stats";
    }
    {
        SlotCase& one = add("few_queries", {{T::f16, T::bf16, 37}, {T::q8_0, T::q4_0, 128, true, false, 1}});
        shape(one, 2, 5, 3, 96, 96);
        one.window_left = 60;
        one.variants = "splits=2";
        one.with = "scores stats";
    }
    {
        SlotCase& one = add("boolean_mask_by_cells", {residual, plain_turbo});
        shape(one, 1, 8, 1, 64, 64);
        one.is_causal = false;
        one.mask = T::boolean;
        one.with = "scores stats";
    }
    {
        SlotCase& one = add("half_mask_with_slopes", {residual, plain_turbo});
        shape(one, 2, 3, 2, 64, 64);
        one.is_causal = false;
        one.mask = T::f16;
        one.variants = "splits=2";
        one.with = "slopes stats";
    }
    {
        SlotCase& one = add("odd_head_sizes", {{T::f32, T::f16, 90}, {T::bf16, T::f32, 41, true, true}});
        shape(one, 1, 2, 1, 72, 24);
        one.mask = T::f32;
        one.with = "slopes scores stats";
    }
    shape(add("tiny_heads", {{T::f16, T::f16, 40, true, true}, {T::f32, T::f32, 40, true, true}}), 1, 2, 1, 8, 4);
    add("threshold_for_values", {residual, turbo}).v_threshold = 1e-4f;
    {
        SlotCase& one =
            add("four_segments",
                {residual, {T::q8_0, T::q8_0, 70}, {T::turbo4, T::turbo4, 130}, {T::q4_0, T::q4_0, 65, true, true}});
        shape(one, 1, 2, 1, 64, 64);
        one.variants = "splits=4";
        one.with = "sinks scores stats";
    }
    {
        SlotCase& one = add("chunk_of_a_prompt", {residual, turbo});
        one.q_len = 32;
        one.variants = "splits=2";
        one.with = "sinks scores stats";
    }
    {
        SlotCase& one =
            add("nine_heads_and_many_queries", {{T::f16, T::f16, 70}, {T::turbo4, T::turbo3_5, 100, true, true}});
        shape(one, 1, 9, 17, 80, 80);
        one.window_left = 80;
        one.softcap = 3;
        one.mask = T::f16;
        one.with = "alibi scores stats";
    }
    {
        SlotCase& one = add("chunk_in_two_launches", {residual, plain_turbo});
        shape(one, 1, 2, 32, 64, 64);
        one.window_left = 40;
        one.mask = T::boolean;
        one.variants = "splits=3,launches=2";
        one.with = "stats";
    }
    add("decoded_in_parts", {residual, turbo, plain_turbo}).in_parts = true;
    {
        SlotCase& one = add("prompt_in_parts", {turbo, {T::turbo4, T::turbo3, 90, true, true}, residual});
        one.q_len = 40;
        one.in_parts = true;
        one.variants = "splits=2";
        one.with = "sinks stats";
    }
    {
        SlotCase& one = add("parts_in_two_launches", {residual, turbo});
        one.q_len = 9;
        one.in_parts = true;
        one.variants = "splits=3,launches=2";
        one.with = "sinks stats";
    }
    {
        SlotCase& one = add("parts_that_see_nothing", {{T::f16, T::f16, 8}, {T::f16, T::f16, 8}, {T::f16, T::f16, 8}});
        shape(one, 2, 2, 5, 72, 24);
        one.in_parts = true;
        one.window_left = 3;
        one.mask = T::boolean;
        one.with = "stats";
    }
    {
        SlotCase& one = add("parts_on_host_threads", {residual, turbo});
        one.kv_heads = 4;
        one.q_len = 20;
        one.in_parts = true;
        one.host_threads = true;
    }
    {
        SlotCase& one = add("one_query_by_blocks", {residual, {T::turbo3, T::turbo2, 150, true, true}});
        shape(one, 1, 1, 1, 64, 64);
        one.variants = "kernel=prefill";
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(cases, opencl_slot_attention, testing::ValuesIn(make_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

std::string refusal(Device& device, const Sdpa& attention) {
    try {
        device.validate(attention);
        return "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        return error.what();
    }
}

TEST_F(opencl_slots, attention_names_the_reason_of_a_refusal) {
    SlotCase one;
    one.segments = {residual, {T::turbo4, T::turbo3, 400}};
    Problem problem(one);
    Device& device = cpu_device();
    EXPECT_EQ(refusal(device, problem.args), "accepted");
    Sdpa probs = problem.args;
    probs.scores_mode = Scores::probs;
    EXPECT_EQ(refusal(device, probs), "attention over segments gives biased scores only");
    Sdpa empty = problem.args;
    empty.segments[1].k.shape[2] = 0;
    EXPECT_EQ(refusal(device, empty), "attention over segments without a slot");
    Sdpa large = problem.args;
    for (Segment& segment : large.segments) segment.k.shape[3] = 1024;
    large.q.shape[3] = 1024;
    EXPECT_NE(refusal(device, large).find("head sizes up to 576"), std::string::npos);
    Sdpa many = problem.args;
    many.segments.insert(many.segments.end(), 3, many.segments[0]);
    EXPECT_EQ(refusal(device, many), "attention over more than 4 segments");
}

} // namespace
} // namespace winnow::opencl
