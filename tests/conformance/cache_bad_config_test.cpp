// Configurations, descriptions and files that no cache can be made of: refused with a text that quotes what was given
// and names what there is instead.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cache_bad_input.hpp"
#include "cache_host.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "saved_state.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

// ---- Configurations ------------------------------------------------------------------------------------------------

struct BadConfig {
    const char* name;
    const char* config;
    std::vector<const char*> quoted; // what the message has to quote: what was given, and what there is instead
};

const std::vector<BadConfig>& bad_configs() {
    static const std::vector<BadConfig> all = {
        {"unknown_policy",
         "snapkv:budget=64",
         {"\"snapkv\"", "none", "window", "random", "scissorhands", "tova", "external", "h2o", "hierarchical",
          "adaptive_budget", "learned", "winnow"}},
        {"capital_letters", "H2O", {"\"H2O\"", "h2o"}},
        {"unknown_key", "h2o:budget=64,colour=1", {"\"colour\"", "budget", "heavy", "recent", "alpha", "residual"}},
        {"key_of_another_policy", "window:heavy=1/2", {"\"heavy\"", "budget", "sink"}},
        {"unknown_format", "h2o:k=q9_0", {"q9_0", "turbo4", "q8_0", "f16"}},
        {"not_a_number", "h2o:alpha=much", {"alpha", "much"}},
        {"no_value", "h2o:budget", {"\"budget\"", "key=value"}},
        {"twice", "h2o:budget=64,budget=32", {"budget", "twice"}},
        {"share_above_1", "h2o:budget=3/2", {"budget", "3/2"}},
        {"less_than_the_sinks", "h2o:budget=4", {"budget=4", "sink=4"}},
        {"trailing_comma", "h2o:budget=64,", {"key=value"}},
    };
    return all;
}

void expect_quoted(const BadConfig& bad, const std::string& message) {
    EXPECT_TRUE(names_argument(message, "config")) << message;
    for (const char* quoted : bad.quoted)
        EXPECT_NE(message.find(quoted), std::string::npos) << "without " << quoted << ": " << message;
}

