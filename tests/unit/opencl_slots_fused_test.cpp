// Fused attention in one launch, or in as few as the device allows, as the reference does it in three.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t size = 64, heads = 3;

struct Case {
    const char* name = "";
    Importance importance{Statistic::probability_squared, Accumulation::decayed_sum, .998};
    int64_t group = 4;
    std::vector<int64_t> slots{52, 300};
    Type dense = Type::f16, packed_k = Type::turbo4, packed_v = Type::turbo3;
    uint64_t launches = 1;
    int64_t counted_queries = 1;
    int64_t window_left = 0;
    double share_live = .8;
    bool appends = true, to_packed = false;
    bool has_sinks = false, has_mask = false, has_sum = true, has_nan = false;
    Type out = Type::f32;
    float before = 0; // not 0: the importance of every slot
};

// Everything that fused attention reads and writes.
struct Problem {
    SharedMemory memory;
    SlotAttend args;
    std::unique_ptr<Buffer> weights;
    int64_t weight_count = 0;
    static constexpr float mark = 1.2345e-20f;
    static constexpr int64_t behind = 64; // weights that are not its own

    Problem(Device& device, const Case& each) {
        Random random(21);
        const int64_t q_heads = heads * each.group;
        int64_t columns = 0, whole = 0;
        const Closeness near = closeness(size, 352, .2);
        for (const int64_t count : each.slots) {
            const bool is_dense = columns == 0 && !each.to_packed;
            // A statistic is at most as far off as its probability, which is as far off as two scores; a score is
            // there as it is.
            args.attention.segments.push_back(add_segment(memory, random,
                                                          {.k = is_dense ? each.dense : each.packed_k,
                                                           .v = is_dense ? each.dense : each.packed_v,
                                                           .heads = heads,
                                                           .slots = count,
                                                           .k_size = size,
                                                           .v_size = size,
                                                           .has_importance = true,
                                                           .has_k_mean = !is_dense,
                                                           .has_v_mean = !is_dense,
                                                           .importance = {2 * near.probability, 2 * near.score}}));
            if (each.before != 0) fill<float>(args.attention.segments.back().importance, [&] { return each.before; });
            set_tokens(args.attention.segments.back(), random, each.share_live,
                       [&](int64_t, int64_t slot) { return static_cast<int32_t>(columns + slot); });
            columns += count;
            whole += whole_weight_slots(count);
        }
        Sdpa& sdpa = args.attention;
        const auto add = [&](const char* name, std::array<int64_t, 4> shape) {
            const Tensor tensor = memory.add(name, Type::f32, shape);
            fill<float>(tensor, [&] { return short_normal(random); });
            return tensor;
        };
        sdpa.q = add("q", {1, q_heads, 1, size});
        if (each.has_nan) at<float>(sdpa.q, 1, 0, 0) = not_a_number;
        sdpa.out =
            memory.add("out", each.out, {1, q_heads, 1, size}, {each.out == Type::f16 ? 0x1p-10 : 0, near.output});
        sdpa.scale = .2f;
        sdpa.is_causal = !each.has_mask;
        sdpa.q_offset = columns;
        sdpa.window_left = each.window_left;
        if (each.has_sinks) sdpa.head_sink = add("head_sink", {1, 1, 1, q_heads});
        if (each.has_mask) {
            sdpa.mask = add("mask", {1, q_heads, 1, columns + 1});
            fill<float>(sdpa.mask, [&] { return chance(random, .3) ? -infinity : normal(random); });
        }
        weight_count = fused_weight_floats(q_heads, heads, whole);
        const std::vector<float> marks(static_cast<size_t>(weight_count + behind), mark);
        weights = device.allocate(4 * marks.size());
        weights->write(0, marks.data(), 4 * marks.size());
        args.counted_queries = each.counted_queries;
        if (each.counted_queries > 0) {
            sdpa.scores_mode = Scores::biased;
            sdpa.scores_out = memory.add("scores", Type::f32, {1, q_heads, 1, columns}, scratch);
            sdpa.row_stats = memory.add("stats", Type::f32, {1, q_heads, 1, 2}, scratch);
            args.importance = each.importance;
            args.weights.type = Type::f32;
            args.weights.buffer = weights.get();
            args.weights.shape = {1, 1, 1, weight_count};
            args.weights.stride = {4 * weight_count, 4 * weight_count, 4 * weight_count, 4};
            if (each.has_sum)
                args.output_sum = memory.add("output_sum", Type::f32, {1, heads, 1, size},
                                             {0, 2 * static_cast<double>(each.group) * near.output});
            fill<float>(args.output_sum, [] { return .5f; });
        }
        if (!each.appends) return;
        SlotAppend& append = args.append.emplace();
        append.k = add("new k", {1, heads, 1, size});
        append.v = add("new v", {1, heads, 1, size});
        append.segment = args.attention.segments[0];
        append.token_id = columns;
        append.first = 4;
        append.count = 40;
        append.offset = 57;
        append.positions = memory.add("positions", Type::i32, {1, 1, 1, columns + 1});
        append.position = 1234;
        if (!each.to_packed) return;
        append.slots = memory.add("slots", Type::i32, {1, heads, 1, 1});
        for (int64_t head = 0; head < heads; ++head)
            at<int32_t>(append.slots, head, 0, 0) = static_cast<int32_t>(20 + head);
    }

