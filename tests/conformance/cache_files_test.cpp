// save and load: what was saved goes on bit for bit, and what is damaged, cut short or of another cache is refused with
// nothing half-loaded; in files and by callbacks, all sequences or one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cache_cases.hpp"
#include "cache_codebooks.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "saved_state.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

std::vector<char> read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::vector<char>& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

int32_t save(CacheHost& cache, const std::string& path) { return save_state(cache.caches(), cache.get(), path); }
int32_t load(CacheHost& cache, const std::string& path) { return load_state(cache.caches(), cache.get(), path); }

// Feeds the same tokens to one cache or several, which all have to answer alike.
std::string feed(const std::vector<CacheHost*>& caches, std::mt19937_64& engine, int64_t sequence,
                 const std::vector<int64_t>& lengths) {
    const CacheSetup& setup = caches[0]->setup();
    for (const int64_t length : lengths)
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            const Step drawn = draw_step(setup, engine, layer, sequence, length, length);
            std::vector<Step> steps(caches.size(), drawn);
            for (size_t at = 0; at < caches.size(); ++at) {
                if (caches[at]->run(steps[at]) != WINNOW_OK) return caches[at]->message();
                std::string wrong;
                steps[at].out.each([&](const Index& index) {
                    if (steps[at].out.get(index) != steps[0].out.get(index))
                        wrong =
                            "out differs after " + std::to_string(length) + " tokens in layer " + std::to_string(layer);
                });
                if (!wrong.empty()) return wrong;
            }
        }
    return "";
}

std::string bytes_of(const winnow_cache_stats& s) {
    std::string text;
    for (const uint64_t each : {s.bytes, s.k_bytes, s.v_bytes, s.dense_k_bytes, s.dense_v_bytes, s.slot_map_bytes,
                                s.importance_bytes, s.state_bytes})
        text += std::to_string(each) + " ";
    return text;
}

std::string counters_of(const winnow_cache_stats& s) {
    return std::to_string(s.evictions) + " " + std::to_string(s.eviction_passes) + " " + std::to_string(s.steps);
}

CacheSetup setup_of(const NamedSetup& named, int shape) {
    CacheSetup setup = with_shape(named.setup, shape);
    setup.sequences = 2;
    return setup;
}

void run_round_trip(const CacheSetup& setup) {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache");
    std::mt19937_64 engine(options().seed);
    CacheHost first(subject(), setup), second(subject(), setup);
    ASSERT_EQ(save(first, path), WINNOW_OK) << "an empty cache: " << first.message();
    ASSERT_EQ(load(second, path), WINNOW_OK) << "an empty cache: " << second.message();
    ASSERT_EQ(feed({&first}, engine, 0, {100, 1, 1, 60, 1, 20}), "");
    ASSERT_EQ(feed({&first}, engine, 1, {7}), "");
    ASSERT_EQ(feed({&second}, engine, 1, {50}), ""); // to be replaced
    ASSERT_EQ(save(first, path), WINNOW_OK) << first.message();
    EXPECT_EQ(folder.names().size(), 1u) << "beside the file something is left";
    ASSERT_EQ(load(second, path), WINNOW_OK) << second.message();
    ASSERT_EQ(second.contents(), first.contents());
    EXPECT_EQ(bytes_of(second.stats()), bytes_of(first.stats()));
    // Only what is used counts for what comes: a second save is the same file.
    const std::string again = folder.file("again");
    ASSERT_EQ(save(second, again), WINNOW_OK) << second.message();
    EXPECT_TRUE(read(path) == read(again)) << "a loaded cache saves another file";
    const winnow_cache_stats of_first = first.stats(), of_second = second.stats();
    for (int64_t sequence : {0, 1}) {
        std::vector<int64_t> lengths(36, 1);
        lengths.push_back(25);
        ASSERT_EQ(feed({&first, &second}, engine, sequence, lengths), "");
    }
    EXPECT_EQ(second.contents(), first.contents());
    for (const auto counter :
         {&winnow_cache_stats::evictions, &winnow_cache_stats::eviction_passes, &winnow_cache_stats::steps})
        EXPECT_EQ(second.stats().*counter - of_second.*counter, first.stats().*counter - of_first.*counter)
            << "of what both did";
}

