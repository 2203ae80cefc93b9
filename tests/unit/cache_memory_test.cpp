// What a cache uses: as much as was estimated, no more than was allowed, and nothing different after a failure.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>

#include "cache/cache.hpp"
#include "cache/layer/layer.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {3, 2, 2, 2, 900, 0, 4};

CacheRequest request_of(const std::string& config, int64_t cells = 0) { return {config, shape, 2, cells, {}}; }

void append(Cache& cache, int64_t layer, int64_t tokens, int64_t sequence = 0, bool attends = false) {
    HostRows rows(2, tokens, 2), q(4, tokens, 2), out = q;
    CacheStep args;
    args.sequence = sequence;
    args.layer = layer;
    args.scale = 1;
    args.k = rows.tensor();
    args.v = rows.tensor();
    if (attends) {
        args.q = q.tensor();
        args.out = out.tensor();
    }
    cache.step({&args, 1});
}

void append_all(Cache& cache, int64_t tokens, int64_t sequence = 0) {
    for (int64_t layer = 0; layer < shape.layers; ++layer) append(cache, layer, tokens, sequence);
}

winnow_cache_stats stats_of(Cache& cache) {
    winnow_cache_stats stats{};
    cache.stats(stats);
    return stats;
}

void expect_estimated(const winnow_cache_stats& now, const winnow_cache_stats& estimated, const std::string& what) {
    EXPECT_EQ(now.bytes, estimated.bytes) << what;
    EXPECT_EQ(now.k_bytes, estimated.k_bytes) << what;
    EXPECT_EQ(now.v_bytes, estimated.v_bytes) << what;
    EXPECT_EQ(now.dense_k_bytes, estimated.dense_k_bytes) << what;
    EXPECT_EQ(now.dense_v_bytes, estimated.dense_v_bytes) << what;
    EXPECT_EQ(now.slot_map_bytes, estimated.slot_map_bytes) << what;
    EXPECT_EQ(now.importance_bytes, estimated.importance_bytes) << what;
    EXPECT_EQ(now.state_bytes, estimated.state_bytes) << what;
    EXPECT_EQ(now.scratch_bytes, estimated.scratch_bytes) << what;
    EXPECT_EQ(now.original_bytes, estimated.original_bytes) << what;
    EXPECT_EQ(now.budget_bytes, estimated.budget_bytes) << what;
    EXPECT_EQ(now.tokens, estimated.tokens) << what;
}

constexpr const char* configs[] = {"window:k=f32,v=f32",
                                   "h2o:k=f32,v=f32,budget=1/4",
                                   "h2o:k=f32,v=f32,residual=0",
                                   "winnow:k=f32,v=f32",
                                   "winnow:k=f32,v=f32,residual=0,cadence=50",
                                   "hierarchical:k=f32,v=f32,budget=1/2",
                                   "none:k=f32,v=f32,sink=0",
                                   "none:k=f32,v=f32,residual=0",
                                   "window:k=f32,v=f32,budget=70,sink=0,residual=0"};

// Work of calls in a cache of so many layers: how often buffers tell their sizes, and what is launched.
std::vector<uint64_t> work_of_calls(int64_t layers) {
    FakeDevice device;
    Cache cache(device, {"h2o:k=f32,v=f32,budget=80", AlikeLayers{layers, 2, 2, 2, 900, 0, 4}, 2, 0, {}});
    std::vector<uint64_t> work;
    const auto count = [&](const std::function<void()>& call) {
        device.clear();
        device.sizes_asked = 0;
        call();
        work.push_back(device.sizes_asked + device.launches + 10); // a little is done once
    };
    const auto fill = [&](int64_t tokens) {
        for (int64_t layer = 0; layer < layers; ++layer) append(cache, layer, tokens);
    };
    count([&] { cache.reserve(0, 70); });
    count([&] { fill(300); });
    count([&] { cache.copy(0, 1); });
    count([&] { cache.shift(0, 200, -1, 5); });
    count([&] { cache.remove(0, 10, 290); });
    count([&] { cache.truncate(1, 20); });
    count([&] { fill(100); });
    count([&] { cache.set_config("h2o:k=f32,v=f32,budget=70"); });
    count([&] { stats_of(cache); });
    count([&] { cache.remove(0, 0, -1); });
    return work;
}