    // How many of the weights were changed, and how many floats behind them.
    std::pair<int64_t, int64_t> changed() const {
        std::vector<float> floats(static_cast<size_t>(weight_count + behind));
        weights->read(0, floats.data(), 4 * floats.size());
        const auto count = [](auto begin, auto end) {
            return std::count_if(begin, end, [](float value) { return value != mark; });
        };
        return {count(floats.begin(), floats.end() - behind), count(floats.end() - behind, floats.end())};
    }
};

uint64_t launches_of(const Device& device) {
    winnow_stats stats{};
    device.stats(stats);
    return stats.kernel_launches;
}

void expect_fused(Device& device, const Case& each) {
    SCOPED_TRACE(each.name);
    Problem problem(device, each);
    const auto launches = [&] { return launches_of(device); };
    for (int round = 0; round < 2; ++round) { // the second finds what the first left behind
        const uint64_t before = launches();
        problem.memory.expect_same(device, [&](Device& any) { any.attend(problem.args); });
        EXPECT_EQ(launches() - before, each.launches);
        EXPECT_EQ(problem.changed().first > 0, each.counted_queries > 0 && each.launches < 3)
            << "the weights are elsewhere";
        EXPECT_EQ(problem.changed().second, 0) << "weights beyond their end";
    }
}

std::unique_ptr<Device> forced(const char* variants) { return backend::create(cpu_request(variants)); }

TEST_F(opencl_slots, fused_attention_accumulates_every_statistic) {
    for (const Statistic statistic :
         {Statistic::score_magnitude, Statistic::probability, Statistic::probability_squared, Statistic::above_mean}) {
        SCOPED_TRACE(testing::Message() << "statistic " << static_cast<int>(statistic));
        Case each{.name = "plain"};
        each.importance = {statistic, Accumulation::ema, .95};
        expect_fused(cpu_device(), each);
        each.name = "with a mask of its own for each head";
        each.has_mask = true;
        expect_fused(cpu_device(), each);
        each.name = "with NaN and a window";
        each.has_mask = false;
        each.has_nan = true;
        each.window_left = 150;
        each.importance.accumulation = Accumulation::decayed_sum;
        expect_fused(cpu_device(), each);
    }
}

// 0 x NaN is NaN.
TEST_F(opencl_slots, fused_attention_forgets_where_nothing_is_kept) {
    for (const float before : {not_a_number, infinity})
        for (const double decay : {0.0, .5}) {
            SCOPED_TRACE(testing::Message() << "before " << before << ", decay " << decay);
            Case each{.name = "every row sees all"};
            each.importance = {Statistic::probability, Accumulation::decayed_sum, decay};
            each.before = before;
            each.share_live = 1;
            expect_fused(cpu_device(), each);
            each.name = "with a mask of its own for each head";
            each.has_mask = true;
            expect_fused(cpu_device(), each);
        }
}

TEST_F(opencl_slots, fused_attention_has_any_group_and_number_of_slots) {
    for (int64_t group = 1; group <= 8; ++group) {
        SCOPED_TRACE(testing::Message() << "group " << group);
        Case each{.name = "dense and packed", .group = group};
        each.has_sinks = group % 2 == 0;
        each.out = group % 3 == 0 ? Type::f16 : Type::f32;
        expect_fused(cpu_device(), each);
        each.name = "full";
        each.share_live = 1;
        each.slots = {48, 64 + group};
        expect_fused(cpu_device(), each);
    }
}