// What a cache would answer, without changing it: attention of the last token in each layer.
std::string answers_of(CacheHost& cache) {
    std::mt19937_64 engine(5);
    std::string text;
    for (int64_t layer = 0; layer < cache.setup().layers; ++layer) {
        Step step = draw_step(cache.setup(), engine, layer, 0, 0, 1);
        step.options.draft_tokens = 1;
        if (cache.run(step) != WINNOW_OK) return cache.message();
        step.out.each([&](const Index& at) { text += std::to_string(step.out.get(at)) + " "; });
    }
    return text;
}

void run_damage(const CacheSetup& setup) {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache"), damaged = folder.file("damaged");
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), cache(subject(), setup);
    ASSERT_EQ(feed({&source}, engine, 0, {90, 1, 1}), "");
    ASSERT_EQ(feed({&cache}, engine, 0, {80, 5}), "");
    ASSERT_EQ(save(source, path), WINNOW_OK) << source.message();
    const std::vector<char> good = read(path);
    ASSERT_GT(good.size(), 0u);
    const std::string before = cache.portrait() + answers_of(cache);
    const auto expect_refused = [&](const std::vector<char>& bytes, const std::string& what) {
        write(damaged, bytes);
        const int32_t status = load(cache, damaged);
        EXPECT_NE(status, WINNOW_OK) << what;
        EXPECT_NE(status, WINNOW_ERROR_INTERNAL) << what << ": " << cache.message();
        EXPECT_NE(cache.message(), "") << what;
        return status != WINNOW_OK;
    };
    // Every length at the beginning and the end, and a sample of those between.
    const size_t stride = std::max<size_t>(good.size() / 60, 1);
    for (size_t length = 0; length < good.size(); ++length) {
        if (length > 80 && length + 20 < good.size() && length % stride != 0) continue;
        if (!expect_refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)},
                            "cut to " + std::to_string(length)))
            return;
    }
    for (size_t at = 0; at < good.size(); ++at) {
        if (at > 80 && at + 20 < good.size() && at % stride != 0) continue;
        std::vector<char> bytes = good;
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
        if (!expect_refused(bytes, "byte " + std::to_string(at) + " flipped")) return;
    }
    std::vector<char> longer = good;
    longer.push_back(0);
    expect_refused(longer, "one byte longer");
    EXPECT_NE(load(cache, folder.file("absent")), WINNOW_OK);
    ASSERT_EQ(cache.portrait() + answers_of(cache), before) << "a refused file left something";
    ASSERT_EQ(load(cache, path), WINNOW_OK) << cache.message();
    EXPECT_EQ(cache.contents(), source.contents());
    ASSERT_EQ(feed({&source, &cache}, engine, 0, {1, 40, 1}), "");
}

uint64_t saved_size(CacheHost& cache, int64_t sequence = all_sequences) {
    uint64_t size = 0;
    EXPECT_EQ(cache.caches().saved_size(cache.get(), sequence, &size), WINNOW_OK) << cache.message();
    return size;
}