TEST(cache_memory, the_work_of_every_call_is_in_proportion_to_the_layers) {
    const std::vector<uint64_t> few = work_of_calls(8), many = work_of_calls(64);
    for (size_t call = 0; call < few.size(); ++call)
        EXPECT_LE(many[call], 8 * few[call]) << "call " << call << " of work_of_calls";
}

// Prompts carry what they have of the packed rows from launch to launch.
void expect_reserved_prompts(int64_t context, int64_t cells, const std::string& more = "") {
    const AlikeLayers sizes = {1, 2, 32, 32, context, 0, 4};
    const CacheRequest request{"winnow:recall=host,k=q8_0,v=q8_0,budget=1G" + more, sizes, 1, cells, {}};
    FakeDevice device;
    Cache saved(device, request), loaded(device, request);
    int64_t next = 0;
    const auto prompt = [&](Cache& cache, int64_t tokens) {
        HostRows rows(2, tokens, 32), q(4, tokens, 32), out = q;
        std::vector<int32_t> named(static_cast<size_t>(tokens));
        std::iota(named.begin(), named.end(), static_cast<int32_t>(next));
        next += tokens;
        CacheStep args;
        if (cells > 0) {
            args.cells = tensor_of(Type::i32, 1, 1, tokens);
            args.cells.data = reinterpret_cast<std::byte*>(named.data());
        }
        args.scale = 1;
        args.k = args.v = rows.tensor();
        args.q = q.tensor();
        args.out = out.tensor();
        cache.step({&args, 1});
    };
    saved.reserve(0, 400);
    const TemporaryFolder folder;
    const auto expect_none_taken = [&](Cache& cache, std::initializer_list<int64_t> lengths) {
        const uint64_t reserved = stats_of(cache).peak_bytes;
        device.allocations_until_failure = 0; // it is all there
        for (const int64_t tokens : lengths) ASSERT_NO_THROW(prompt(cache, tokens)) << tokens << more;
        device.allocations_until_failure = -1;
        EXPECT_EQ(stats_of(cache).peak_bytes, reserved) << more;
    };
    ASSERT_NO_FATAL_FAILURE(expect_none_taken(saved, {100, 40, 1, 9}));
    saved.save({.path = folder.file("cache")});
    loaded.load({.path = folder.file("cache")});
    const int64_t then = next;
    ASSERT_NO_FATAL_FAILURE(expect_none_taken(saved, {5, 150, 60}));
    next = then;
    ASSERT_NO_FATAL_FAILURE(expect_none_taken(loaded, {5, 150, 60})); // what is reserved is reserved there, too
}

TEST(cache_memory, a_reserved_prompt_under_recall_takes_nothing_more) {
    expect_reserved_prompts(400, 0);
    expect_reserved_prompts(64, 400); // more cells than the context that shares are of
    for (const int64_t cells : {0, 400}) expect_reserved_prompts(400, cells, ",cold=150"); // the oldest tokens go
}

TEST(cache_memory, grows_as_it_was_estimated) {
    for (const char* config : configs) {
        FakeDevice device;
        Cache steps(device, request_of(config));
        for (int64_t tokens = 1; tokens <= shape.context; ++tokens) {
            append_all(steps, 1);
            if (tokens > 70 && tokens % 37 != 0 && tokens < 895) continue;
            const winnow_cache_stats estimated = estimate(request_of(config), tokens);
            const std::string what = std::string(config) + " with " + std::to_string(tokens);
            expect_estimated(stats_of(steps), estimated, what);
            EXPECT_EQ(stats_of(steps).peak_bytes, estimated.peak_bytes) << what;
            if (testing::Test::HasFailure()) return;
        }
        for (const int64_t tokens : {1, 5, 64, 65, 300, 900}) {
            Cache prompt(device, request_of(config));
            append_all(prompt, tokens);
            const winnow_cache_stats estimated = estimate(request_of(config), tokens);
            expect_estimated(stats_of(prompt), estimated, std::string(config) + " at once");
            EXPECT_LE(stats_of(prompt).peak_bytes, estimated.peak_bytes);
            Cache reserved(device, request_of(config));
            reserved.reserve(0, tokens);
            EXPECT_EQ(stats_of(reserved).bytes, estimated.bytes);
            EXPECT_EQ(stats_of(reserved).scratch_bytes, estimated.scratch_bytes);
            device.allocations_until_failure = 0; // it is all there
            append_all(reserved, tokens);
            device.allocations_until_failure = -1;
        }
    }
}

