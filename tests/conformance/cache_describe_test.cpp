// What a configuration means, as cache_describe tells it: against the numbers that docs/policies.md leads to, against
// caches that are full, and against what create refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "bad_input.hpp"
#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

struct Description {
    int32_t status = WINNOW_OK;
    std::string message, config, storage_config;
    std::vector<std::string> wanted; // resources, as name=path
    std::vector<winnow_cache_segment> segments;
    winnow_cache_info info{};
    bool is(uint32_t property) const { return (info.properties & property) != 0; }
};

// Counts are asked for first, then the sizes of strings; then there is just as much room as was said.
Description describe(const winnow_cache_desc& desc) {
    Description found;
    found.info.struct_size = sizeof found.info;
    const auto ask = [&] {
        found.status = subject().caches().describe(subject().context(), &desc, &found.info);
        if (found.status != WINNOW_OK) found.message = subject().message();
    };
    ask();
    if (found.status != WINNOW_OK) return found;
    std::vector<winnow_wanted_resource> resources(found.info.resource_count);
    for (winnow_wanted_resource& each : resources) each.struct_size = sizeof each;
    found.info.resources = resources.data();
    found.info.resource_capacity = resources.size();
    found.info.resource_stride = sizeof resources.front();
    found.segments.resize(found.info.segment_count);
    for (winnow_cache_segment& each : found.segments) each.struct_size = sizeof each;
    found.info.segments = found.segments.data();
    found.info.segment_capacity = found.segments.size();
    found.info.segment_stride = sizeof found.segments.front();
    ask();
    found.config.resize(found.info.config_size);
    found.storage_config.resize(found.info.storage_config_size);
    std::vector<std::string> paths;
    for (const winnow_wanted_resource& each : resources) paths.emplace_back(each.path_size, '#');
    for (size_t at = 0; at < paths.size(); ++at) resources[at].path = paths[at].data();
    found.info.config = found.config.data();
    found.info.storage_config = found.storage_config.data();
    ask();
    const auto drop_zero = [](std::string& text) {
        EXPECT_EQ(text.find('\0'), text.size() - 1) << "a size is not that of the string and its zero";
        text.pop_back();
    };
    drop_zero(found.config);
    drop_zero(found.storage_config);
    for (size_t at = 0; at < paths.size(); ++at) {
        drop_zero(paths[at]);
        EXPECT_EQ(resources[at].is_needed, 1u);
        found.wanted.push_back(resources[at].name + ("=" + paths[at]));
    }
    return found;
}

Description describe(const CacheSetup& setup, const std::string& config) {
    return describe(*SetupDesc(setup, config).get());
}

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
void expect_segments(const CacheSetup& setup, const std::vector<winnow_cache_segment>& segments, int64_t tokens) {
    std::vector<int64_t> want = setup.packed_slots_of(tokens);
    want.insert(want.begin(), setup.sink + setup.residual);
    ASSERT_EQ(segments.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
        SCOPED_TRACE("segment " + std::to_string(i));
        EXPECT_EQ(segments[i].tokens, want[i]);
        EXPECT_EQ(segments[i].k_type, setup.k_type_of(static_cast<int64_t>(i)));
        EXPECT_EQ(segments[i].v_type, setup.v_type_of(static_cast<int64_t>(i)));
    }
}

std::vector<std::string> wanted_by(const CacheSetup& setup) {
    if (setup.policy == Policy::adaptive_budget) return {"profile="};
    if (setup.policy == Policy::learned) return {"network="};
    if (setup.recall && setup.recall->has_codes) return {"codebooks="};
    return {};
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
    expect_segments(setup, found.segments, most);
    EXPECT_EQ(found.is(WINNOW_CACHE_EVICTS), may_evict(setup));
    EXPECT_EQ(found.is(WINNOW_CACHE_KEEPS_IMPORTANCE), setup.keeps_importance());
    EXPECT_EQ(found.wanted, wanted_by(setup));
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
    EXPECT_EQ(without.wanted, std::vector<std::string>{"profile=/a path/of:no=one"});
    EXPECT_EQ(without.info.budget_tokens, 128) << "without a profile all layers are alike";
    const SetupDesc missing(setup, named);
    winnow_cache* cache = nullptr;
    EXPECT_EQ(subject().caches().create(subject().context(), missing.get(), &cache), WINNOW_ERROR_INVALID_ARGUMENT);
    setup.adaptive_budget.profile = {9, .1, 9, 1, .9, 1};
    const Description with = describe(setup, named);
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
        const SetupDesc desc(setup, config);
        char text[64] = "untouched";
        winnow_cache_info info{};
        info.struct_size = sizeof info;
        info.config = text;
        info.config_size = sizeof text;
        info.sink = 77;
        const int32_t status = subject().caches().describe(subject().context(), desc.get(), &info);
        const std::string described = subject().message();
        EXPECT_EQ(status, WINNOW_ERROR_INVALID_ARGUMENT) << config;
        EXPECT_STREQ(text, "untouched");
        EXPECT_EQ(info.config_size, sizeof text);
        EXPECT_EQ(info.sink, 77);
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(subject().caches().estimate(subject().context(), desc.get(), 0, &stats), status);
        const auto reason = [](const std::string& whole) { return whole.substr(whole.find(": ")); };
        EXPECT_EQ(reason(described), reason(subject().message()));
    }
}