// create, estimate and set_config refuse it alike.
void expect_refused(const BadConfig& bad) {
    winnow_cache_desc desc = misused_cache(false);
    desc.config = bad.config;
    winnow_cache* cache = nullptr;
    EXPECT_EQ(subject().caches().create(subject().context(), &desc, &cache), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(cache, nullptr);
    expect_quoted(bad, subject().message());
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    stats.bytes = 77;
    EXPECT_EQ(subject().caches().estimate(subject().context(), &desc, 10, &stats), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(stats.bytes, 77u);
    expect_quoted(bad, subject().message());
    expect_refused(CacheFault{{bad.name, "config"}, false, [&](winnow_cache* victim) {
                                  const int32_t status = subject().caches().set_config(victim, bad.config);
                                  expect_quoted(bad, subject().message());
                                  return status;
                              }});
}

// What a cache that exists cannot become.
void add_changes(std::vector<CacheFault>& all) {
    const std::pair<const char*, const char*> changes[] = {
        {"another_format", "h2o:budget=64,k=q4_0,v=q4_0,residual=16,grace=0"},
        {"another_residual", "h2o:budget=64,k=q8_0,v=q4_0,residual=32,grace=0"},
        {"other_sinks", "h2o:budget=64,k=q8_0,v=q4_0,residual=16,grace=0,sink=2"},
        {"centring", "h2o:budget=64,k=q8_0,v=q4_0,residual=16,grace=0,center=on"},
        {"no_importance", "window:budget=64,k=q8_0,v=q4_0,residual=16"},
        {"a_budget_below_the_residual", "h2o:budget=18,k=q8_0,v=q4_0,residual=16,grace=0"},
    };
    for (const auto& [name, config] : changes)
        all.push_back({{name, "config"}, false, [config = config](winnow_cache* c) {
                           return subject().caches().set_config(c, config);
                       }});
}

// ---- Descriptions --------------------------------------------------------------------------------------------------

struct BadDescription {
    const char* name;
    const char* argument;
    std::function<void(winnow_cache_desc&)> damage;
};

constexpr double nans[3 * misused_layers] = {1, 2, std::numeric_limits<double>::quiet_NaN(), 4, 5, 6};

struct Resource {
    const char* name;
    const void* data;
    uint64_t size;
};

// Until the next description is given some.
void give(winnow_cache_desc& desc, const std::vector<Resource>& resources) {
    static std::vector<winnow_resource> all;
    all.clear();
    for (const auto& [name, data, size] : resources) all.push_back(resource_of(name, data, size));
    give_resources(desc, all);
}

// Networks of misused_cache whose last number is this one.
Resource networks_with(double number) {
    static std::vector<double> numbers;
    numbers.assign(static_cast<size_t>(misused_layers * misused_kv_heads * network_numbers), .5);
    numbers.back() = number;
    return {"network", numbers.data(), numbers.size() * sizeof numbers.front()};
}

// Two layers that are unlike; until the next description is given some.
winnow_layer_shape* give_shapes(winnow_cache_desc& desc) {
    static winnow_layer_shape shapes[misused_layers];
    shapes[0] = {sizeof shapes[0], 0, 4, 2, 32, 32};
    shapes[1] = {sizeof shapes[1], 0, 4, 4, 64, 0};
    desc.q_num_heads = desc.kv_num_heads = desc.head_size = desc.v_head_size = 0;
    desc.layer_shapes = shapes;
    desc.layer_shape_stride = sizeof shapes[0];
    return shapes;
}

const std::vector<BadDescription>& bad_descriptions() {
    constexpr int64_t huge = std::numeric_limits<int64_t>::max();
    static const std::vector<BadDescription> all = {
        {"no_layers", "layers", [](winnow_cache_desc& d) { d.layers = 0; }},
        {"layers_below_0", "layers", [](winnow_cache_desc& d) { d.layers = -1; }},
        {"layers_without_end", "layers", [](winnow_cache_desc& d) { d.layers = huge; }},
        {"no_kv_heads", "kv_num_heads", [](winnow_cache_desc& d) { d.kv_num_heads = 0; }},
        {"no_query_heads", "q_num_heads", [](winnow_cache_desc& d) { d.q_num_heads = 0; }},
        {"query_heads_between", "q_num_heads", [](winnow_cache_desc& d) { d.q_num_heads = 3; }},
        {"no_head_size", "head_size", [](winnow_cache_desc& d) { d.head_size = 0; }},
        {"v_head_size_below_0", "v_head_size", [](winnow_cache_desc& d) { d.v_head_size = -32; }},
        {"no_context", "context", [](winnow_cache_desc& d) { d.context = 0; }},
        {"context_without_end", "context", [](winnow_cache_desc& d) { d.context = huge; }},
        {"sequences_below_0", "max_sequences", [](winnow_cache_desc& d) { d.max_sequences = -1; }},
        {"cells_below_0", "cells", [](winnow_cache_desc& d) { d.cells = -1; }},
        {"cells_without_end", "cells", [](winnow_cache_desc& d) { d.cells = huge; }},
        {"profile_nan", "profile",
         [](winnow_cache_desc& d) {
             give(d, {{"profile", nans, sizeof nans}});
         }},
        {"profile_of_a_layer", "size",
         [](winnow_cache_desc& d) {
             give(d, {{"profile", nans, 24}});
         }},
        {"network_nan", "network", [](winnow_cache_desc& d) { give(d, {networks_with(nans[2])}); }},
        {"network_of_large_numbers", "network", [](winnow_cache_desc& d) { give(d, {networks_with(1 << 21)}); }},
        {"network_of_a_head", "size",
         [](winnow_cache_desc& d) {
             give(d, {{"network", nans, 8}});
         }},
        {"network_without_end", "size",
         [](winnow_cache_desc& d) {
             give(d, {{"network", nans, ~uint64_t{0}}});
         }},
        {"no_network", "network", [](winnow_cache_desc& d) { d.config = "learned:budget=64"; }},
        {"no_codebooks", "codebooks",
         [](winnow_cache_desc& d) { d.config = "winnow:recall=host,signature=codes,residual=16"; }},
        {"codebooks_of_nothing", "codebooks",
         [](winnow_cache_desc& d) {
             give(d, {{"codebooks", nans, 0}});
         }},
        {"codebooks_of_something_else", "codebooks",
         [](winnow_cache_desc& d) {
             give(d, {{"codebooks", nans, sizeof nans}});
         }},
        {"resource_is_null", "data",
         [](winnow_cache_desc& d) {
             give(d, {{"codebooks", nullptr, 32}});
         }},
        {"resource_without_name", "name",
         [](winnow_cache_desc& d) {
             give(d, {{nullptr, nans, 8}});
         }},
        {"resource_of_another_name", "name",
         [](winnow_cache_desc& d) {
             give(d, {{"Profile", nans, sizeof nans}});
         }},
        {"resource_twice", "name",
         [](winnow_cache_desc& d) {
             static const double profile[3 * misused_layers] = {};
             give(d, {{"profile", profile, sizeof profile}, {"profile", profile, sizeof profile}});
         }},
        {"resource_reserved", "reserved",
         [](winnow_cache_desc& d) {
             static const winnow_resource all = {sizeof all, 1, "profile", nans, sizeof nans};
             d.resources = &all;
             d.resource_count = 1;
             d.resource_stride = sizeof all;
         }},
        {"resource_of_no_size", "struct_size",
         [](winnow_cache_desc& d) {
             static const winnow_resource all{};
             d.resources = &all;
             d.resource_count = 1;
             d.resource_stride = sizeof all;
         }},
        {"resources_missing", "resources", [](winnow_cache_desc& d) { d.resource_count = 1; }},
        {"resource_stride_0", "resource_stride",
         [](winnow_cache_desc& d) {
             give(d, {{"profile", nans, sizeof nans}});
             d.resource_stride = 0;
         }},
        {"resource_longer_than_the_stride", "resource_stride",
         [](winnow_cache_desc& d) {
             give(d, {{"profile", nans, sizeof nans}, {"profile", nans, sizeof nans}});
             d.resource_stride -= 8;
         }},
        {"query_heads_beside_layer_shapes", "q_num_heads",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.q_num_heads = 4;
         }},
        {"kv_heads_beside_layer_shapes", "kv_num_heads",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.kv_num_heads = 2;
         }},
        {"head_size_beside_layer_shapes", "head_size",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.head_size = 32;
         }},
        {"v_head_size_beside_layer_shapes", "v_head_size",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.v_head_size = 32;
         }},
        {"layer_shape_stride_alone", "layer_shape_stride", [](winnow_cache_desc& d) { d.layer_shape_stride = 40; }},
        {"layer_shape_stride_0", "layer_shape_stride",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.layer_shape_stride = 0;
         }},
        {"layer_shape_longer_than_the_stride", "layer_shape_stride",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             d.layer_shape_stride -= 8;
         }},
        {"layer_shape_of_no_size", "struct_size", [](winnow_cache_desc& d) { give_shapes(d)[1].struct_size = 0; }},
        {"layer_shape_reserved", "reserved", [](winnow_cache_desc& d) { give_shapes(d)[1].reserved = 1; }},
        {"layer_shape_without_kv_heads", "kv_num_heads",
         [](winnow_cache_desc& d) { give_shapes(d)[1].kv_num_heads = 0; }},
        {"layer_shape_with_query_heads_between", "q_num_heads",
         [](winnow_cache_desc& d) { give_shapes(d)[1].q_num_heads = 3; }},
        {"layer_shape_without_head_size", "head_size", [](winnow_cache_desc& d) { give_shapes(d)[0].head_size = 0; }},
        {"layer_shape_with_v_head_size_below_0", "v_head_size",
         [](winnow_cache_desc& d) { give_shapes(d)[1].v_head_size = -1; }},
        {"layer_shape_with_head_size_of_no_block", "layer 1",
         [](winnow_cache_desc& d) { give_shapes(d)[1].head_size = 24; }},
        {"network_of_alike_layers", "size",
         [](winnow_cache_desc& d) {
             give_shapes(d);
             give(d, {networks_with(.5)});
         }},
        {"no_profile", "profile", [](winnow_cache_desc& d) { d.config = "adaptive_budget:budget=64"; }},
        {"head_size_of_no_block", "head_size", [](winnow_cache_desc& d) { d.head_size = 24; }},
        {"more_than_the_memory_of_the_world", "bytes",
         [](winnow_cache_desc& d) {
             d.config = "none:k=f32,v=f32";
             d.layers = d.head_size = d.kv_num_heads = d.q_num_heads = 1 << 16;
             d.context = 1 << 30;
         }},
    };
    return all;
}