TEST(cache_memory, a_whole_context_fits_the_bytes_that_it_was_planned_to_need) {
    for (const char* config : configs) {
        FakeDevice device;
        Cache cache(device, request_of(config));
        for (int64_t tokens = 0; tokens < shape.context; ++tokens) append_all(cache, 1);
        const winnow_cache_stats stats = stats_of(cache);
        const Plan made = plan(parse(config), shape);
        EXPECT_EQ(stats.budget_bytes, stats.bytes) << config;
        EXPECT_LE(stats.bytes, made.bytes.total()) << config;
        EXPECT_EQ(stats.k_bytes + stats.dense_k_bytes, made.bytes.k + made.bytes.dense_k) << config;
        EXPECT_EQ(stats.importance_bytes, made.bytes.importance) << config;
        EXPECT_LT(made.bytes.total() - stats.bytes, 64u) << config; // state is divided among heads and rounded up
    }
}

TEST(cache_memory, a_budget_in_bytes_holds_all_the_time) {
    for (const char* config : {"h2o:k=f32,v=f32,budget=40000B", "winnow:k=f32,v=f32,residual=0,budget=60000B",
                               "window:k=f32,v=f32,budget=90000B"}) {
        FakeDevice device;
        Cache cache(device, request_of(config));
        const auto bytes = static_cast<uint64_t>(parse(config).budget().count);
        for (int64_t tokens = 0; tokens < shape.context; tokens += 20) {
            append_all(cache, 20);
            EXPECT_LE(stats_of(cache).bytes, bytes) << config;
        }
        EXPECT_GT(stats_of(cache).bytes, bytes * 9 / 10) << config;
    }
}

TEST(cache_memory, nothing_changes_when_memory_runs_out) {
    for (const char* config : configs)
        for (const int64_t before : {0, 3, 90, 260}) {
            FakeDevice device;
            Cache cache(device, request_of(config));
            if (before > 0) append_all(cache, before);
            const winnow_cache_stats stats = stats_of(cache);
            const auto expect_unchanged = [&](auto&& call) {
                int failures = 0;
                for (;; ++failures) {
                    device.allocations_until_failure = failures;
                    try {
                        call();
                        break;
                    } catch (const Error& error) {
                        EXPECT_EQ(error.status(), WINNOW_ERROR_OUT_OF_MEMORY);
                    }
                    device.allocations_until_failure = -1;
                    const winnow_cache_stats now = stats_of(cache);
                    EXPECT_EQ(std::memcmp(&now, &stats, sizeof now), 0) << config;
                    EXPECT_EQ(device.in_use, stats.bytes + stats.scratch_bytes) << config;
                }
                device.allocations_until_failure = -1;
                return failures;
            };
            const int failures = expect_unchanged([&] { cache.copy(0, 1); });
            EXPECT_EQ(failures > 0, before > 0) << config;
            cache.remove(1, 0, -1);
            // Peaks differ from here on.
            Cache other(device, request_of(config));
            device.allocations_until_failure = 2;
            EXPECT_THROW(append(other, 0, 200), Error) << config;
            device.allocations_until_failure = 4;
            EXPECT_THROW(other.reserve(0, 400), Error) << config;
            device.allocations_until_failure = -1;
            EXPECT_EQ(stats_of(other).peak_bytes + stats_of(other).bytes + stats_of(other).steps, 0u) << config;
            EXPECT_TRUE(positions_of(other, 0, 0, 0).empty());
        }
}

TEST(cache_memory, nothing_changes_when_a_step_cannot_be) {
    FakeDevice device;
    Cache cache(device, request_of("h2o:k=f32,v=f32"));
    append_all(cache, 40);
    const winnow_cache_stats stats = stats_of(cache);
    device.refuses_attention = true;
    EXPECT_THROW(append(cache, 1, 300, 0, true), Error);
    device.refuses_attention = false;
    EXPECT_THROW(append(cache, 1, 861), Error);
    const winnow_cache_stats now = stats_of(cache);
    EXPECT_EQ(std::memcmp(&now, &stats, sizeof now), 0);
}

