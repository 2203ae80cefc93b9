// A step in one launch against the same step as the three operations that it consists of, each of which has its judge
// elsewhere.
#include <algorithm>
#include <utility>

#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t size = 64, heads = 3;

struct Case {
    const char* name = "";
    Importance importance{Statistic::probability_squared, Accumulation::decayed_sum, Group::mean, .998};
    int64_t group = 4;
    std::vector<int64_t> slots{52, 300};
    Type dense = Type::f16, packed_k = Type::turbo4, packed_v = Type::turbo3;
    const char* variants = "";
    uint64_t launches = 1; // of the step
    int64_t observed = 1;
    int64_t window_left = 0;
    double share_used = .8;
    bool appends = true, to_packed = false;
    bool has_sinks = false, has_mask = false, has_sum = true, has_nan = false;
    Type out = Type::f32;
};

// Everything that a step reads and writes.
struct Problem {
    std::vector<HostSegment> segments;
    std::unique_ptr<Buffer> records;
    std::vector<float> q, k, v, sinks, mask, scores, stats, output_sum;
    std::vector<int32_t> positions, slots;
    Rows out;
    int64_t columns = 0, record_count = 0;
    static constexpr float mark = 1.2345e-20f;

    Problem(Device& device, const Case& each, Random& random) : out(each.out, heads * each.group, 1, size) {
        const int64_t q_heads = heads * each.group;
        int32_t number = 0;
        for (const int64_t count : each.slots) {
            const bool is_dense = segments.empty() && !each.to_packed;
            segments.emplace_back(is_dense ? each.dense : each.packed_k, is_dense ? each.dense : each.packed_v, heads,
                                  count, size, size, true, !is_dense);
            HostSegment& segment = segments.back();
            segment.fill_rows(device, random);
            for (float& weight : segment.importance) weight = std::abs(normal(random));
            for (int64_t slot = 0; slot < count; ++slot, ++number)
                for (int64_t head = 0; head < heads; ++head)
                    if (chance(random, each.share_used)) segment.token(head, slot) = number;
            columns += count;
        }
        for (const auto& [values, count] : {std::pair(&q, q_heads * size), std::pair(&k, heads * size),
                                            std::pair(&v, heads * size), std::pair(&sinks, q_heads)}) {
            values->resize(static_cast<size_t>(count));
            for (float& value : *values) value = normal(random);
        }
        if (each.has_nan) q[static_cast<size_t>(size)] = std::numeric_limits<float>::quiet_NaN();
        mask.resize(static_cast<size_t>(q_heads * (columns + 1)));
        for (float& value : mask) value = chance(random, .3) ? -std::numeric_limits<float>::infinity() : normal(random);
        scores.resize(static_cast<size_t>(q_heads * columns));
        stats.resize(static_cast<size_t>(q_heads * 2));
        output_sum.resize(static_cast<size_t>(heads * size), .5f);
        positions.resize(static_cast<size_t>(columns + 1), -7);
        for (int64_t head = 0; head < heads; ++head) slots.push_back(static_cast<int32_t>(20 + head));
        int64_t whole = 0;
        for (const int64_t count : each.slots) whole += (count + record_slots - 1) / record_slots * record_slots;
        record_count = record_floats(q_heads, heads, whole);
        const std::vector<float> marks(static_cast<size_t>(record_count + 64), mark); // some beyond the records
        records = device.allocate(4 * marks.size());
        records->write(0, marks.data(), 4 * marks.size());
    }

    // Of the records and of what comes after them.
    std::pair<int64_t, int64_t> changed() const {
        std::vector<float> floats(static_cast<size_t>(record_count + 64));
        records->read(0, floats.data(), 4 * floats.size());
        const auto count = [](auto begin, auto end) {
            return std::count_if(begin, end, [](float value) { return value != mark; });
        };
        return {count(floats.begin(), floats.begin() + record_count),
                count(floats.begin() + record_count, floats.end())};
    }

    SlotStep step(const Case& each) {
        const int64_t q_heads = heads * each.group;
        SlotStep step;
        for (HostSegment& segment : segments) step.attention.segments.push_back(segment.store());
        Sdpa& sdpa = step.attention.sdpa;
        sdpa.q = dense_of(Type::f32, q, {1, q_heads, 1, size});
        sdpa.out = out.tensor();
        sdpa.scale = .2f;
        sdpa.is_causal = !each.has_mask;
        sdpa.q_offset = columns;
        sdpa.window_left = each.window_left;
        if (each.has_sinks) sdpa.head_sink = dense_of(Type::f32, sinks, {1, 1, 1, q_heads});
        if (each.has_mask) sdpa.mask = dense_of(Type::f32, mask, {1, q_heads, 1, columns + 1});
        step.observed = each.observed;
        if (each.observed > 0) {
            sdpa.scores_mode = Scores::biased;
            sdpa.scores_out = dense_of(Type::f32, scores, {1, q_heads, 1, columns});
            sdpa.row_stats = dense_of(Type::f32, stats, {1, q_heads, 1, 2});
            step.importance = each.importance;
            step.records.type = Type::f32;
            step.records.buffer = records.get();
            step.records.shape = {1, 1, 1, record_count};
            step.records.stride = {4 * record_count, 4 * record_count, 4 * record_count, 4};
            if (each.has_sum) step.output_sum = dense_of(Type::f32, output_sum, {1, heads, 1, size});
        }
        if (!each.appends) return step;
        SlotAppend& append = step.append.emplace();
        append.k = dense_of(Type::f32, k, {1, heads, 1, size});
        append.v = dense_of(Type::f32, v, {1, heads, 1, size});
        append.segment = step.attention.segments[0];
        append.number = columns;
        append.first = 4;
        append.count = 40;
        append.offset = 57;
        append.positions = dense_of(Type::i32, positions, {1, 1, 1, columns + 1});
        append.position = 1234;
        if (each.to_packed) append.slots = dense_of(Type::i32, slots, {1, heads, 1, 1});
        return step;
    }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& expected, double relative, const char* name) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(expected[i])) {
            ASSERT_TRUE(std::isnan(got[i])) << name << " " << i;
            continue;
        }
        ASSERT_NEAR(got[i], expected[i], relative * std::abs(expected[i]) + 1e-6) << name << " " << i;
    }
}