TEST_F(opencl_slots, fused_attention_is_one_launch_where_it_can_be) {
    expect_fused(cpu_device(), {.name = "no query counts", .counted_queries = 0});
    expect_fused(cpu_device(), {.name = "nothing appended", .appends = false});
    expect_fused(cpu_device(), {.name = "without a sum of outputs", .dense = Type::f32, .has_sum = false});
    expect_fused(cpu_device(),
                 {.name = "dense packed", .dense = Type::bf16, .packed_k = Type::f16, .packed_v = Type::f16});
    expect_fused(cpu_device(), {.name = "into packed rows", .slots = {300}, .launches = 2, .to_packed = true});
    expect_fused(cpu_device(), {.name = "two blocks of rows", .group = 9, .launches = 3});
    expect_fused(divided_device(), {.name = "divided", .slots = {52, 2000}});
}

// Sequences of a cache: each comes out as alone, bit for bit, whatever is beside it. launches: of all together.
void expect_together(Device& device, const std::vector<Case>& cases, uint64_t launches) {
    std::vector<std::unique_ptr<Problem>> alone;
    for (const Case& each : cases) alone.push_back(std::make_unique<Problem>(device, each));
    for (int round = 0; round < 2; ++round) { // the second finds what the first left behind
        std::vector<std::unique_ptr<Problem>> together;
        std::vector<SlotAttend> all;
        for (const Case& each : cases) together.push_back(std::make_unique<Problem>(device, each));
        for (const auto& each : together) all.push_back(each->args);
        if (round == 1) { // in another order
            std::reverse(together.begin(), together.end());
            std::reverse(all.begin(), all.end());
        }
        const uint64_t before = launches_of(device);
        device.attend(std::span<const SlotAttend>(all));
        EXPECT_EQ(launches_of(device) - before, launches);
        device.finish();
        if (round == 1) std::reverse(together.begin(), together.end());
        for (size_t i = 0; i < cases.size(); ++i) {
            if (round == 0) device.attend(alone[i]->args);
            device.finish();
            EXPECT_TRUE(alone[i]->memory.bytes() == together[i]->memory.bytes()) << cases[i].name;
            EXPECT_EQ(together[i]->changed().second, 0) << cases[i].name << ": weights beyond their end";
        }
    }
}

TEST_F(opencl_slots, fused_attention_of_several_sequences_is_one_launch) {
    const std::vector<Case> cases{
        {.name = "short", .slots = {52, 20}},
        {.name = "long", .slots = {52, 3000}},
        {.name = "full, in a window", .slots = {52, 300}, .window_left = 150, .share_live = 1},
        {.name = "nothing appended", .slots = {52, 700}, .appends = false},
        {.name = "with a mask", .slots = {52, 129}, .has_mask = true},
        {.name = "with NaN", .slots = {52, 300}, .has_nan = true},
        {.name = "with sinks", .slots = {52, 64}, .has_sinks = true}};
    expect_together(cpu_device(), cases, 1);
    expect_together(divided_device(), cases, 1);
    expect_together(*forced("splits=3"), cases, 1);
    expect_together(cpu_device(),
                    {{.name = "of packed rows", .slots = {300}, .to_packed = true},
                     {.name = "more of them", .slots = {500}, .to_packed = true}},
                    3); // an append of each
}

TEST_F(opencl_slots, fused_attention_of_several_sequences_is_a_launch_for_each_program) {
    const std::vector<Case> cases{{.name = "short", .slots = {52, 20}}, {.name = "long", .slots = {52, 3000}}};
    expect_together(*forced("splits=3,launches=2"), cases, 4); // the second one combines
    expect_together(*forced("host_memory=copy"), cases, 2);    // as of a GPU, whose memory has no address
    expect_together(cpu_device(), {cases[0], {.name = "of another program", .dense = Type::f32}, cases[1]}, 2);
}

TEST_F(opencl_slots, fused_attention_refuses_too_few_records) {
    Problem problem(cpu_device(), {.name = "too few"});
    problem.args.weights.shape[3] = 100;
    EXPECT_THROW(cpu_device().attend(problem.args), Error);
    problem.args.weights = {};
    EXPECT_THROW(cpu_device().attend(problem.args), Error);
}

TEST_F(opencl_slots, fused_attention_combines_splits) {
    expect_fused(*forced("splits=3"), {.name = "the last group accumulates"});
    expect_fused(*forced("splits=3,launches=2"), {.name = "the second launch accumulates", .launches = 2});
    expect_fused(*forced("kernel=prefill"), {.name = "blocks of keys", .launches = 3});
}

} // namespace
} // namespace winnow::opencl