TEST(cache_memory, nothing_is_recorded_that_was_not_stored) {
    for (const char* config : configs)
        for (const int64_t before : {0, 3, 90, 260})
            for (const int64_t tokens : {1, 40}) {
                FakeDevice device;
                Cache failed(device, request_of(config)), other(device, request_of(config));
                for (Cache* cache : {&failed, &other}) {
                    if (before > 0) append_all(*cache, before);
                    cache->anchor(0, std::vector<int64_t>{before});
                }
                device.fails_steps = true;
                EXPECT_THROW(append(failed, 1, tokens, 0, true), Error);
                device.fails_steps = false;
                EXPECT_EQ(stats_of(failed).steps, stats_of(other).steps);
                if (tokens > 1) { // sinks are stored by themselves
                    EXPECT_LE(stats_of(failed).tokens, std::max<uint64_t>(stats_of(other).tokens, 4)) << config;
                    continue;
                }
                EXPECT_EQ(stats_of(failed).tokens, stats_of(other).tokens);
                for (const int64_t position : positions_of(failed, 0, 1, 0)) EXPECT_LT(position, before) << config;
                for (Cache* cache : {&failed, &other}) append(*cache, 1, tokens, 0, true);
                EXPECT_EQ(positions_of(failed, 0, 1, 1), positions_of(other, 0, 1, 1)) << config;
                EXPECT_EQ(positions_of(failed, 0, 1, 1).back(), before + tokens - 1) << config;
            }
}

// A step of few slots and a short chunk needs more for its weights than for its scores.
TEST(cache_memory, has_room_for_the_records_of_a_step) {
    for (const char* config : {"h2o:k=f32,v=f32,budget=12,sink=0,residual=0,recent=1,grace=1,cadence=1",
                               "h2o:k=f32,v=f32,budget=70,sink=1,residual=3,cadence=1", "h2o:k=f32,v=f32,budget=1/4"}) {
        FakeDevice device;
        Cache cache(device, request_of(config));
        for (int64_t tokens = 1; tokens <= 100; ++tokens) {
            for (int64_t layer = 0; layer < shape.layers; ++layer) append(cache, layer, 1, 0, true);
            const winnow_cache_stats estimated = estimate(request_of(config), tokens), stats = stats_of(cache);
            expect_estimated(stats, estimated, config);
            EXPECT_EQ(stats.peak_bytes, estimated.peak_bytes);
            EXPECT_EQ(stats.bytes + stats.scratch_bytes, device.in_use);
        }
    }
}

TEST(cache_memory, goes_back_when_tokens_go) {
    FakeDevice device;
    Cache cache(device, request_of("none:k=f32,v=f32"));
    append_all(cache, 900);
    const winnow_cache_stats full = stats_of(cache);
    cache.remove(0, 100, 700);
    EXPECT_LT(stats_of(cache).bytes, full.bytes / 2);
    EXPECT_EQ(stats_of(cache).resident_slots, 6 * 300u);
    cache.truncate(0, 50);
    EXPECT_EQ(stats_of(cache).resident_slots, 6 * 50u);
    EXPECT_EQ(stats_of(cache).bytes, estimate(request_of("none:k=f32,v=f32"), 84).bytes); // one chunk
    cache.remove(0, 0, -1);
    EXPECT_EQ(stats_of(cache).bytes, 0u);
    EXPECT_EQ(device.in_use, 0u);
    append_all(cache, 1);
    EXPECT_EQ(positions_of(cache, 0, 0, 0), std::vector<int32_t>{0}); // as new
    // What was reserved stays.
    cache.reserve(0, 600);
    append_all(cache, 700);
    cache.truncate(0, 0);
    EXPECT_EQ(stats_of(cache).bytes, estimate(request_of("none:k=f32,v=f32"), 600).bytes);
    cache.reset();
    EXPECT_EQ(device.in_use, 0u);
    EXPECT_EQ(stats_of(cache).peak_bytes, 0u);
}