// Callbacks pass what a file has. Where one of them fails, so does the call, and the cache is as it was.
void run_callbacks(const CacheSetup& setup) {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache");
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), cache(subject(), setup);
    StateInMemory state;
    ASSERT_EQ(state.save(source.caches(), source.get()), WINNOW_OK) << "an empty cache: " << source.message();
    EXPECT_EQ(state.bytes.size(), saved_size(source)) << "an empty cache";
    ASSERT_EQ(feed({&source}, engine, 0, {90, 1, 1}), "");
    ASSERT_EQ(feed({&cache}, engine, 0, {80, 5}), "");
    ASSERT_EQ(save(source, path), WINNOW_OK) << source.message();
    ASSERT_EQ(state.save(source.caches(), source.get()), WINNOW_OK) << source.message();
    const std::vector<char> in_file = read(path);
    ASSERT_TRUE(state.bytes == std::string(in_file.begin(), in_file.end())) << "write is given another stream";
    EXPECT_EQ(state.bytes.size(), saved_size(source));

    const std::string good = state.bytes, before = cache.portrait() + answers_of(cache),
                      of_source = source.portrait() + answers_of(source);
    const auto expect_failed = [&](CacheHost& host, int32_t status, int32_t expected, const std::string& what) {
        ASSERT_EQ(status, expected) << what << ": " << host.message();
        ASSERT_NE(host.message(), "") << what;
    };
    const auto fail_each = [&](CacheHost& host, uint64_t calls, auto call, const std::string& name) {
        ASSERT_GT(calls, 10u) << name;
        for (uint64_t at = 1; at <= calls; ++at) {
            if (at > 30 && at + 10 < calls && at % 17 != 0) continue;
            state.bytes = good;
            state.failing_at = at;
            ASSERT_NO_FATAL_FAILURE(expect_failed(host, call(), WINNOW_ERROR_IO, name + std::to_string(at)));
            ASSERT_EQ(state.calls, at) << name << " is called after it failed";
            ASSERT_NE(host.message().find(name), std::string::npos) << host.message();
        }
        state.failing_at = 0;
    };
    ASSERT_NO_FATAL_FAILURE(fail_each(
        source, state.calls, [&] { return state.save(source.caches(), source.get()); }, "write"));
    EXPECT_EQ(source.portrait() + answers_of(source), of_source);
    const auto load_bytes = [&](const std::string& bytes) {
        state.bytes = bytes;
        return state.load(cache.caches(), cache.get());
    };
    CacheHost other(subject(), setup);
    state.bytes = good;
    ASSERT_EQ(state.load(other.caches(), other.get()), WINNOW_OK) << other.message();
    ASSERT_EQ(other.contents(), source.contents());
    ASSERT_NO_FATAL_FAILURE(fail_each(
        cache, state.calls, [&] { return state.load(cache.caches(), cache.get()); }, "read"));
    const size_t stride = std::max<size_t>(good.size() / 20, 1);
    for (size_t at = 0; at < good.size(); at += stride) {
        const std::string what = "byte " + std::to_string(at);
        expect_failed(cache, load_bytes(good.substr(0, at)), WINNOW_ERROR_INVALID_ARGUMENT, "cut at " + what);
        std::string flipped = good;
        flipped[at] = static_cast<char>(flipped[at] ^ 4);
        expect_failed(cache, load_bytes(flipped), WINNOW_ERROR_INVALID_ARGUMENT, what + " flipped");
    }
    expect_failed(cache, load_bytes(good + "x"), WINNOW_ERROR_INVALID_ARGUMENT, "one byte longer");
    ASSERT_EQ(cache.portrait() + answers_of(cache), before) << "a refused stream left something";
    ASSERT_EQ(load_bytes(good), WINNOW_OK) << cache.message();
    EXPECT_EQ(cache.contents(), source.contents());
    ASSERT_EQ(feed({&source, &cache, &other}, engine, 0, {1, 40, 1}), "");
}

// What can be seen of a sequence.
std::string portrait_of(CacheHost& cache, int64_t sequence) {
    std::ostringstream text;
    text.precision(9);
    for (int64_t layer = 0; layer < cache.setup().layers; ++layer)
        for (int64_t head = 0; head < cache.setup().shape(layer).kv_heads; ++head) {
            for (const int32_t each : cache.positions(sequence, layer, head)) text << each << " ";
            for (const int32_t each : cache.segments(sequence, layer, head)) text << each << " ";
            if (!cache.setup().keeps_importance()) continue;
            for (const float each : cache.importance(sequence, layer, head)) text << each << " ";
        }
    return text.str();
}