void expect_refused(const BadDescription& bad) {
    const Wrong wrong{bad.name, bad.argument};
    winnow_cache_desc desc = misused_cache(false);
    bad.damage(desc);
    winnow_cache* cache = nullptr;
    const int32_t created = subject().caches().create(subject().context(), &desc, &cache);
    expect_refusal(wrong, created, subject().message());
    EXPECT_EQ(cache, nullptr);
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    stats.bytes = 77;
    const int32_t estimated = subject().caches().estimate(subject().context(), &desc, 1, &stats);
    expect_refusal(wrong, estimated, subject().message());
    EXPECT_EQ(stats.bytes, 77u);
}

void expect_bad_estimates_refused() {
    const winnow_cache_desc desc = misused_cache(false);
    for (const int64_t tokens : {int64_t{-1}, misused_context + 1}) {
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        stats.bytes = 77;
        EXPECT_EQ(subject().caches().estimate(subject().context(), &desc, tokens, &stats),
                  WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(names_argument(subject().message(), "tokens")) << subject().message();
        EXPECT_EQ(stats.bytes, 77u);
    }
}

// More than any machine has: refused for that, and the cache is as it was.
void expect_too_much_memory_refused() {
    winnow_cache_desc desc = misused_cache(false);
    desc.config = "none:k=f32,v=f32";
    desc.layers = 1;
    desc.q_num_heads = desc.kv_num_heads = 64;
    desc.head_size = 1024;
    desc.context = 1 << 30;
    winnow_cache* cache = nullptr;
    ASSERT_EQ(subject().caches().create(subject().context(), &desc, &cache), WINNOW_OK) << subject().message();
    winnow_cache_stats before{}, after{};
    before.struct_size = after.struct_size = sizeof before;
    EXPECT_EQ(subject().caches().stats(cache, -1, &before), WINNOW_OK);
    EXPECT_EQ(subject().caches().reserve(cache, 1, desc.context), WINNOW_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(subject().message(), "");
    EXPECT_EQ(subject().caches().stats(cache, -1, &after), WINNOW_OK);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
    EXPECT_EQ(subject().caches().reserve(cache, 1, 8), WINNOW_OK) << subject().message();
    EXPECT_EQ(subject().caches().destroy(cache), WINNOW_OK);
}

// ---- Files ---------------------------------------------------------------------------------------------------------

int32_t WINNOW_CALL write_nothing(void*, const void*, uint64_t) { return 0; }
int32_t WINNOW_CALL read_zeros(void*, void* bytes, uint64_t size) {
    std::memset(bytes, 0, size);
    return 0;
}

// Descriptions of saved caches: everything that cannot be meant.
void expect_bad_states_refused() {
    struct BadState {
        const char* argument;
        bool of_save, of_load;
        std::function<void(winnow_cache_state_desc&)> spoil; // a description without a path and callbacks
        int32_t status = WINNOW_ERROR_INVALID_ARGUMENT;
    };
    const auto is_path = [](winnow_cache_state_desc& desc) { desc.path = "/nowhere/cache"; };
    const std::vector<BadState> all = {
        {"path", true, true, [](auto&) {}},
        {"path", true, true, [](auto& desc) { desc.path = ""; }},
        {"write", true, false, [](auto&) {}},
        {"write", true, false, [=](auto& desc) { is_path(desc), desc.write = write_nothing; }},
        {"read", true, false, [](auto& desc) { desc.write = write_nothing, desc.read = read_zeros; }},
        {"read", true, false, [=](auto& desc) { is_path(desc), desc.read = read_zeros; }},
        {"size", true, false, [](auto& desc) { desc.write = write_nothing, desc.size = 1; }},
        {"read", false, true, [](auto&) {}},
        {"read", false, true, [=](auto& desc) { is_path(desc), desc.read = read_zeros; }},
        {"write", false, true, [](auto& desc) { desc.write = write_nothing, desc.read = read_zeros; }},
        {"size", true, true, [=](auto& desc) { is_path(desc), desc.size = 1; }},
        {"size", false, true, [](auto& desc) { desc.read = read_zeros, desc.size = UINT64_MAX; }},
        {"sequence", true, true, [=](auto& desc) { is_path(desc), desc.sequence = 2; }},
        {"sequence", true, true, [=](auto& desc) { is_path(desc), desc.sequence = -2; }},
        {"flags", true, true, [=](auto& desc) { is_path(desc), desc.flags = 1; }, WINNOW_ERROR_UNSUPPORTED},
        {"stream", false, true, [](auto& desc) { desc.read = read_zeros, desc.size = 0; }},
        {"stream", false, true, [](auto& desc) { desc.read = read_zeros, desc.size = 100; }},
    };
    const winnow_cache_api& caches = subject().caches();
    for (const BadState& each : all)
        for (const bool is_save : {true, false}) {
            if (!(is_save ? each.of_save : each.of_load)) continue;
            expect_refused(CacheFault{
                {is_save ? "cache_save" : "cache_load", each.argument, each.status}, false, [&](winnow_cache* cache) {
                    winnow_cache_state_desc desc{};
                    desc.struct_size = sizeof desc;
                    desc.sequence = all_sequences;
                    each.spoil(desc);
                    return is_save ? caches.save(cache, &desc) : caches.load(cache, &desc);
                }});
        }
    for (const int64_t sequence : {-2, 2})
        expect_refused(CacheFault{{"cache_saved_size", "sequence"}, false, [&](winnow_cache* cache) {
                                      uint64_t size = 77;
                                      const int32_t status = caches.saved_size(cache, sequence, &size);
                                      EXPECT_EQ(size, 77u);
                                      return status;
                                  }});
}

// What is no file of a cache, and where there is none. That damaged ones are refused is another test's business.
void expect_bad_paths_refused() {
    const TemporaryFolder folder;
    const std::string nowhere = folder.file("none/cache"), text = folder.file("text");
    std::ofstream(text) << "This is not a cache.\n";
    const auto expect = [&](const char* function, auto call, const std::string& path) {
        expect_refused(CacheFault{{function, "cache"}, false, [&](winnow_cache* cache) {
                                      const int32_t status = call(subject().caches(), cache, path, all_sequences);
                                      EXPECT_NE(status, WINNOW_OK) << function;
                                      EXPECT_NE(subject().message().find(path), std::string::npos)
                                          << subject().message();
                                      return WINNOW_ERROR_INVALID_ARGUMENT; // which of the statuses is not documented
                                  }});
    };
    expect("cache_save", save_state, nowhere);
    expect("cache_load", load_state, nowhere);
    expect("cache_load", load_state, text);
    EXPECT_FALSE(std::filesystem::exists(nowhere));
}

} // namespace

void register_cache_bad_configs() {
    register_cache_test("bad_input", "paths", __FILE__, __LINE__, expect_bad_paths_refused);
    register_cache_test("bad_input", "states", __FILE__, __LINE__, expect_bad_states_refused);
    register_cache_test("bad_input", "too_much_memory", __FILE__, __LINE__, expect_too_much_memory_refused);
    register_cache_test("bad_input", "estimates", __FILE__, __LINE__, expect_bad_estimates_refused);
    for (const BadConfig& bad : bad_configs())
        register_cache_test("bad_input", std::string("config_") + bad.name, __FILE__, __LINE__,
                            [&bad] { expect_refused(bad); });
    for (const BadDescription& bad : bad_descriptions())
        register_cache_test("bad_input", std::string("create_") + bad.name, __FILE__, __LINE__,
                            [&bad] { expect_refused(bad); });
    std::vector<CacheFault> faults;
    add_changes(faults);
    for (const CacheFault& fault : faults)
        register_cache_test("bad_input", "set_config_" + fault.wrong.name, __FILE__, __LINE__,
                            [fault] { expect_refused(fault); });
}

} // namespace winnow::conformance
