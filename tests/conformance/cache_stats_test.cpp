// Bytes: the estimate is what is then used, a budget in bytes holds, memory that is reserved is there, memory of what
// was removed is given back; and a change of configuration holds when the call returns.
#include <gtest/gtest.h>

#include "cache_cases.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

void feed(CacheHost& cache, std::mt19937_64& engine, int64_t tokens, bool attends) {
    for (int64_t layer = 0; layer < cache.setup().layers; ++layer) {
        Step step = draw_step(cache.setup(), engine, layer, 0, tokens, attends ? tokens : 0);
        ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
    }
}

winnow_cache_stats estimate_of(const CacheSetup& setup, int64_t tokens) {
    const std::string config = setup.config();
    const SetupDesc desc(setup, config);
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(subject().caches().estimate(subject().context(), desc.get(), tokens, &stats), WINNOW_OK)
        << subject().message();
    return stats;
}

void expect_equal(const winnow_cache_stats& got, const winnow_cache_stats& estimate, const std::string& when) {
#define EXPECT_SAME(field) EXPECT_EQ(got.field, estimate.field) << #field << " " << when << " differs from the estimate"
    EXPECT_SAME(bytes);
    EXPECT_SAME(k_bytes);
    EXPECT_SAME(v_bytes);
    EXPECT_SAME(dense_k_bytes);
    EXPECT_SAME(dense_v_bytes);
    EXPECT_SAME(slot_map_bytes);
    EXPECT_SAME(importance_bytes);
    EXPECT_SAME(state_bytes);
    EXPECT_SAME(original_bytes);
    EXPECT_SAME(budget_bytes);
    EXPECT_SAME(tokens);
    EXPECT_SAME(scratch_bytes);
#undef EXPECT_SAME
}