// A sequence goes into another one of a cache with more of them, and goes on there as where it was; the others stay.
void run_one_sequence(CacheSetup setup) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup);
    setup.sequences = 3;
    CacheHost target(subject(), setup);
    setup.sequences = 1;
    CacheHost single(subject(), setup);
    ASSERT_EQ(feed({&source}, engine, 0, {20}), "");
    ASSERT_EQ(feed({&source}, engine, 1, {90, 1, 1}), "");
    ASSERT_EQ(feed({&target}, engine, 0, {30, 1}), "");
    ASSERT_EQ(feed({&target}, engine, 2, {70}), "");
    const std::string of_source = counters_of(source.stats());
    StateInMemory state, whole;
    ASSERT_EQ(state.save(source.caches(), source.get(), 1), WINNOW_OK) << source.message();
    EXPECT_EQ(state.bytes.size(), saved_size(source, 1));
    ASSERT_EQ(whole.save(source.caches(), source.get()), WINNOW_OK) << source.message();
    const std::string before = target.portrait(), first = portrait_of(target, 0);
    for (const int64_t sequence : {all_sequences, int64_t{0}}) { // of 3 and of 1, from 2
        EXPECT_EQ(whole.load(target.caches(), target.get(), sequence), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(target.message().find("sequences"), std::string::npos) << target.message();
    }
    EXPECT_EQ(state.load(target.caches(), target.get()), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(state.load(target.caches(), target.get(), 3), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(target.portrait(), before);
    const std::string counted = counters_of(target.stats()), of_single = counters_of(single.stats());
    ASSERT_EQ(state.load(target.caches(), target.get(), 2), WINNOW_OK) << target.message();
    ASSERT_EQ(state.load(single.caches(), single.get()), WINNOW_OK) << single.message();
    EXPECT_EQ(portrait_of(target, 2), portrait_of(source, 1));
    EXPECT_EQ(portrait_of(single, 0), portrait_of(source, 1));
    EXPECT_EQ(portrait_of(target, 0), first);
    EXPECT_EQ(counters_of(target.stats()), counted) << "what another cache did is counted";
    EXPECT_EQ(counters_of(single.stats()), of_single) << "what another cache did is counted";
    EXPECT_EQ(target.stats_of(2).evictions, 0u) << "a sequence counts from when it was loaded";
    ASSERT_EQ(state.load(source.caches(), source.get(), 1), WINNOW_OK) << source.message();
    EXPECT_EQ(counters_of(source.stats()), of_source) << "what is loaded again is counted twice";
    const uint64_t of_source_before = source.stats_of(1).evictions;
    StateInMemory again;
    ASSERT_EQ(again.save(target.caches(), target.get(), 2), WINNOW_OK) << target.message();
    EXPECT_TRUE(again.bytes == state.bytes) << "a loaded sequence saves another stream";
    for (int count = 0; count < 40; ++count)
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            const Step drawn = draw_step(setup, engine, layer, 0, 1, 1);
            Step here = drawn, there = drawn;
            here.sequence = 1;
            there.sequence = 2;
            ASSERT_EQ(source.run(here), WINNOW_OK) << source.message();
            ASSERT_EQ(target.run(there), WINNOW_OK) << target.message();
            here.out.each([&](const Index& at) { ASSERT_EQ(here.out.get(at), there.out.get(at)) << count; });
        }
    EXPECT_EQ(target.stats_of(2).evictions, source.stats_of(1).evictions - of_source_before) << "of what both did";
    EXPECT_EQ(portrait_of(target, 2), portrait_of(source, 1));
    EXPECT_EQ(portrait_of(target, 0), first);
}

// A cache of another shape or configuration takes nothing of it.
void run_of_another_cache() {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache");
    std::mt19937_64 engine(options().seed);
    CacheSetup setup{.policy = Policy::h2o, .sequences = 2};
    CacheHost source(subject(), setup);
    ASSERT_EQ(feed({&source}, engine, 0, {90, 1, 1}), "");
    ASSERT_EQ(save(source, path), WINNOW_OK) << source.message();
    const auto expect_refused = [&](const char* what, const std::function<void(CacheSetup&)>& change) {
        CacheSetup other = setup;
        change(other);
        CacheHost cache(subject(), other);
        ASSERT_EQ(feed({&cache}, engine, 0, {20}), "");
        const std::string before = cache.portrait();
        EXPECT_EQ(load(cache, path), WINNOW_ERROR_INVALID_ARGUMENT) << what << ": " << cache.message();
        EXPECT_EQ(cache.portrait(), before) << what;
    };
    expect_refused("layers", [](CacheSetup& s) { s.layers = 3; });
    expect_refused("kv_heads", [](CacheSetup& s) { s.kv_heads = 1; });
    expect_refused("head_size", [](CacheSetup& s) { s.head_size = 128; });
    expect_refused("unlike layers", [](CacheSetup& s) { s.shapes = {{2, 2, 64, 64}, {1, 4, 64, 64}}; });
    expect_refused("context", [](CacheSetup& s) { s.context = 2048; });
    expect_refused("budget", [](CacheSetup& s) { s.budget = 120; });
    expect_refused("policy", [](CacheSetup& s) { s.policy = Policy::scissorhands; });
    expect_refused("format", [](CacheSetup& s) { s.k_type = WINNOW_TYPE_Q8_0; });
    expect_refused("residual", [](CacheSetup& s) { s.residual = 32; });
    expect_refused("fewer sequences", [](CacheSetup& s) { s.sequences = 1; });
}

// A cache that was created with other numbers of the model takes nothing of it, and learns which.
void run_of_another_resource() {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache");
    const CacheSetup setup{.policy = Policy::h2o};
    const std::string config = setup.config();
    const auto codebooks = random_codebooks(setup);
    const std::vector<double> profile(static_cast<size_t>(3 * setup.layers), .5), &network = networks_of(setup);
    const auto doubles = [](const char* name, const std::vector<double>& numbers) {
        return resource_of(name, numbers.data(), numbers.size() * sizeof(double));
    };
    const SetupDesc made(setup, config);
    const auto desc_with = [&](const std::vector<winnow_resource>& resources) {
        winnow_cache_desc desc = *made.get();
        give_resources(desc, resources);
        return desc;
    };
    const std::vector<winnow_resource> all = {doubles("profile", profile), doubles("network", network),
                                              resource_of("codebooks", codebooks->data(), codebooks->size())};
    Session& session = subject();
    const winnow_cache_api& caches = session.caches();
    const auto with_cache = [&](const winnow_cache_desc& of, auto call) {
        winnow_cache* cache = nullptr;
        ASSERT_EQ(caches.create(session.context(), &of, &cache), WINNOW_OK) << session.message();
        call(cache);
        ASSERT_EQ(caches.destroy(cache), WINNOW_OK) << session.message();
    };
    ASSERT_NO_FATAL_FAILURE(with_cache(desc_with(all), [&](winnow_cache* cache) {
        ASSERT_EQ(save_state(caches, cache, path), WINNOW_OK) << session.message();
        EXPECT_EQ(load_state(caches, cache, path), WINNOW_OK) << session.message();
    }));
    const auto expect_refused = [&](const std::string& name, const std::vector<winnow_resource>& others) {
        with_cache(desc_with(others), [&](winnow_cache* cache) {
            EXPECT_EQ(load_state(caches, cache, path), WINNOW_ERROR_INVALID_ARGUMENT) << name;
            EXPECT_NE(session.message().find("resource \"" + name + "\""), std::string::npos) << session.message();
        });
    };
    std::vector<double> other_profile = profile, other_network = network;
    other_profile.back() = .25;
    other_network.front() += 1;
    expect_refused("profile", {doubles("profile", other_profile), all[1], all[2]});
    expect_refused("profile", {all[1], all[2]});
    expect_refused("network", {all[0], doubles("network", other_network), all[2]});
    expect_refused("codebooks", {all[0], all[1]});
}

// save takes no link's place, whatever it points to; load reads what it points to.
void run_links() {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache"), link = folder.file("link"), dangling = folder.file("dangling");
    std::filesystem::create_symlink(path, link);
    std::filesystem::create_symlink(folder.file("absent"), dangling);
    CacheHost cache(subject(), {});
    ASSERT_EQ(save(cache, path), WINNOW_OK) << cache.message();
    const std::vector<char> before = read(path);
    for (const std::string& each : {link, dangling}) {
        EXPECT_EQ(save(cache, each), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(cache.message().find(each + " is a symbolic link, expected a file's path"), std::string::npos)
            << cache.message();
        EXPECT_TRUE(std::filesystem::is_symlink(each));
    }
    EXPECT_TRUE(read(path) == before);
    EXPECT_EQ(folder.names().size(), 3u) << "a file was left";
    EXPECT_EQ(load(cache, link), WINNOW_OK) << cache.message();
    EXPECT_EQ(load(cache, dangling), WINNOW_ERROR_NOT_FOUND);
}

// The oracle goes on with a loaded cache: also after edits, in the middle of the residual window.
void run_after_edits(const CacheSetup& setup) {
    const TemporaryFolder folder;
    const std::string path = folder.file("cache");
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup), loaded(subject(), setup);
    CacheOracle oracle(cache);
    const auto step = [&](int64_t tokens) {
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            Step drawn = draw_step(setup, engine, layer, 0, tokens, tokens);
            ASSERT_EQ(oracle.step(drawn), "") << "layer " << layer;
        }
    };
    for (int at = 0; at < 14; ++at) ASSERT_NO_FATAL_FAILURE(step(std::min<int64_t>(11, setup.chunk())));
    ASSERT_EQ(oracle.truncate(0, oracle.length(0, 0) - 5), "");
    ASSERT_EQ(oracle.remove(0, 30, 50), "");
    ASSERT_EQ(oracle.anchor(0, {20, 60}), "");
    ASSERT_EQ(save(cache, path), WINNOW_OK) << cache.message();
    ASSERT_EQ(load(loaded, path), WINNOW_OK) << loaded.message();
    ASSERT_EQ(loaded.contents(), cache.contents());
    std::vector<int64_t> lengths(70, 1);
    ASSERT_EQ(feed({&cache, &loaded}, engine, 0, lengths), "");
    ASSERT_EQ(loaded.contents(), cache.contents());
    // And back into the cache whose oracle stopped there.
    ASSERT_EQ(load(cache, path), WINNOW_OK) << cache.message();
    oracle.forget_counts();
    for (int at = 0; at < 70; ++at) ASSERT_NO_FATAL_FAILURE(step(1));
}

} // namespace

void register_cache_files() {
    int at = 0;
    for (const NamedSetup& each : all_setups()) {
        const CacheSetup setup = setup_of(each, at++ % cache_shapes);
        register_cache_test("file", "round_trip_" + each.name, __FILE__, __LINE__, [=] { run_round_trip(setup); });
        if (at % 4 == 0)
            register_cache_test("file", "damage_" + each.name, __FILE__, __LINE__, [=] { run_damage(setup); });
        if (at % 4 == 1)
            register_cache_test("file", "callbacks_" + each.name, __FILE__, __LINE__, [=] { run_callbacks(setup); });
        if (at % 4 == 3)
            register_cache_test("file", "sequence_" + each.name, __FILE__, __LINE__, [=] { run_one_sequence(setup); });
        if (at % 3 == 0)
            register_cache_test("file", "edits_" + each.name, __FILE__, __LINE__, [=] { run_after_edits(setup); });
    }
    register_cache_test("file", "links", __FILE__, __LINE__, [] { run_links(); });
    register_cache_test("file", "of_another_cache", __FILE__, __LINE__, [] { run_of_another_cache(); });
    register_cache_test("file", "of_another_resource", __FILE__, __LINE__, [] { run_of_another_resource(); });
}

} // namespace winnow::conformance
