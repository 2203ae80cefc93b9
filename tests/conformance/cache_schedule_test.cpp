// Schedules of calls, each judged by the oracle: every policy in every shape, and random ones. What they exercise:
//
//  - slot_append: every step with k and v; rows into the residual window, the sinks' slots, and (without a residual
//    window) free-listed slots
//  - attention over slots: every step with q; sinks, residual window and packed segment under one softmax
//  - slot_scores: steps that ask for scores_out
//  - slot_accumulate: the importance after it, where the policy keeps one
//  - slot_evict: eviction passes, and the residual window's oldest rows into the packed segment
//  - slot_edit: truncate, remove, shift, anchors, reused cells
//  - slot_compact: memory that is given back after many are removed
//  - slot_copy: memory that grows, and copies of sequences
//  - slot_zero: elastic zeroing, after chunks and before rows are packed
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "cache_cases.hpp"
#include "cache_registration.hpp"
#include "cache_schedule.hpp"
#include "formats.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

void run_twice(const Schedule& schedule) {
    const ScheduleResult first = run_schedule(schedule);
    if (!first.wrong.empty()) FAIL() << first.wrong;
    const ScheduleResult second = run_schedule(schedule);
    if (!second.wrong.empty()) FAIL() << second.wrong;
    EXPECT_EQ(first.digest, second.digest) << "seed " << schedule.seed << ": the same calls left something else";
}

void run(const Schedule& schedule) {
    const ScheduleResult result = run_schedule(schedule);
    if (!result.wrong.empty()) FAIL() << result.wrong;
}

void register_policies() {
    int at = 0;
    for (const NamedSetup& each : policy_setups()) {
        // One shape for each, and each shape for some; the full sweep takes all.
        for (int shape = 0; shape < cache_shapes; ++shape) {
            const CacheSetup setup = with_shape(each.setup, shape);
            const bool is_sample = shape == at % cache_shapes;
            const uint64_t seed = static_cast<uint64_t>(1000 * at + shape);
            if (!is_sample && options().pairs != Pairs::all) continue;
            const std::string name = each.name + "_" + shape_name(shape);
            register_cache_test("decode", name, __FILE__, __LINE__, [=] {
                Schedule schedule{setup, options().seed + seed, 170, false, false, true};
                const ScheduleResult result = run_schedule(schedule);
                if (!result.wrong.empty()) FAIL() << result.wrong;
                const bool has_evicted = result.evictions > 0;
                EXPECT_EQ(has_evicted, !setup.covers_all(0)) << "a budget that is exceeded evicts tokens, no other";
            });
            register_cache_test("prompt", name, __FILE__, __LINE__, [=] {
                run_twice({setup, options().seed + seed, 12, false, false, false});
            });
        }
        ++at;
    }
}

// All that changes a sequence, under some policies, where a fixed seed reaches every kind of call.
void register_edits() {
    int at = 0;
    for (const NamedSetup& each : policy_setups()) {
        if (++at % 2) continue;
        CacheSetup setup = with_shape(each.setup, at / 2 % 3);
        setup.sequences = 2;
        const uint64_t seed = static_cast<uint64_t>(at);
        register_cache_test("edits", each.name, __FILE__, __LINE__, [=] {
            run({setup, options().seed + seed, 60, true, true, false});
        });
    }
}

