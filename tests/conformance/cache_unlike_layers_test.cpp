// Caches of models with unlike layers: schedules judged by the oracle, and each layer against the same layer of a cache
// in which all layers have its shape.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_registration.hpp"
#include "cache_schedule.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

void run(const Schedule& schedule) {
    const ScheduleResult result = run_schedule(schedule);
    if (!result.wrong.empty()) FAIL() << result.wrong;
}

void expect_same(const TestTensor& own, const TestTensor& alike, const char* name) {
    int64_t differences = 0;
    own.each([&](const Index& at) { differences += own.get(at) != alike.get(at); });
    EXPECT_EQ(differences, 0) << "elements of " << name;
}

void run_against_alike(const CacheSetup& setup, uint64_t seed) {
    std::mt19937_64 engine(seed);
    CacheHost host(subject(), setup);
    std::vector<std::unique_ptr<CacheHost>> alike;
    for (int64_t layer = 0; layer < setup.layers; ++layer)
        alike.push_back(std::make_unique<CacheHost>(subject(), setup.with_all_as(layer)));
    int64_t seen = 0;
    for (const int64_t length : {40, 1, 1, 1, 70, 90, 1, 1}) {
        seen += length;
        StepOptions step_options;
        step_options.scores = length == 70;
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            SCOPED_TRACE("layer " + std::to_string(layer) + ", after " + std::to_string(seen) + " tokens");
            CacheHost& other = *alike[static_cast<size_t>(layer)];
            Step step = draw_step(setup, engine, layer, 0, length, length, step_options, seen);
            Step again = part_of(setup, step, 0, length);
            ASSERT_EQ(host.run(step), WINNOW_OK) << host.message();
            ASSERT_EQ(other.run(again), WINNOW_OK) << other.message();
            expect_same(step.out, again.out, "out");
            if (step.scores) expect_same(step.scores, again.scores, "scores_out");
            for (int64_t head = 0; head < setup.shape(layer).kv_heads; ++head) {
                ASSERT_EQ(host.positions(0, layer, head), other.positions(0, layer, head)) << "head " << head;
                ASSERT_EQ(host.segments(0, layer, head), other.segments(0, layer, head)) << "head " << head;
                if (setup.keeps_importance()) {
                    ASSERT_EQ(host.importance(0, layer, head), other.importance(0, layer, head)) << "head " << head;
                }
            }
        }
    }
}

// The bytes of a cache are those of its layers, each as it would be among its like.
void run_bytes(const CacheSetup& setup) {
    std::mt19937_64 engine(options().seed);
    const auto bytes_of = [](const winnow_cache_stats& s) {
        return std::array{s.bytes,          s.k_bytes,     s.v_bytes,          s.dense_k_bytes,  s.dense_v_bytes,
                          s.slot_map_bytes, s.state_bytes, s.importance_bytes, s.original_bytes, s.budget_bytes};
    };
    const auto stats_of = [&](const CacheSetup& its) {
        CacheHost host(subject(), its);
        for (const int64_t length : {60, 1, 110})
            for (int64_t layer = 0; layer < its.layers; ++layer) {
                Step step = draw_step(its, engine, layer, 0, length, length == 1 ? 1 : 0);
                EXPECT_EQ(host.run(step), WINNOW_OK) << host.message();
            }
        return bytes_of(host.stats());
    };
    const auto own = stats_of(setup);
    auto sum = own;
    sum.fill(0);
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const auto alike = stats_of(setup.with_all_as(layer));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += alike[i] / static_cast<uint64_t>(setup.layers);
    }
    EXPECT_EQ(own, sum);
}

} // namespace

void register_cache_unlike_layers() {
    const std::string suite = "unlike_layers";
    int at = 0;
    for (const NamedSetup& each : policy_setups()) {
        if (at++ % 3 != 0 && options().pairs != Pairs::all) continue;
        const CacheSetup setup = with_unlike_layers(with_shape(each.setup, at % cache_shapes));
        const uint64_t seed = options().seed + static_cast<uint64_t>(at);
        register_cache_test(suite, "edits_" + each.name, __FILE__, __LINE__, [=] {
            CacheSetup edited = setup;
            edited.sequences = 2;
            run({.setup = edited, .seed = seed, .operations = 30});
        });
        register_cache_test(suite, "decode_" + each.name, __FILE__, __LINE__, [=] {
            run({.setup = setup, .seed = seed, .operations = 60, .edits = false, .changes = false, .is_decode = true});
        });
        if (setup.policy != Policy::learned) // whose networks are of the layers' heads, one after another
            register_cache_test(suite, "as_alike_" + each.name, __FILE__, __LINE__,
                                [=] { run_against_alike(setup, seed); });
        if (setup.own_formats.empty())
            register_cache_test(suite, "bytes_" + each.name, __FILE__, __LINE__, [=] { run_bytes(setup); });
    }
    for (const int shape : {0, 2, 4})
        for (const char* budget : {"1G", "400000B"}) {
            CacheSetup setup = with_unlike_layers(recall_setup(shape, budget));
            const bool tells_picks = std::string(budget) != "1G";
            register_cache_test(suite, std::string("recall_") + budget + "_" + shape_name(shape), __FILE__, __LINE__,
                                [=] {
                                    run_in_both_tiers({.setup = setup,
                                                       .seed = options().seed + static_cast<uint64_t>(shape),
                                                       .operations = 40,
                                                       .changes = false,
                                                       .tells_picks = tells_picks});
                                });
        }
}

} // namespace winnow::conformance