// Each length by one long step, and the lengths one after another in one cache.
void run_estimate(const CacheSetup& setup) {
    std::mt19937_64 engine(options().seed);
    CacheHost grown(subject(), setup);
    int64_t seen = 0;
    for (const int64_t length : {1, 4, 5, 40, 52, 53, 60, 100, 117, 129, 190, 250}) {
        if (length > setup.context) break;
        const winnow_cache_stats estimate = estimate_of(setup, length);
        EXPECT_LE(estimate.bytes, estimate.budget_bytes);
        feed(grown, engine, length - seen, true);
        seen = length;
        expect_equal(grown.stats(), estimate, "after steps up to " + std::to_string(length));
        CacheHost fresh(subject(), setup);
        feed(fresh, engine, length, true);
        expect_equal(fresh.stats(), estimate, "after one step of " + std::to_string(length));
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(estimate_of(setup, 0).bytes, 0u) << "a cache without tokens takes no memory for them";
}

// With the cold tier in memory and in a file: sizes at each length, and the most that steps of one token took.
void run_estimate_of_recall(const CacheSetup& in_memory) {
    const TemporaryFolder folder;
    for (const std::string& tier : {std::string("host"), folder.path()}) {
        CacheSetup setup = in_memory;
        setup.recall->cold_tier = tier;
        ASSERT_NO_FATAL_FAILURE(run_estimate(setup)) << tier;
        std::mt19937_64 engine(options().seed);
        CacheHost cache(subject(), setup);
        for (int64_t length = 1; length <= 100; ++length) {
            feed(cache, engine, 1, true);
            const winnow_cache_stats estimate = estimate_of(setup, length), taken = cache.stats();
            ASSERT_EQ(taken.peak_bytes, estimate.peak_bytes) << length << " tokens, " << tier;
            ASSERT_EQ(taken.disk_bytes, estimate.disk_bytes) << length << " tokens, " << tier;
            ASSERT_EQ(taken.cold_bytes, estimate.cold_bytes) << length << " tokens, " << tier;
        }
    }
}

// A budget in bytes is what the whole cache may use.
void run_byte_budget(Policy policy, int shape, const char* budget, uint64_t bytes, bool has_own_formats) {
    CacheSetup setup{.policy = policy, .layers = 3, .context = 2000, .budget_text = budget, .residual = 32};
    if (has_own_formats) setup.own_formats = {{"fine", {2}}, {"coarse", {0}}};
    setup = with_shape(setup, shape);
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    EXPECT_LE(cache.stats().budget_bytes, bytes);
    for (const int64_t length : {1, 50, 64, 200, 300, 1, 1, 70}) {
        feed(cache, engine, length, true);
        const winnow_cache_stats stats = cache.stats();
        ASSERT_LE(stats.bytes, bytes);
    }
    EXPECT_GT(cache.stats().evictions, 0u) << "the budget was never reached";
    EXPECT_GT(cache.stats().bytes, bytes / 10 * 9) << "the budget is not used";
}

void run_reserve_and_release() {
    CacheSetup setup{.policy = Policy::h2o, .sequences = 2};
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    const winnow_cache_api& caches = cache.caches();
    EXPECT_EQ(cache.stats().bytes, 0u) << "a new cache takes no memory for tokens yet";
    ASSERT_EQ(caches.reserve(cache.get(), 0, 200), WINNOW_OK) << cache.message();
    const winnow_cache_stats reserved = cache.stats();
    EXPECT_GT(reserved.bytes, 0u);
    for (const int64_t length : {1, 60, 100, 39}) {
        feed(cache, engine, length, true);
        EXPECT_EQ(cache.stats().bytes, reserved.bytes) << "memory for 200 tokens was reserved";
        EXPECT_EQ(cache.stats().scratch_bytes, reserved.scratch_bytes) << "memory for 200 tokens was reserved";
    }
    ASSERT_EQ(caches.copy(cache.get(), 0, 1), WINNOW_OK) << cache.message();
    EXPECT_EQ(cache.stats().bytes, 2 * reserved.bytes);
    for (const int64_t sequence : {1, 0})
        ASSERT_EQ(caches.remove(cache.get(), sequence, 0, -1), WINNOW_OK) << cache.message();
    EXPECT_EQ(cache.stats().bytes, 0u) << "memory of removed sequences is given back";
    EXPECT_EQ(cache.stats().original_bytes, 0u);
    EXPECT_GE(cache.stats().peak_bytes, 2 * reserved.bytes);
    ASSERT_EQ(caches.reset(cache.get()), WINNOW_OK) << cache.message();
    const winnow_cache_stats none = cache.stats();
    EXPECT_EQ(none.bytes + none.evictions + none.eviction_passes + none.steps + none.peak_bytes, 0u)
        << "as after create";
}

// What a middle part's removal frees is given back, as far as it is whole chunks.
void run_shrink() {
    CacheSetup setup{.policy = Policy::none, .layers = 1, .context = 1000};
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    for (int at = 0; at < 30; ++at) {
        Step step = draw_step(setup, engine, 0, 0, 30, at % 3 == 0 ? 30 : 0);
        ASSERT_EQ(oracle.step(step), "");
    }
    const uint64_t before = cache.stats().bytes;
    ASSERT_EQ(oracle.remove(0, 100, 700), "");
    EXPECT_LT(cache.stats().bytes, before * 6 / 10) << "two thirds of the tokens are gone";
    for (int at = 0; at < 20; ++at) { // the resident tokens are where they belong
        Step step = draw_step(setup, engine, 0, 0, at == 5 ? 30 : 1, at == 5 ? 30 : 1);
        ASSERT_EQ(oracle.step(step), "");
    }
    ASSERT_EQ(oracle.truncate(0, 50), "");
    EXPECT_LT(cache.stats().bytes, before / 4);
    Step step = draw_step(setup, engine, 0, 0, 20, 20);
    ASSERT_EQ(oracle.step(step), "");
}

std::string canonical(const CacheSetup& setup) {
    const std::string config = setup.config();
    const SetupDesc desc(setup, config);
    char text[1024] = "";
    winnow_cache_info info{};
    info.struct_size = sizeof info;
    info.config = text;
    info.config_size = sizeof text;
    EXPECT_EQ(subject().caches().describe(subject().context(), desc.get(), &info), WINNOW_OK) << subject().message();
    EXPECT_LE(info.config_size, sizeof text);
    return text;
}

// A smaller budget, then another policy, then a larger budget, and on after each.
void run_set_config(CacheSetup setup, const std::vector<std::function<void(CacheSetup&)>>& changes) {
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    const auto go_on = [&](int64_t tokens, int64_t chunk) {
        for (int64_t left = tokens; left > 0; left -= chunk)
            for (int64_t layer = 0; layer < setup.layers; ++layer) {
                Step step = draw_step(setup, engine, layer, 0, std::min(chunk, left), std::min(chunk, left));
                ASSERT_EQ(oracle.step(step), "") << setup.config() << ", layer " << layer;
            }
    };
    ASSERT_NO_FATAL_FAILURE(go_on(180, setup.chunk()));
    for (const auto& change : changes) {
        change(setup);
        ASSERT_EQ(oracle.set_config(setup), "") << setup.config();
        ASSERT_NO_FATAL_FAILURE(go_on(50, 1));
        ASSERT_NO_FATAL_FAILURE(go_on(80, setup.chunk()));
    }
    // The canonical string of what there is changes nothing.
    const std::string now = canonical(setup), portrait = cache.portrait();
    ASSERT_EQ(cache.caches().set_config(cache.get(), now.c_str()), WINNOW_OK) << cache.message();
    EXPECT_EQ(cache.portrait(), portrait);
}

// In several packed segments all cells have slots, and beside those as many as a cadence: they become more, not fewer.
void run_set_config_of_cells() {
    CacheSetup setup =
        with_shape({.policy = Policy::h2o, .cells = 18, .budget = 20, .sink = 1, .residual = 0, .cadence = 4}, 1);
    setup.lower = {{{1, 5}}};
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    for (int64_t cell = 0; cell < setup.cells; ++cell) {
        Step step = draw_step(setup, engine, 0, 0, 1, 0);
        step.cells = TestTensor(WINNOW_TYPE_I32, {1, 1, 1, 1});
        step.cells.set({0, 0, 0, 0}, static_cast<double>(cell));
        ASSERT_EQ(oracle.step(step), "") << "cell " << cell;
    }
    for (const int64_t cadence : {3, 5, 4}) {
        CacheSetup other = oracle.setup();
        other.cadence = cadence;
        ASSERT_EQ(oracle.set_config(other), "") << "cadence=" << cadence;
        EXPECT_EQ(oracle.setup().cadence, cadence == 3 ? 4 : 5);
        if (cadence != 5) {
            EXPECT_NE(cache.message().find("cadence"), std::string::npos) << cache.message();
        }
    }
}

// Memory pressure above the trigger begins eviction passes before the budget is full.
void run_pressure() {
    CacheSetup setup{.policy = Policy::hierarchical,
                     .layers = 3,
                     .context = 600,
                     .budget = 0,
                     .cadence = 32,
                     .hierarchical = {.first = 0, .recent_shallow = 16, .recent_middle = 16, .recent_deep = 16}};
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    const auto go_on = [&](int64_t tokens) {
        for (int64_t at = 0; at < tokens; ++at)
            for (int64_t layer = 0; layer < setup.layers; ++layer) {
                Step step = draw_step(setup, engine, layer, 0, 1, 1);
                ASSERT_EQ(oracle.step(step), "") << "layer " << layer << ", token " << at;
            }
    };
    ASSERT_NO_FATAL_FAILURE(go_on(100));
    EXPECT_EQ(oracle.evictions(), 0u);
    ASSERT_EQ(oracle.set_pressure(.9), "");
    ASSERT_NO_FATAL_FAILURE(go_on(70));
    const uint64_t evictions = oracle.evictions();
    EXPECT_GT(evictions, 0u) << "the pressure changed nothing";
    ASSERT_EQ(oracle.set_pressure(.7), "") << "the trigger itself is not above it";
    ASSERT_NO_FATAL_FAILURE(go_on(40));
    EXPECT_EQ(oracle.evictions(), evictions);
}

void register_set_config() {
    register_cache_test("set_config", "segments_of_cells", __FILE__, __LINE__, run_set_config_of_cells);
    const auto budget = [](int64_t tokens) { return [=](CacheSetup& s) { s.budget = tokens; }; };
    const auto policy = [](Policy other) { return [=](CacheSetup& s) { s.policy = other; }; };
    for (const int64_t residual : {48, 0})
        for (const bool is_center : {false, true}) {
            if (is_center && residual == 0) continue;
            const std::string name = "residual_" + std::to_string(residual) + (is_center ? "_center" : "");
            register_cache_test("set_config", "importance_" + name, __FILE__, __LINE__, [=] {
                CacheSetup setup = with_shape({.policy = Policy::h2o, .residual = residual, .center = is_center}, 1);
                run_set_config(setup, {budget(100), policy(Policy::scissorhands), budget(150), policy(Policy::winnow),
                                       budget(80)});
            });
            register_cache_test("set_config", "window_" + name, __FILE__, __LINE__, [=] {
                CacheSetup setup{.residual = residual, .center = is_center};
                run_set_config(setup, {budget(90), policy(Policy::random), budget(200), budget(70)});
            });
        }
}

} // namespace

