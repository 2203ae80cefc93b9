// Long steps against the same tokens in chunks, an unlimited cache against plain attention, and long runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cache_cases.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "elements.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

// ---- A step of many tokens is the same as its chunks --------------------------------------------------------------

// Memory grows to what a step needs before it begins, and how the keys are divided may follow it: sums over them may
// add up in another order, and round to the next element of the output's type. |v| is about 1.
constexpr double reordering = 1e-5;

std::string difference(const TestTensor& whole, const TestTensor& part, int64_t first, const char* name) {
    std::string wrong;
    if (!part) return wrong;
    part.each([&](const Index& at) {
        const double want = part.get(at), got = whole.get({at[0], at[1], at[2] + first, at[3]});
        const bool is_same = got == want ||
                             std::fabs(got - want) <= reordering + 2 * rounding_error(part.type(), want) ||
                             (std::isnan(got) && std::isnan(want));
        if (wrong.empty() && !is_same)
            wrong = std::string(name) + " of token " + std::to_string(first + at[2]) + " is " + std::to_string(got) +
                    " in a long step, and " + std::to_string(want) + " in chunks";
    });
    return wrong;
}

// `reserved`: tokens for which both have memory from the start, so that there are slots, and scores of them.
void run_chunks(const CacheSetup& setup, uint64_t seed, int64_t reserved = 0) {
    std::mt19937_64 engine(seed);
    CacheHost whole(subject(), setup), chunks(subject(), setup);
    CacheOracle oracle(chunks);
    for (const CacheHost* host : {&whole, &chunks})
        if (reserved > 0) {
            ASSERT_EQ(host->caches().reserve(host->get(), 0, reserved), WINNOW_OK) << host->message();
        }
    const int64_t lengths[] = {3, 150, 35, 1, 97, 64, 40, 2};
    int64_t seen = 0;
    for (int64_t length : lengths) {
        // A rest of one token is no decode step in a long one, but is where it comes alone.
        if (length > 1 && setup.chunk() > 1 && length % setup.chunk() == 1) ++length;
        length = std::min(length, setup.context - seen);
        if (length == 0) break;
        seen += length;
        StepOptions options;
        options.scores = length == 40;
        options.draft_tokens = length == 35 ? 9 : 0;
        options.head_sink = length == 64;
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            Step step = draw_step(setup, engine, layer, 0, length, length == 97 ? 0 : length, options, seen);
            std::vector<Step> parts;
            for (int64_t first = 0; first < length; first += setup.chunk())
                parts.push_back(part_of(setup, step, first, std::min(setup.chunk(), length - first)));
            ASSERT_EQ(whole.run(step), WINNOW_OK) << whole.message();
            int64_t first = 0;
            for (Step& part : parts) {
                ASSERT_EQ(oracle.step(part), "") << "seed " << seed << ", layer " << layer << ", token " << first;
                ASSERT_EQ(difference(step.out, part.out, first, "out"), "") << "seed " << seed;
                ASSERT_EQ(difference(step.scores, part.scores, first, "scores_out"), "") << "seed " << seed;
                first += part.tokens;
            }
        }
        ASSERT_EQ(whole.portrait(false), chunks.portrait(false)) << "seed " << seed << ", after " << seen << " tokens";
    }
}

// ---- Unlimited, in f16: attention as sdpa has it -------------------------------------------------------------------

TestTensor in_halves(const std::vector<TestTensor>& steps, int64_t tokens) {
    const Shape shape = steps[0].shape();
    TestTensor all(WINNOW_TYPE_F16, {1, shape[1], tokens, shape[3]});
    int64_t first = 0;
    for (const TestTensor& step : steps) {
        step.each([&](const Index& at) { all.set({0, at[1], at[2] + first, at[3]}, step.get(at)); });
        first += step.shape()[2];
    }
    return all;
}

void run_plain(CacheSetup setup) {
    setup.layers = 1;
    setup.context = 400;
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    std::vector<TestTensor> k, v;
    int64_t seen = 0;
    for (const int64_t length : {1, 30, 130, 1, 1, 90, 1}) {
        Step step = draw_step(setup, engine, 0, 0, length, length);
        k.push_back(step.k.packed_copy());
        v.push_back(step.v.packed_copy());
        ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
        seen += length;
        TestTensor all_k = in_halves(k, seen), all_v = in_halves(v, seen), out(WINNOW_TYPE_F32, step.out.shape());
        for (TestTensor* each : {&all_k, &all_v, &out}) each->bind(subject());
        winnow_sdpa_desc desc{};
        desc.struct_size = sizeof desc;
        desc.q = step.q.view();
        desc.k = all_k.view();
        desc.v = all_v.view();
        desc.out = out.view();
        desc.is_causal = 1;
        desc.q_offset = seen - length;
        ASSERT_EQ(subject().run(desc), WINNOW_OK) << subject().message();
        ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK);
        out.fetch();
        double most = 0;
        out.each([&](const Index& at) { most = std::max(most, std::fabs(out.get(at) - step.out.get(at))); });
        // Each is within 1e-5 of the average of |v| and what single precision costs the logits; |v| is about 1.
        EXPECT_LT(most, 4e-5) << "after " << seen << " tokens";
    }
}