TEST(cache_memory, a_reserved_sequence_that_is_emptied_counts_anew) {
    FakeDevice device;
    Cache cache(device, request_of("h2o:k=f32,v=f32,budget=60"));
    cache.reserve(0, 60);
    append_all(cache, 300);
    const uint64_t evictions = stats_of(cache).evictions;
    EXPECT_GT(evictions, 0u);
    cache.truncate(0, 0);
    winnow_cache_stats of_sequence{};
    cache.sequence_stats(0, of_sequence);
    EXPECT_EQ(of_sequence.evictions, 0u);
    EXPECT_EQ(stats_of(cache).evictions, evictions);
}

// Most sequences that a cache may have never have tokens in most of its cells.
TEST(cache_memory, the_index_of_a_layer_has_those_cells_that_were_named) {
    TokenIndex index(4, 1 << 20);
    EXPECT_EQ(index.positions().size(), 0u);
    EXPECT_FALSE(index.holds(7));
    const std::vector<int32_t> cells = {7, 3, 4};
    index.make_room(cells);
    for (const auto& run : index.place(0, 3, cells)) index.append(run);
    EXPECT_EQ(std::vector<int32_t>(index.positions().begin(), index.positions().end()),
              (std::vector<int32_t>{-1, -1, -1, 1, 2, -1, -1, 0}));
    EXPECT_TRUE(index.holds(7));
    EXPECT_FALSE(index.holds(8));
    EXPECT_FALSE(index.holds((1 << 20) - 1));
    index.remove({5, no_end});
    const TokenIndex::Saved saved = index.save();
    EXPECT_EQ(saved.cells.size(), size_t{1} << 20) << "a file has them all";
    TokenIndex other(4, 1 << 20);
    ASSERT_TRUE(other.restore(saved, 0, most_seen));
    EXPECT_EQ(other.positions().size(), 5u);
    EXPECT_EQ(other.tokens(), 2);
    EXPECT_TRUE(other.holds(3));
    EXPECT_FALSE(other.holds(7));
    EXPECT_FALSE(TokenIndex(4, (1 << 20) - 1).restore(saved, 0, most_seen));
}

TEST(cache_memory, a_packed_that_cannot_be_made_smaller_stays) {
    FakeDevice device;
    Cache cache(device, request_of("none:k=f32,v=f32"));
    append_all(cache, 900);
    const uint64_t full = stats_of(cache).bytes;
    device.allocations_until_failure = 0;
    cache.remove(0, 100, 700);
    EXPECT_EQ(stats_of(cache).bytes, full);
    EXPECT_EQ(stats_of(cache).resident_slots, 6 * 300u);
    device.allocations_until_failure = -1;
}

TEST(cache_memory, a_smaller_budget_holds_at_once) {
    for (const char* tail : {",residual=16", ",residual=0", ",residual=16,cadence=3"}) {
        FakeDevice device;
        const std::string base = std::string("h2o:k=f32,v=f32") + tail;
        Cache cache(device, request_of(base + ",budget=600"));
        append_all(cache, 700);
        for (const int budget : {500, 120, 60}) {
            const std::string text = base + ",budget=" + std::to_string(budget);
            device.allocations_until_failure = 1;
            if (budget == 60) {
                EXPECT_THROW(cache.set_config(text), Error);
                EXPECT_EQ(stats_of(cache).budget_bytes, estimate(request_of(base + ",budget=120"), 0).budget_bytes);
            }
            device.allocations_until_failure = -1;
            cache.set_config(text);
            const winnow_cache_stats stats = stats_of(cache);
            EXPECT_EQ(stats.budget_bytes, estimate(request_of(text), 0).budget_bytes) << text;
            EXPECT_LE(stats.bytes, stats.budget_bytes) << text;
            EXPECT_LE(stats.resident_slots, 6u * static_cast<uint64_t>(budget)) << text;
            EXPECT_EQ(stats.bytes + stats.scratch_bytes, device.in_use) << text;
            EXPECT_EQ(stats.shortfall, 0u);
            append_all(cache, 9);
        }
        const auto refusal = [&](const std::string& config) -> std::string {
            try {
                cache.set_config(config);
                return {};
            } catch (const Error& error) {
                return error.what();
            }
        };
        EXPECT_NE(refusal("h2o:v=f32,budget=60" + std::string(tail)).find("k is f32 and would become f16"),
                  std::string::npos);
        EXPECT_NE(refusal(base + ",sink=5").find("sink is 4 and would become 5"), std::string::npos);
        EXPECT_NE(refusal("window:k=f32,v=f32" + std::string(tail)).find("importance is kept"), std::string::npos);
        cache.set_config("scissorhands:k=f32,v=f32,budget=300" + std::string(tail)); // another policy, and more room
        append_all(cache, 100);
    }
}

