// What a configuration means, as cache_describe tells it: against the numbers that docs/policies.md leads to, against
// caches that are full, and against what create refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

struct Description {
    int32_t status = WINNOW_OK;
    std::string message, config, storage_config, profile_file;
    winnow_cache_info info{};
    bool is(uint32_t property) const { return (info.properties & property) != 0; }
};

// The sizes are asked for first; then there is just as much room as was said.
Description describe(const winnow_cache_desc& desc) {
    Description found;
    found.info.struct_size = sizeof found.info;
    const auto ask = [&] {
        found.status = subject().caches().describe(subject().context(), &desc, &found.info);
        if (found.status != WINNOW_OK) found.message = subject().message();
    };
    ask();
    if (found.status != WINNOW_OK) return found;
    found.config.resize(found.info.config_size);
    found.storage_config.resize(found.info.storage_config_size);
    found.profile_file.resize(found.info.profile_file_size);
    found.info.config = found.config.data();
    found.info.storage_config = found.storage_config.data();
    found.info.profile_file = found.profile_file.data();
    ask();
    for (std::string* text : {&found.config, &found.storage_config, &found.profile_file}) {
        EXPECT_EQ(text->find('\0'), text->size() - 1) << "a size is not that of the string and its zero";
        text->pop_back();
    }
    return found;
}

Description describe(const CacheSetup& setup, const std::string& config) { return describe(desc_of(setup, config)); }

bool may_evict(const CacheSetup& setup) {
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const Part trigger = rules_of(setup, layer, 0).trigger;
        if (!setup.covers_all(layer) || trigger.part < trigger.whole) return true;
    }
    return false;
}

void expect_storage(const CacheSetup& setup, const Description& whole) {
    const Description storage = describe(setup, whole.storage_config);
    ASSERT_EQ(storage.status, WINNOW_OK) << whole.storage_config << ": " << storage.message;
    EXPECT_EQ(storage.config, whole.storage_config) << "it is no canonical string";
    EXPECT_EQ(storage.storage_config, whole.storage_config);
    EXPECT_STREQ(storage.info.policy, "none");
    EXPECT_EQ(storage.info.properties, 0u);
    EXPECT_EQ(storage.info.k_type, whole.info.k_type);
    EXPECT_EQ(storage.info.v_type, whole.info.v_type);
    EXPECT_EQ(storage.info.sink, whole.info.sink);
    EXPECT_EQ(storage.info.budget_tokens, setup.context);
}

// Where so many tokens of a head lie.
void expect_segments(const CacheSetup& setup, const winnow_cache_info& info, int64_t tokens) {
    std::vector<int64_t> want = setup.packed_slots_of(tokens);
    want.insert(want.begin(), setup.sink + setup.residual);
    for (int64_t i = 0; i < 4; ++i) {
        const bool is_there = i < static_cast<int64_t>(want.size());
        SCOPED_TRACE("segment " + std::to_string(i));
        EXPECT_EQ(info.segment_tokens[i], is_there ? want[static_cast<size_t>(i)] : 0);
        EXPECT_EQ(info.segment_k_types[i], is_there ? setup.k_type_of(i) : 0);
        EXPECT_EQ(info.segment_v_types[i], is_there ? setup.v_type_of(i) : 0);
    }
}

// The numbers of the oracle, and a canonical string that means the same.
void expect_described(const CacheSetup& setup) {
    const std::string config = setup.config();
    SCOPED_TRACE(config);
    const Description found = describe(setup, config);
    ASSERT_EQ(found.status, WINNOW_OK) << found.message;
    EXPECT_STREQ(found.info.policy, policy_name(setup.policy));
    EXPECT_EQ(found.info.k_type, setup.k_type);
    EXPECT_EQ(found.info.v_type, setup.v_type);
    EXPECT_EQ(found.info.sink, setup.sink);
    EXPECT_EQ(found.info.residual, setup.residual);
    EXPECT_EQ(found.info.cadence, setup.cadence_tokens());
    const std::vector<int64_t> tokens = setup.layer_tokens();
    const int64_t most = *std::max_element(tokens.begin(), tokens.end());
    EXPECT_EQ(found.info.budget_tokens, most);
    expect_segments(setup, found.info, most);
    EXPECT_EQ(found.is(WINNOW_CACHE_EVICTS), may_evict(setup));
    EXPECT_EQ(found.is(WINNOW_CACHE_KEEPS_IMPORTANCE), setup.keeps_importance());
    EXPECT_EQ(found.is(WINNOW_CACHE_NEEDS_PROFILE), setup.policy == Policy::adaptive_budget);
    EXPECT_EQ(found.is(WINNOW_CACHE_NEEDS_NETWORK), setup.policy == Policy::learned);
    EXPECT_EQ(found.is(WINNOW_CACHE_NEEDS_CODEBOOKS), setup.recall && setup.recall->has_codes);
    EXPECT_EQ(found.profile_file, "");
    const Description again = describe(setup, found.config);
    ASSERT_EQ(again.status, WINNOW_OK) << again.message;
    EXPECT_EQ(again.config, found.config);
    EXPECT_EQ(again.info.budget_tokens, most);
    expect_storage(setup, found);
}