void check(Device& device, const Case& each) {
    SCOPED_TRACE(each.name);
    Random random(21), same(21);
    Problem one(device, each, random), parts(device, each, same);
    const auto launches = [&] {
        winnow_stats stats{};
        device.stats(stats);
        return stats.kernel_launches;
    };
    for (int round = 0; round < 2; ++round) { // the second finds what the first left behind
        const uint64_t before = launches();
        device.step(one.step(each));
        EXPECT_EQ(launches() - before, each.launches);
        EXPECT_EQ(one.changed().first > 0, each.observed > 0 && each.launches < 3) << "the records are elsewhere";
        EXPECT_EQ(one.changed().second, 0) << "records beyond their end";
        device.Device::step(parts.step(each));
        device.finish();
        for (size_t i = 0; i < one.segments.size(); ++i) {
            EXPECT_EQ(one.segments[i].k.bytes, parts.segments[i].k.bytes);
            EXPECT_EQ(one.segments[i].v.bytes, parts.segments[i].v.bytes);
            EXPECT_EQ(one.segments[i].tokens, parts.segments[i].tokens);
            expect_near(one.segments[i].importance, parts.segments[i].importance, 1e-5, "importance");
        }
        EXPECT_EQ(one.positions, parts.positions);
        expect_near(values_of(device, one.out), values_of(device, parts.out), 1e-5, "out");
        expect_near(one.output_sum, parts.output_sum, 1e-5, "output_sum");
    }
}

class SlotsStepTest : public SlotsTest {
protected:
    static std::unique_ptr<Device> forced(const char* variants) {
        DeviceRequest request;
        request.device = "cpu";
        request.variants = variants;
        request.log = [](int32_t, const std::string&) {};
        return backend::create(request);
    }
};

TEST_F(SlotsStepTest, AccumulatesEveryStatistic) {
    for (const Statistic statistic :
         {Statistic::score_magnitude, Statistic::probability, Statistic::probability_squared, Statistic::above_mean})
        for (const Group group : {Group::mean, Group::maximum}) {
            SCOPED_TRACE(testing::Message() << "statistic " << int(statistic) << ", group " << int(group));
            Case each{.name = "plain"};
            each.importance = {statistic, Accumulation::ema, group, .95};
            check(*device(), each);
            each.name = "with a mask of its own for each head";
            each.has_mask = true;
            check(*device(), each);
            each.name = "with NaN and a window";
            each.has_mask = false;
            each.has_nan = true;
            each.window_left = 150;
            each.importance.accumulation = Accumulation::decayed_sum;
            check(*device(), each);
        }
}

TEST_F(SlotsStepTest, HasAnyGroupAndNumberOfSlots) {
    for (int64_t group = 1; group <= 8; ++group) {
        SCOPED_TRACE(testing::Message() << "group " << group);
        Case each{.name = "dense and packed", .group = group};
        each.has_sinks = group % 2 == 0;
        each.out = group % 3 == 0 ? Type::f16 : Type::f32;
        check(*device(), each);
        each.name = "full";
        each.share_used = 1;
        each.slots = {48, 64 + group};
        check(*device(), each);
    }
}

TEST_F(SlotsStepTest, IsOneLaunchWhereItCanBe) {
    check(*device(), {.name = "nothing observed", .observed = 0});
    check(*device(), {.name = "nothing appended", .appends = false});
    check(*device(), {.name = "without a sum of outputs", .dense = Type::f32, .has_sum = false});
    check(*device(), {.name = "dense packed", .dense = Type::bf16, .packed_k = Type::f16, .packed_v = Type::f16});
    check(*device(), {.name = "into packed rows", .slots = {300}, .launches = 2, .to_packed = true});
    check(*device(), {.name = "two blocks of rows", .group = 9, .launches = 3});
    check(*device(true), {.name = "divided", .slots = {52, 2000}});
}

TEST_F(SlotsStepTest, RefusesTooFewRecords) {
    Case each{.name = "too few"};
    Random random(3);
    Problem problem(*device(), each, random);
    SlotStep step = problem.step(each);
    step.records.shape[3] = 100;
    EXPECT_THROW(device()->step(step), Error);
    step.records = {};
    EXPECT_THROW(device()->step(step), Error);
}

TEST_F(SlotsStepTest, CombinesSplits) {
    check(*forced("splits=3"), {.name = "the last group accumulates"});
    check(*forced("splits=3,launches=2"), {.name = "the second launch accumulates", .launches = 2});
    check(*forced("kernel=prefill"), {.name = "blocks of keys", .launches = 3});
}

} // namespace
} // namespace winnow::opencl