// An array of the host's whose structs are longer than ours, with room for `capacity` of them and canaries behind.
template <class T>
class Room {
public:
    explicit Room(uint64_t capacity) : capacity_(capacity), elements_(capacity + 1) {
        for (Element& each : elements_) {
            std::memset(&each, '#', sizeof each);
            each.first.struct_size = sizeof each;
            each.tail = 0;
        }
        elements_.back().first.struct_size = 0x23232323;
    }
    T* data() { return &elements_.front().first; }
    T& operator[](uint64_t at) { return elements_[at].first; }
    static uint64_t stride() { return sizeof(Element); }
    bool is_written(uint64_t at) const {
        Element untouched;
        std::memset(&untouched, '#', sizeof untouched);
        return std::memcmp(&elements_[at].first.struct_size + 1, &untouched.first.struct_size + 1,
                           sizeof(T) - sizeof(uint32_t)) != 0;
    }

private:
    struct Element {
        T first;
        uint64_t tail;
    };
    uint64_t capacity_;
    std::vector<Element> elements_;
};

// Room for each number of elements: the first so many are written, and nothing else.
void run_arrays() {
    CacheSetup setup;
    const std::string config = "learned:budget=128,network_file=/nowhere";
    const SetupDesc desc(setup, config);
    for (uint64_t capacity = 0; capacity < 4; ++capacity) {
        SCOPED_TRACE(capacity);
        Room<winnow_wanted_resource> resources(capacity);
        Room<winnow_cache_segment> segments(capacity);
        char path[16];
        for (uint64_t at = 0; at < capacity; ++at) {
            resources[at].path = path;
            resources[at].path_size = sizeof path;
        }
        winnow_cache_info info{};
        info.struct_size = sizeof info;
        info.resources = resources.data();
        info.segments = segments.data();
        info.resource_capacity = info.segment_capacity = capacity;
        info.resource_stride = resources.stride();
        info.segment_stride = segments.stride();
        ASSERT_EQ(subject().caches().describe(subject().context(), desc.get(), &info), WINNOW_OK)
            << subject().message();
        EXPECT_EQ(info.resource_count, 1u);
        EXPECT_EQ(info.segment_count, 2u);
        if (capacity > 0) {
            EXPECT_STREQ(resources[0].name, "network");
            EXPECT_STREQ(path, "/nowhere");
            EXPECT_EQ(resources[0].path_size, sizeof "/nowhere");
            EXPECT_EQ(resources[0].struct_size, resources.stride());
            EXPECT_EQ(segments[0].reserved, 0u);
        }
        for (uint64_t at = 0; at <= capacity; ++at) {
            EXPECT_EQ(segments.is_written(at), at < std::min<uint64_t>(capacity, 2)) << at;
            EXPECT_EQ(resources[at].name[0], at < std::min<uint64_t>(capacity, 1) ? 'n' : '#') << at;
        }
    }
}

// Arrays that cannot be meant: refused, and nothing is written.
void run_bad_arrays() {
    CacheSetup setup;
    const std::string config = "learned:budget=128";
    const SetupDesc desc(setup, config);
    winnow_wanted_resource resource{};
    winnow_cache_segment segments[2] = {};
    const struct {
        const char* argument;
        void (*damage)(winnow_cache_info& info);
    } all[] = {
        {"resource_stride", [](winnow_cache_info& info) { info.resource_stride = 0; }},
        {"resource_stride", [](winnow_cache_info& info) { info.resource_stride += 4; }},
        {"struct_size", [](winnow_cache_info& info) { info.resources->struct_size = 4; }},
        {"segment_stride", [](winnow_cache_info& info) { info.segment_stride = 0; }},
        {"segment_stride", [](winnow_cache_info& info) { info.segment_stride = 16; }},
        {"struct_size", [](winnow_cache_info& info) { info.segments[1].struct_size = 0; }},
    };
    for (const auto& [argument, damage] : all) {
        winnow_cache_info info{};
        info.struct_size = sizeof info;
        resource.struct_size = sizeof resource;
        info.resources = &resource;
        info.resource_capacity = 1;
        info.resource_stride = sizeof resource;
        for (winnow_cache_segment& each : segments) each.struct_size = sizeof each;
        info.segments = segments;
        info.segment_capacity = 2;
        info.segment_stride = sizeof segments[0];
        damage(info);
        const winnow_cache_info before = info;
        const int32_t status = subject().caches().describe(subject().context(), desc.get(), &info);
        expect_refusal({argument, argument}, status, subject().message());
        EXPECT_EQ(std::memcmp(&info, &before, sizeof info), 0);
        EXPECT_EQ(resource.name[0], 0) << argument;
        EXPECT_EQ(segments[0].k_type, 0u) << argument;
    }
}

} // namespace

void register_cache_describe() {
    const struct {
        const char* name;
        void (*action)();
    } tests[] = {{"policies", run_policies}, {"random", run_random}, {"defaults", run_defaults},
                 {"full", run_full},         {"decay", run_decay},   {"profile", run_profile},
                 {"refusals", run_refusals}, {"arrays", run_arrays}, {"bad_arrays", run_bad_arrays}};
    for (const auto& [name, action] : tests)
        register_cache_test("describe", name, __FILE__, __LINE__, [action = action] { action(); });
}

} // namespace winnow::conformance