void run_policies() {
    for (const NamedSetup& each : policy_setups()) {
        SCOPED_TRACE(each.name);
        expect_described(each.setup);
    }
}

void run_random() {
    std::mt19937_64 engine(options().seed);
    for (int at = 0; at < 60; ++at) {
        expect_described(draw_setup(engine));
        expect_described(draw_tight_setup(engine));
        if (testing::Test::HasFailure()) return;
    }
}

// What nobody says: each number is the one that stats and positions show later.
void run_defaults() {
    CacheSetup setup{.context = 2048};
    const Description whole = describe(setup, "");
    ASSERT_EQ(whole.status, WINNOW_OK) << whole.message;
    EXPECT_EQ(whole.config, "winnow");
    EXPECT_STREQ(whole.info.policy, "winnow");
    EXPECT_EQ(whole.storage_config, "none:k=turbo4,v=turbo3,k_norm=unit_slope");
    EXPECT_EQ(whole.info.k_type, uint32_t{WINNOW_TYPE_TURBO4});
    EXPECT_EQ(whole.info.v_type, uint32_t{WINNOW_TYPE_TURBO3});
    EXPECT_EQ(whole.info.sink, 4);
    EXPECT_EQ(whole.info.residual, 48);
    EXPECT_EQ(whole.info.cadence, 32);
    EXPECT_EQ(whole.info.budget_tokens, 2048);
    EXPECT_EQ(whole.info.properties, 0u);
    const Description eighth = describe(setup, "winnow:budget=1/8,sink=7");
    EXPECT_EQ(eighth.info.budget_tokens, 256);
    EXPECT_EQ(eighth.info.sink, 7);
    EXPECT_EQ(eighth.info.properties, uint32_t{WINNOW_CACHE_EVICTS | WINNOW_CACHE_KEEPS_IMPORTANCE});
    EXPECT_EQ(eighth.storage_config, "none:k=turbo4,v=turbo3,sink=7,k_norm=unit_slope");
    const Description tiered = describe(setup, "hierarchical:budget=1/1");
    EXPECT_TRUE(tiered.is(WINNOW_CACHE_EVICTS)) << "it begins before the budget is full";
    // Small enough that there is no residual window; for the one of the whole context this cadence would be too long.
    const Description tight = describe(setup, "window:budget=64,k=turbo4,v=turbo3,cadence=60");
    ASSERT_EQ(tight.status, WINNOW_OK) << tight.message;
    EXPECT_EQ(tight.info.residual, 0);
    expect_storage(setup, tight);
}

// A cache that is full: whether it evicted, and what its fullest head may hold.
void run_full() {
    std::mt19937_64 engine(options().seed);
    for (const Policy policy : {Policy::none, Policy::window, Policy::h2o, Policy::hierarchical, Policy::winnow}) {
        for (const int64_t budget : {int64_t{0}, int64_t{96}}) {
            CacheSetup setup{.policy = policy, .layers = 1, .context = 400, .budget = budget};
            const std::string config = setup.config();
            SCOPED_TRACE(config);
            const Description found = describe(setup, config);
            ASSERT_EQ(found.status, WINNOW_OK) << found.message;
            CacheHost cache(subject(), setup);
            Step step = draw_step(setup, engine, 0, 0, setup.context, setup.context);
            ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
            EXPECT_EQ(found.is(WINNOW_CACHE_EVICTS), cache.stats().evictions > 0);
            EXPECT_LE(static_cast<int64_t>(cache.positions(0, 0, 0).size()), found.info.budget_tokens);
            EXPECT_EQ(cache.stats().importance_bytes > 0, found.is(WINNOW_CACHE_KEEPS_IMPORTANCE));
        }
    }
}

