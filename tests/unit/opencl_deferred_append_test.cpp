// An append of one token and the attention after it, in one launch where they can be, as the reference does them.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

struct DeferredCase {
    const char* name = "";
    uint64_t launches = 1; // of both
    Type type = Type::f16, src_type = Type::f32;
    int64_t tokens = 1, index = 130, row_of_attention = 0;
    bool heads_in_a_row = true; // as in ggml, whose rows have all heads of a token
    bool overwrite = false;     // the rows' memory, between the two
    bool is_causal = false;
    int64_t q_offset = 0, window_left = 0;
    int32_t length = 0; // in kv_lengths; 0: there is none
    const char* variants = "";
};

void PrintTo(const DeferredCase& one, std::ostream* out) { *out << one.name; }

// So many that the attention is divided.
constexpr int64_t kv_heads = 3, group = 3, head_size = 64, slots = 340, kv_len = 288;

struct Problem {
    SharedMemory memory;
    KvAppend append;
    Sdpa sdpa;
    bool overwrite;

    explicit Problem(const DeferredCase& one) : overwrite(one.overwrite) {
        Random random(7);
        append.k = add_side(random, one, "k");
        append.v = add_side(random, one, "v");
        sdpa.segments.resize(1);
        sdpa.segments[0].k = attended(append.k.cache, one);
        sdpa.segments[0].v = attended(append.v.cache, one);
        sdpa.q = memory.add("q", Type::f32, {1, kv_heads * group, 1, head_size});
        fill<float>(sdpa.q, [&] { return 2 * normal(random); });
        sdpa.out = memory.add("out", Type::f32, {1, kv_heads * group, 1, head_size}, {0, 1e-3});
        sdpa.scale = 1 / std::sqrt(static_cast<float>(head_size));
        sdpa.is_causal = one.is_causal;
        sdpa.q_offset = one.q_offset;
        sdpa.window_left = one.window_left;
        if (one.length == 0) return;
        sdpa.kv_lengths = memory.add("kv_lengths", Type::i32, {1, 1, 1, 1});
        at<int32_t>(sdpa.kv_lengths, 0, 0, 0) = one.length;
    }

    void launch(Device& device) {
        device.launch(append, false);
        if (overwrite)
            for (const Tensor* rows : {&append.k.src, &append.v.src}) fill<float>(*rows, [] { return 77.0f; });
        device.launch(sdpa, false);
    }

private:
    AppendRows add_side(Random& random, const DeferredCase& one, const char* name) {
        const int64_t heads = one.heads_in_a_row ? 1 : kv_heads, size = kv_heads * head_size / heads;
        AppendRows side;
        side.src = memory.add(name, one.src_type, {1, heads, one.tokens, size});
        if (one.src_type == Type::f32) fill<float>(side.src, [&] { return short_normal(random); });
        side.cache = memory.add(name, one.type, {1, heads, slots, size});
        store_random_rows(side.cache, random);
        side.row_indices = memory.add("row_indices", Type::i64, {1, 1, 1, one.tokens});
        for (int64_t token = 0; token < one.tokens; ++token)
            at<int64_t>(side.row_indices, 0, 0, token) = one.index + token;
        return side;
    }

    // kv_len of the cache's rows, head by head.
    static Tensor attended(const Tensor& cache, const DeferredCase& one) {
        Tensor rows = cache;
        if (one.heads_in_a_row) rows.stride[1] = static_cast<int64_t>(row_bytes(cache.type, head_size));
        rows.shape = {1, kv_heads, kv_len, head_size};
        rows.offset = static_cast<uint64_t>(one.row_of_attention * cache.stride[2]);
        return rows;
    }
};

uint64_t launches_of(Device& device) {
    winnow_stats stats{};
    device.stats(stats);
    return stats.kernel_launches;
}

// Whether the device has several worker queues, which an attention that is long enough shows.
bool divides(Device& device, const std::atomic<int>& divisions) {
    Problem problem({});
    problem.launch(device);
    device.finish();
    return divisions > 0;
}

class opencl_deferred_append : public opencl_test, public testing::WithParamInterface<DeferredCase> {};