// Caches of a few tokens in every format, under one policy after the other.
void register_small() {
    const Policy policies[] = {Policy::window,       Policy::h2o,  Policy::winnow,
                               Policy::scissorhands, Policy::tova, Policy::random};
    for (size_t at = 0; at < formats().size(); ++at) {
        const Format &k = formats()[at], &v = formats()[(at + 7) % formats().size()];
        CacheSetup setup{.policy = policies[at % std::size(policies)],
                         .layers = 1,
                         .kv_heads = 1,
                         .head_size = std::max<int64_t>(k.multiple, 16),
                         .v_head_size = std::max<int64_t>(v.multiple, 16),
                         .context = 90,
                         .sequences = 2,
                         .budget = 26,
                         .sink = 2,
                         .residual = 8,
                         .cadence = 4,
                         .k_type = k.type,
                         .v_type = v.type,
                         .center = at % 3 == 0,
                         .grace = 2,
                         .recent = 6};
        if (at % 3 == 1) setup.zeroing = {.45, .5, 2, 4, 8};
        // As few calls as pack rows of each: what these are on Oclgrind, tests/oclgrind looks at.
        const int operations = k.type == WINNOW_TYPE_SPARSE16 ? 6 : 5;
        register_cache_test("small", std::string("k_") + k.name + "_v_" + v.name, __FILE__, __LINE__, [=] {
            run({setup, options().seed + at, operations, true, false, false});
        });
    }
}

void register_random() {
    const int cases = options().pairs == Pairs::all ? 10 * options().cases : options().cases / 10;
    for (int at = 0; at < cases; ++at)
        register_cache_test("random", "case_" + std::to_string(at), __FILE__, __LINE__, [at] {
            std::mt19937_64 engine(options().seed * 1000003 + static_cast<uint64_t>(at));
            Schedule schedule;
            schedule.setup = draw_setup(engine);
            schedule.seed = engine();
            run(schedule);
        });
}

// Budgets of hardly more than what is protected, where whatever loses a slot or a token is missed at once. They are
// short, and so many of them: what finds a mistake is an unlikely order of calls.
void register_tight() {
    const int cases = options().pairs == Pairs::all ? 2000 : 60;
    for (int at = 0; at < cases; ++at)
        register_cache_test("tight", "case_" + std::to_string(at), __FILE__, __LINE__, [at] {
            std::mt19937_64 engine(options().seed * 9176 + static_cast<uint64_t>(at));
            Schedule schedule;
            schedule.setup = draw_tight_setup(engine);
            schedule.seed = engine();
            schedule.operations = 60;
            schedule.is_tight = true;
            run(schedule);
        });
}

// The same in several packed segments.
void register_segments() {
    const int cases = options().pairs == Pairs::all ? 2000 : 20; // each a program of its own for many devices
    for (int at = 0; at < cases; ++at)
        register_cache_test("segments", "case_" + std::to_string(at), __FILE__, __LINE__, [at] {
            std::mt19937_64 engine(options().seed * 7307 + static_cast<uint64_t>(at));
            Schedule schedule;
            std::optional<CacheSetup> setup;
            schedule.is_tight = at % 4 != 0;
            while (!setup)
                setup = draw_segments(schedule.is_tight ? draw_tight_setup(engine) : draw_setup(engine), engine);
            schedule.setup = *setup;
            schedule.seed = engine();
            schedule.operations = schedule.is_tight ? 60 : 30;
            run(schedule);
        });
}

// Elastic zeroing of any such cache, in one segment or several.
void register_elastic() {
    const int cases = options().pairs == Pairs::all ? 1000 : 8; // each a program of its own
    for (int at = 0; at < cases; ++at)
        register_cache_test("elastic", "case_" + std::to_string(at), __FILE__, __LINE__, [at] {
            std::mt19937_64 engine(options().seed * 5081 + static_cast<uint64_t>(at));
            Schedule schedule;
            schedule.is_tight = at % 2 != 0;
            std::optional<CacheSetup> setup;
            while (!setup || !setup->has_zeroable_rows()) {
                setup = schedule.is_tight ? draw_tight_setup(engine) : draw_setup(engine);
                if (at % 4 == 2) setup = draw_segments(*setup, engine);
                if (setup) draw_zeroing(*setup, engine);
            }
            setup->is_zeroing_changed = true;
            schedule.setup = *setup;
            schedule.seed = engine();
            schedule.operations = schedule.is_tight ? 60 : 30;
            run(schedule);
        });
}

} // namespace

void register_cache_schedules() {
    register_policies();
    register_edits();
    register_random();
    register_tight();
    register_segments();
    register_elastic();
    if (options().has_small) register_small();
}

} // namespace winnow::conformance