// ---- Long runs -----------------------------------------------------------------------------------------------------

// Whether eviction passes leave the budget full, but for the tokens to come.
bool fills_budget(const Rules& rules) {
    return rules.target == rules.budget && rules.trigger.part == rules.trigger.whole && !rules.threshold;
}

// `attended`: every so many chunks, all of them where it is 1.
void run_long(CacheSetup setup, int64_t tokens, int64_t attended) {
    setup.kv_heads = 1;
    setup.group = 2;
    setup.budget = 512;
    setup.context = tokens;
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    int64_t most = 0, least = 0;
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const Rules rules = rules_of(setup, layer, 0);
        most += rules.budget;
        if (fills_budget(rules)) least += rules.budget - setup.cadence_tokens();
    }
    uint64_t bytes = 0, scratch = 0;
    for (int64_t chunk = 0; oracle.length(0, 0) < tokens; ++chunk) {
        // The context's end is reached with one token at a time.
        const int64_t left = tokens - oracle.length(0, 0), count = left > 40 ? setup.chunk() : 1;
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            Step step = draw_step(setup, engine, layer, 0, count, chunk % attended == 0 ? count : 0);
            ASSERT_EQ(oracle.step(step), "") << "layer " << layer << ", " << oracle.length(0, layer) << " tokens";
        }
        if (oracle.length(0, 0) < 1024) continue;
        const winnow_cache_stats stats = cache.stats();
        if (bytes == 0) {
            bytes = stats.bytes;
            scratch = stats.scratch_bytes;
        }
        ASSERT_EQ(stats.bytes, bytes) << "after " << oracle.length(0, 0) << " tokens";
        ASSERT_EQ(stats.scratch_bytes, scratch) << "after " << oracle.length(0, 0) << " tokens";
        ASSERT_LE(stats.resident_slots, static_cast<uint64_t>(most));
        ASSERT_GE(stats.resident_slots, static_cast<uint64_t>(least));
    }
    EXPECT_EQ(oracle.look(), "");
}

// One policy goes the whole way, some a part of it, and in the full sweep all of them go it.
void register_long_runs() {
    const auto add = [](const std::string& name, const CacheSetup& setup, int64_t tokens, int64_t attended) {
        register_cache_test("long_run", name, __FILE__, __LINE__, [=] { run_long(setup, tokens, attended); });
    };
    if (options().pairs == Pairs::all) {
        int at = 0;
        for (const NamedSetup& each : policy_setups())
            if (each.setup.policy != Policy::none) add(each.name, with_shape(each.setup, at++ % 3), 20000, 4);
        return;
    }
    const auto shorter = [&](const char* name, Policy policy, int shape, int64_t residual, int64_t tokens,
                             int64_t attended) {
        CacheSetup setup = with_shape({.policy = policy, .layers = 1, .residual = residual}, shape);
        add(name, setup, tokens, attended);
    };
    shorter("window", Policy::window, 0, 48, 20000, 16);
    shorter("window_without_residual", Policy::window, 2, 0, 3000, 8);
    shorter("h2o", Policy::h2o, 2, 48, 3000, 1);
    shorter("winnow", Policy::winnow, 1, 48, 3000, 1);
    shorter("winnow_of_many", Policy::winnow, 0, 48, 1100, 1); // slots for several work-groups
}

// So many query heads and slots that the scores of a chunk pass 4 MiB: its queries attend in parts.
void register_wide_chunks() {
    const auto add = [](const char* name, Policy policy, int shape, std::optional<int64_t> cadence, int64_t residual) {
        CacheSetup setup = with_shape(
            {.policy = policy, .layers = 1, .context = 4096, .budget = 3000, .residual = residual, .cadence = cadence},
            shape);
        setup.kv_heads = 2;
        setup.group = 8;
        register_cache_test("chunks_in_parts", name, __FILE__, __LINE__,
                            [=] { run_chunks(setup, options().seed, setup.context); });
    };
    add("h2o", Policy::h2o, 0, std::nullopt, 48);        // 32 queries, 16 at a time
    add("winnow", Policy::winnow, 1, 27, 48);            // 27 queries, 14 and 13
    add("scissorhands", Policy::scissorhands, 0, 23, 0); // 23 queries, 12 and 11
}

} // namespace

void register_cache_steps() {
    int at = 0;
    for (const NamedSetup& each : policy_setups()) {
        const int shape = at++ % cache_shapes;
        const CacheSetup setup = with_shape(each.setup, shape);
        register_cache_test("chunks", each.name + "_" + shape_name(shape), __FILE__, __LINE__,
                            [=] { run_chunks(setup, options().seed + static_cast<uint64_t>(at)); });
    }
    register_wide_chunks();
    for (const auto& [name, policy] : {std::pair("none", Policy::none), std::pair("window", Policy::window)})
        for (const int64_t residual : {48, 0})
            register_cache_test("plain", name + std::string("_residual_") + std::to_string(residual), __FILE__,
                                __LINE__, [=, policy = policy] {
                                    CacheSetup setup{.policy = policy, .budget = 0, .residual = residual};
                                    run_plain(setup);
                                });
    register_long_runs();
}

} // namespace winnow::conformance