TEST(cache_memory, a_reservation_holds_under_another_configuration) {
    struct Change {
        const char *from, *to;
    };
    for (const Change& change :
         {Change{"h2o:k=f32,v=f32,budget=100", "h2o:k=f32,v=f32,budget=700,residual=48"},
          Change{"h2o:k=f32,v=f32,budget=100,residual=0", "h2o:k=f32,v=f32,budget=700,residual=0"},
          Change{"h2o:k=f32,v=f32,budget=700,cadence=4,residual=48", "h2o:k=f32,v=f32,budget=700"},
          Change{"h2o:k=f32,v=f32,residual=0,cadence=4", "winnow:k=f32,v=f32,residual=0,budget=1/4"},
          Change{"h2o:k=f32,v=f32,budget=700,cadence=4", "h2o:k=f32,v=f32,budget=600,residual=48"}})
        for (const int64_t before : {0, 30, 190})
            for (const int64_t reserved : {40, 300, 900}) {
                const std::string what = std::string(change.from) + " to " + change.to + " with " +
                                         std::to_string(reserved) + " reserved and " + std::to_string(before);
                FakeDevice device;
                Cache cache(device, request_of(to_string(parse(change.from))));
                cache.reserve(0, reserved);
                if (before > reserved) continue;
                if (before > 0) append_all(cache, before);
                const winnow_cache_stats stats = stats_of(cache);
                device.allocations_until_failure = 1;
                try {
                    cache.set_config(change.to);
                } catch (const Error& error) {
                    EXPECT_EQ(error.status(), WINNOW_ERROR_OUT_OF_MEMORY) << what << ": " << error.what();
                    const winnow_cache_stats now = stats_of(cache);
                    EXPECT_EQ(std::memcmp(&now, &stats, sizeof now), 0) << what;
                    device.allocations_until_failure = -1;
                    cache.set_config(change.to);
                }
                EXPECT_GE(stats_of(cache).bytes, estimate(request_of(change.to), reserved).bytes) << what;
                EXPECT_EQ(stats_of(cache).bytes + stats_of(cache).scratch_bytes, device.in_use) << what;
                EXPECT_GE(stats_of(cache).peak_bytes, device.most_in_use) << what;
                device.allocations_until_failure = 0; // it is all there
                for (int64_t tokens = before; tokens < reserved; tokens += 5) {
                    append(cache, 0, 1, 0, true);
                    append(cache, 0, 4);
                    append(cache, 1, 5);
                    append(cache, 2, 5);
                }
                device.allocations_until_failure = -1;
                EXPECT_EQ(positions_of(cache, 0, 1, 0).back(), reserved - 1) << what;
            }
}

TEST(cache_memory, a_smaller_budget_that_cannot_hold_at_once_is_refused) {
    FakeDevice device;
    Cache cache(device, request_of("h2o:k=f32,v=f32,residual=16,budget=600"));
    append_all(cache, 300);
    cache.truncate(0, 270); // the residual window is empty, and the newest are in the packed segment
    std::vector<int64_t> anchors(30);
    std::iota(anchors.begin(), anchors.end(), 100);
    cache.anchor(0, anchors);
    const std::string small = "h2o:k=f32,v=f32,residual=16,budget=60"; // 4 sinks, 19 newest, 7 to come, and the anchors
    EXPECT_THROW(cache.set_config(small), Error);
    append_all(cache, 9); // what an eviction pass leaves in the residual window
    cache.set_config(small);
    EXPECT_LE(stats_of(cache).bytes, stats_of(cache).budget_bytes);
    EXPECT_LE(stats_of(cache).resident_slots, 6u * 60);
}

} // namespace
} // namespace winnow::cache