TEST_P(opencl_deferred_append, is_what_the_reference_does) {
    const DeferredCase& one = GetParam();
    std::atomic<int> divisions{0};
    const std::unique_ptr<Device> device = backend::create(cpu_request(one.variants, &divisions));
    if (!divides(*device, divisions)) WINNOW_SKIP_WITHOUT_POCL(undivided);
    Problem problem(one);
    for (int round = 0; round < 2; ++round) {
        const uint64_t before = launches_of(*device);
        problem.memory.expect_same(*device, [&](Device& any) { problem.launch(any); });
        EXPECT_EQ(launches_of(*device) - before, one.launches);
    }
}

std::vector<DeferredCase> make_cases() {
    return {
        {.name = "all_heads_in_a_row"},
        {.name = "head_by_head", .heads_in_a_row = false},
        {.name = "bf16", .type = Type::bf16},
        {.name = "f32_in_splits", .type = Type::f32, .variants = "splits=4"},
        {.name = "in_two_launches", .launches = 2, .variants = "splits=3,launches=2"},
        {.name = "the_first_slot", .index = 0, .variants = "splits=4"},
        {.name = "the_last_slot", .index = kv_len - 1, .variants = "splits=4"},
        {.name = "rows_overwritten_between", .overwrite = true},
        {.name = "a_later_slot_is_hidden", .index = 200, .is_causal = true, .q_offset = 100, .variants = "splits=2"},
        {.name = "an_earlier_slot_is_hidden", .index = 20, .is_causal = true, .q_offset = 200, .window_left = 64},
        {.name = "a_slot_behind_the_attention", .launches = 2, .index = kv_len + 5},
        {.name = "no_slot", .launches = 2, .index = slots},
        {.name = "a_negative_slot", .launches = 2, .index = -1},
        {.name = "other_rows_attended", .launches = 2, .row_of_attention = 1},
        {.name = "packed", .launches = 2, .type = Type::q8_0},
        {.name = "two_tokens", .launches = 2, .tokens = 2},
        {.name = "a_length_on_the_device", .launches = 2, .length = 131},
    };
}

INSTANTIATE_TEST_SUITE_P(all, opencl_deferred_append, testing::ValuesIn(make_cases()),
                         [](const auto& each) { return std::string(each.param.name); });

struct opencl_deferred_append_alone : opencl_test {
    std::atomic<int> divisions{0};
    std::unique_ptr<Device> device;
    void SetUp() override {
        opencl_test::SetUp();
        if (is_over()) return;
        device = backend::create(cpu_request("", &divisions));
    }
};

TEST_F(opencl_deferred_append_alone, is_done_when_it_is_waited_for) {
    Problem problem({});
    problem.memory.expect_same(*device, [&](Device& any) { any.launch(problem.append, false); });
}

// So that a call that launches nothing but what was deferred before it has changed nothing of its own.
TEST_F(opencl_deferred_append_alone, is_counted_when_it_is_deferred) {
    Problem problem({});
    const uint64_t before = launches_of(*device);
    device->launch(problem.append, false);
    EXPECT_EQ(launches_of(*device) - before, 1u);
    device->finish();
    EXPECT_EQ(launches_of(*device) - before, 1u);
}

TEST_F(opencl_deferred_append_alone, comes_before_another_one) {
    Problem first({}), second({.index = 40});
    const auto both = [&](Device& any) {
        any.launch(first.append, false);
        any.launch(second.append, false);
        any.launch(first.sdpa, false);
        any.launch(second.sdpa, false);
    };
    first.memory.expect_same(*device, [&](Device& any) {
        any.launch(first.append, false);
        if (&any == device.get()) any.launch(second.append, false);
        any.launch(first.sdpa, false);
    });
    second.memory.expect_same(*device, [&](Device& any) { both(any); });
}

TEST_F(opencl_deferred_append_alone, is_seen_through_a_buffer_over_the_same_memory) {
    Problem problem({});
    const Tensor& cache = problem.append.k.cache;
    const std::unique_ptr<Buffer> buffer = device->import_host(cache.data, cache.extent());
    std::vector<std::byte> row(static_cast<size_t>(cache.stride[2]));
    problem.memory.expect_same(*device, [&](Device& any) {
        any.launch(problem.append, false);
        if (&any == device.get()) buffer->read(130 * row.size(), row.data(), row.size());
    });
    EXPECT_EQ(std::memcmp(row.data(), cache.data + 130 * row.size(), row.size()), 0);
}

} // namespace
} // namespace winnow::opencl