// The figures that decay is made after: of 32768 tokens 4096 stay and 28672 go.
void run_decay() {
    std::mt19937_64 engine(options().seed);
    CacheSetup setup{.policy = Policy::decay,
                     .layers = 1,
                     .kv_heads = 1,
                     .group = 1,
                     .context = 32768,
                     .budget = 0,
                     .k_type = WINNOW_TYPE_TURBO4,
                     .v_type = WINNOW_TYPE_TURBO3};
    EXPECT_EQ(describe(setup, "decay").info.budget_tokens, 4096);
    EXPECT_EQ(describe(setup, "decay:mode=bit_reduction").info.budget_tokens, 32768);
    EXPECT_EQ(describe(setup, "decay:decay_lambda=0.0001").info.budget_tokens, 29958);
    CacheHost cache(subject(), setup);
    for (int64_t seen = 0; seen < setup.context; seen += 4096) {
        Step step = draw_step(setup, engine, 0, 0, 4096, 0);
        ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
    }
    EXPECT_EQ(cache.stats().evictions, 28672u);
    const std::vector<int64_t> left = cache.positions(0, 0, 0);
    ASSERT_EQ(left.size(), 4096u);
    EXPECT_EQ(left[3], 3) << "a sink";
    EXPECT_EQ(left[4], 32768 - 4092) << "the newest are in one piece";
}

void run_profile() {
    const std::string config = "adaptive_budget:budget=128,policy=window,profile_file=/a path/of, no one";
    CacheSetup setup;
    const Description bad = describe(setup, config);
    EXPECT_EQ(bad.status, WINNOW_ERROR_INVALID_ARGUMENT) << "a comma ends the path";
    const std::string named = "adaptive_budget:budget=128,policy=window,profile_file=/a path/of:no=one";
    const Description without = describe(setup, named);
    ASSERT_EQ(without.status, WINNOW_OK) << "no file and no profile is needed to describe it: " << without.message;
    EXPECT_EQ(without.profile_file, "/a path/of:no=one");
    EXPECT_EQ(without.info.budget_tokens, 128) << "without a profile all layers are alike";
    EXPECT_TRUE(without.is(WINNOW_CACHE_NEEDS_PROFILE));
    winnow_cache_desc desc = desc_of(setup, named);
    winnow_cache* cache = nullptr;
    EXPECT_EQ(subject().caches().create(subject().context(), &desc, &cache), WINNOW_ERROR_INVALID_ARGUMENT);
    const double profile[] = {9, .1, 9, 1, .9, 1};
    desc.profile = profile;
    const Description with = describe(desc);
    ASSERT_EQ(with.status, WINNOW_OK) << with.message;
    // A layer has at least 4 sinks, 48 dense rows and the 16 tokens of a cadence; one wants all that is divided.
    EXPECT_EQ(with.info.budget_tokens, 68 + 2 * (128 - 68));
}

// Refused as estimate refuses it, with the same text; nothing is written.
void run_refusals() {
    CacheSetup setup;
    for (const std::string config :
         {"snapkv", "h2o:budget=64,colour=1", "window:budget=4", "winnow:k=q9_0",
          "none:", "winnow:residual=8,cadence=9", "window:center=on,residual=0,budget=100",
          "hierarchical:deep_from=1/4", "adaptive_budget:entropy=0,concentration=0,variance=0"}) {
        const winnow_cache_desc desc = desc_of(setup, config);
        char text[64] = "untouched";
        winnow_cache_info info{};
        info.struct_size = sizeof info;
        info.config = text;
        info.config_size = sizeof text;
        info.sink = 77;
        const int32_t status = subject().caches().describe(subject().context(), &desc, &info);
        const std::string described = subject().message();
        EXPECT_EQ(status, WINNOW_ERROR_INVALID_ARGUMENT) << config;
        EXPECT_STREQ(text, "untouched");
        EXPECT_EQ(info.config_size, sizeof text);
        EXPECT_EQ(info.sink, 77);
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(subject().caches().estimate(subject().context(), &desc, 0, &stats), status);
        const auto reason = [](const std::string& whole) { return whole.substr(whole.find(": ")); };
        EXPECT_EQ(reason(described), reason(subject().message()));
    }
}

} // namespace

void register_cache_describe() {
    const struct {
        const char* name;
        void (*action)();
    } tests[] = {{"policies", run_policies}, {"random", run_random},   {"defaults", run_defaults}, {"full", run_full},
                 {"decay", run_decay},       {"profile", run_profile}, {"refusals", run_refusals}};
    for (const auto& [name, action] : tests)
        register_cache_test("describe", name, __FILE__, __LINE__, [action = action] { action(); });
}

} // namespace winnow::conformance