void register_cache_stats() {
    int at = 0;
    for (const NamedSetup& each : all_setups()) {
        const CacheSetup setup = with_shape(each.setup, at++ % cache_shapes);
        register_cache_test("estimate", each.name, __FILE__, __LINE__, [=] { run_estimate(setup); });
    }
    register_cache_test("estimate", "recall_of_unlike_layers", __FILE__, __LINE__,
                        [] { run_estimate_of_recall(with_unlike_layers(recall_setup(1, "400000B"))); });
    for (const int shape : {1, 4})
        for (const char* budget : {"1G", "90000B"}) {
            CacheSetup setup = recall_setup(shape, budget);
            register_cache_test("estimate", std::string("recall_") + budget + "_" + shape_name(shape), __FILE__,
                                __LINE__, [=] { run_estimate_of_recall(setup); });
            if ((shape == 1) == (std::string(budget) == "1G")) continue;
            setup.policy = Policy::window; // keeps the newest alone
            setup.budget = 90;
            register_cache_test("estimate", std::string("newest_of_recall_") + budget + "_" + shape_name(shape),
                                __FILE__, __LINE__, [=] { run_estimate_of_recall(setup); });
        }
    const struct {
        Policy policy;
        int shape;
        const char* budget;
        uint64_t bytes;
        bool has_own_formats = false;
    } budgets[] = {{Policy::window, 0, "128K", 128 << 10},
                   {Policy::h2o, 0, "128K", 128 << 10},
                   {Policy::winnow, 1, "100000B", 100000},
                   {Policy::random, 2, "256K", 256 << 10},
                   {Policy::window, 1, "200000B", 200000, true}};
    for (const auto& [policy, shape, budget, bytes, has_own_formats] : budgets)
        register_cache_test(
            "byte_budget", policy_name(policy) + std::string("_") + budget + (has_own_formats ? "_own_formats" : ""),
            __FILE__, __LINE__,
            [=, policy = policy, shape = shape, budget = budget, bytes = bytes, has_own_formats = has_own_formats] {
                run_byte_budget(policy, shape, budget, bytes, has_own_formats);
            });
    register_cache_test("memory", "reserve_and_release", __FILE__, __LINE__, run_reserve_and_release);
    register_cache_test("memory", "shrink", __FILE__, __LINE__, run_shrink);
    register_set_config();
    register_cache_test("set_config", "pressure", __FILE__, __LINE__, run_pressure);
}

} // namespace winnow::conformance
