// Saved caches come back whole, or not at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include <xxhash.h>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {2, 1, 2, 2, 120, 0, 2};
constexpr const char* config = "winnow:k=f32,v=f32,budget=40,residual=12,center=on,window_from=1/1";

class cache_snapshot : public testing::Test {
protected:
    cache_snapshot() { cache_.reset(new Cache(device_, request())); }

    static CacheRequest request() { return {config, shape, 2, 0, {}}; }

    void append(Cache& cache, int64_t sequence, int64_t tokens) {
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
            HostRows k(1, tokens, 2), q(2, tokens, 2), out = q;
            for (float& value : k.values) value = static_cast<float>(++count_ % 17) / 4;
            for (float& value : q.values) value = static_cast<float>(++count_ % 13) / 4;
            CacheStep args;
            args.layer = layer;
            args.sequence = sequence;
            args.scale = 1;
            args.k = args.v = k.tensor();
            args.q = q.tensor();
            args.out = out.tensor();
            cache.step({&args, 1});
            output_ = out.values;
        }
    }

    std::string path() const { return folder_.file("cache"); }

    std::string bytes() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

    static std::string refusal(Cache& cache, const std::string& path, int32_t status = WINNOW_ERROR_INVALID_ARGUMENT) {
        try {
            cache.load({.path = path});
            return {};
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), status);
            return error.what();
        }
    }

    const TemporaryFolder folder_;
    FakeDevice device_;
    std::unique_ptr<Cache> cache_;
    int64_t count_ = 0;
    std::vector<float> output_;
};

TEST_F(cache_snapshot, goes_on_as_if_nothing_had_been) {
    append(*cache_, 0, 90);
    append(*cache_, 1, 7);
    cache_->anchor(0, std::vector<int64_t>{50, 110});
    cache_->remove(0, 20, 60);
    cache_->save({.path = path()});
    Cache other(device_, request());
    append(other, 0, 3); // is replaced
    winnow_cache_stats a{}, b{}, a_before{}, b_before{};
    cache_->stats(a_before);
    other.stats(b_before);
    other.load({.path = path()});
    const int64_t count = count_;
    std::vector<std::vector<float>> outputs;
    for (Cache* each : {cache_.get(), &other}) {
        count_ = count;
        for (const auto& [sequence, tokens] : {std::pair<int64_t, int64_t>{0, 1}, {0, 29}, {1, 20}}) {
            append(*each, sequence, tokens);
            outputs.push_back(output_);
        }
        if (each == cache_.get()) continue;
        for (size_t at = 0; at < 3; ++at) EXPECT_EQ(outputs[at], outputs[at + 3]) << "append " << at;
        for (int64_t sequence = 0; sequence < 2; ++sequence)
            for (int64_t layer = 0; layer < 2; ++layer) {
                EXPECT_EQ(positions_of(*cache_, sequence, layer, 0), positions_of(other, sequence, layer, 0));
                EXPECT_EQ(importance_of(*cache_, sequence, layer, 0), importance_of(other, sequence, layer, 0));
            }
    }
    cache_->stats(a);
    other.stats(b);
    b.peak_bytes = a.peak_bytes;
    for (const auto counter :
         {&winnow_cache_stats::evictions, &winnow_cache_stats::eviction_passes, &winnow_cache_stats::steps}) {
        EXPECT_EQ(a.*counter - a_before.*counter, b.*counter - b_before.*counter) << "of what both did";
        b.*counter = a.*counter;
    }
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
    const auto files = std::filesystem::directory_iterator(folder_.path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 1); // nothing is left beside it
}

TEST_F(cache_snapshot, any_damaged_byte_is_noticed_and_nothing_is_replaced) {
    append(*cache_, 0, 30);
    cache_->save({.path = path()});
    const std::string whole = bytes();
    append(*cache_, 0, 5);
    winnow_cache_stats before{}, after{};
    cache_->stats(before);
    const uint64_t in_use = device_.in_use;
    for (size_t i = 0; i < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
        write(damaged);
        ASSERT_NE(refusal(*cache_, path()), "") << "byte " << i << " of " << whole.size();
    }
    for (size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 97) {
        write(whole.substr(0, size));
        ASSERT_NE(refusal(*cache_, path()), "") << size << " bytes";
    }
    write(whole + "x");
    EXPECT_NE(refusal(*cache_, path()), "");
    write("not a cache at all, but long enough to be taken for one");
    EXPECT_NE(refusal(*cache_, path()).find("is not a saved cache"), std::string::npos);
    EXPECT_NE(refusal(*cache_, path() + ".none", WINNOW_ERROR_NOT_FOUND).find("cannot open"), std::string::npos);
    EXPECT_NE(refusal(*cache_, folder_.path()), "");
    cache_->stats(after);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
    EXPECT_EQ(device_.in_use, in_use);
    write(whole);
    cache_->load({.path = path()});
    EXPECT_EQ(positions_of(*cache_, 0, 0, 0).back(), 29);
}

// Bytes that no cache wrote, under a checksum that is right: refused, or harmless.
TEST_F(cache_snapshot, a_right_checksum_is_not_enough) {
    append(*cache_, 0, 60);
    cache_->anchor(0, std::vector<int64_t>{50});
    cache_->save({.path = path()});
    const std::string whole = bytes();
    const size_t end = whole.size() - sizeof(XXH128_canonical_t);
    int taken = 0;
    for (size_t i = 0; i < end; ++i) {
        std::string changed = whole.substr(0, end);
        changed[i] = static_cast<char>(changed[i] ^ (i % 2 == 0 ? 1 : 64));
        XXH128_canonical_t checksum;
        XXH128_canonicalFromHash(&checksum, XXH3_128bits(changed.data(), changed.size()));
        write(changed.append(reinterpret_cast<const char*>(&checksum), sizeof checksum));
        Cache other(device_, request());
        if (!refusal(other, path()).empty()) continue;
        ++taken;
        for (int round = 0; round < 2; ++round) {
            for (int64_t layer = 0; layer < shape.layers; ++layer) {
                const std::vector<int32_t> resident = positions_of(other, 0, layer, 0);
                ASSERT_LE(resident.size(), 40u) << "byte " << i;
                ASSERT_EQ(std::adjacent_find(resident.begin(), resident.end(), std::greater_equal<>()), resident.end())
                    << i;
            }
            if (round == 0) append(other, 0, 20);
        }
    }
    EXPECT_GT(taken, 100); // rows may be any
}

// Without a residual window the tokens to come have slots that are listed, and so have those that are truncated.
TEST_F(cache_snapshot, a_forged_list_of_free_slots_takes_no_token_its_slot) {
    const CacheRequest request{
        "window:k=f32,v=f32,budget=14,sink=2,residual=0,cadence=4", AlikeLayers{1, 2, 2, 2, 120}, 1, 0, {}};
    const auto append_one = [](Cache& cache) {
        HostRows rows(2, 1, 2);
        CacheStep args;
        args.k = args.v = rows.tensor();
        cache.step({&args, 1});
    };
    Cache cache(device_, request);
    for (int token = 0; token < 20; ++token) append_one(cache);
    cache.save({.path = path()});
    const std::string whole = bytes();
    const size_t end = whole.size() - sizeof(XXH128_canonical_t);
    const auto refused = [](Cache& other, const std::string& file) {
        try {
            other.load({.path = file});
            return false;
        } catch (const Error&) { // of a damaged file
            return true;
        }
    };
    int taken = 0;
    for (size_t at = 0; at + 4 <= end; at += 4)
        for (const int32_t value : {0, 1, 5, 9, 63, 1000000}) {
            std::string changed = whole.substr(0, end);
            std::memcpy(&changed[at], &value, sizeof value);
            XXH128_canonical_t checksum;
            XXH128_canonicalFromHash(&checksum, XXH3_128bits(changed.data(), changed.size()));
            write(changed.append(reinterpret_cast<const char*>(&checksum), sizeof checksum));
            Cache other(device_, request);
            if (refused(other, path())) continue;
            ++taken;
            const std::vector<int32_t> before[] = {positions_of(other, 0, 0, 0), positions_of(other, 0, 0, 1)};
            const int64_t tokens = before[0].empty() ? 0 : before[0].back();
            if (before[1].empty() || before[1].back() != tokens) continue;
            winnow_cache_stats loaded{}, now{};
            other.stats(loaded);
            other.truncate(0, tokens);
            append_one(other);
            other.stats(now);
            if (now.eviction_passes != loaded.eviction_passes) continue;
            for (const int64_t head : {0, 1})
                EXPECT_EQ(positions_of(other, 0, 0, head), before[head]) << at << ' ' << value;
        }
    EXPECT_GT(taken, 100);
}

TEST_F(cache_snapshot, another_cache_refuses_it) {
    append(*cache_, 0, 30);
    cache_->save({.path = path()});
    const auto refused = [&](CacheRequest changed) {
        Cache other(device_, changed);
        return refusal(other, path());
    };
    CacheRequest changed = request();
    changed.config = "winnow:k=f32,v=f32,budget=41,residual=12,center=on,window_from=1/1";
    EXPECT_NE(refused(changed).find("was saved with"), std::string::npos);
    changed = request();
    changed.max_sequences = 3;
    EXPECT_NE(refused(changed).find("has 2 sequences, expected 3"), std::string::npos);
    changed = request();
    changed.shape.context = 121;
    EXPECT_NE(refused(changed).find("with other layers"), std::string::npos);
    changed = request();
    changed.cells = 64;
    EXPECT_NE(refused(changed), "");
}

// Also where the configuration needs none of them: cache_set_config may take one that does.
TEST_F(cache_snapshot, a_cache_with_other_resources_refuses_it) {
    CacheRequest made = request();
    made.profile = {{1, 2, 3}, {4, 5, 6}};
    made.network = {1, 2, 3};
    const auto with_codebooks = [](CacheRequest all, std::vector<uint16_t> halves) {
        all.codebooks = std::make_shared<std::vector<uint16_t>>(std::move(halves)); // which the cache empties
        return all;
    };
    Cache source(device_, with_codebooks(made, {7, 8}));
    append(source, 0, 30);
    source.save({.path = path()});
    const auto refused = [&](const CacheRequest& changed) {
        Cache other(device_, changed);
        append(other, 0, 5);
        std::string why = refusal(other, path());
        EXPECT_EQ(positions_of(other, 0, 0, 0).back(), why.empty() ? 29 : 4);
        return why;
    };
    const auto hash_of = [](const auto& numbers) {
        char text[17];
        const XXH64_hash_t hash = XXH3_64bits(numbers.data(), numbers.size() * sizeof numbers[0]);
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
        return std::string(text);
    };
    EXPECT_EQ(refused(with_codebooks(made, {7, 8})), "");
    CacheRequest changed = made;
    changed.profile[1].variance = 7;
    EXPECT_NE(refused(with_codebooks(changed, {7, 8}))
                  .find("was saved by a cache whose resource \"profile\" has the hash " + hash_of(made.profile) +
                        ", and that of this cache has " + hash_of(changed.profile) + ": create the cache with"),
              std::string::npos);
    changed = made;
    changed.network.clear();
    EXPECT_NE(
        refused(with_codebooks(changed, {7, 8}))
            .find("resource \"network\" has the hash " + hash_of(made.network) + ", and that of this cache has none"),
        std::string::npos);
    EXPECT_NE(refused(with_codebooks(made, {7, 9})).find("resource \"codebooks\" has the hash"), std::string::npos);
    EXPECT_NE(refused(made).find("resource \"codebooks\" has the hash"), std::string::npos);
}

TEST_F(cache_snapshot, a_stream_is_the_file_without_one) {
    append(*cache_, 0, 60);
    append(*cache_, 1, 7);
    cache_->save({.path = path()});
    std::string stream;
    int64_t calls_until_failure = -1;
    const auto write = [&](const void* from, uint64_t size) {
        if (calls_until_failure-- == 0) return 77;
        stream.append(static_cast<const char*>(from), size);
        return 0;
    };
    cache_->save({.write = write});
    EXPECT_TRUE(stream == bytes());
    EXPECT_EQ(cache_->saved_size(-1), stream.size());
    size_t at = 0;
    const auto read = [&](void* to, uint64_t size) {
        if (calls_until_failure-- == 0) return -3;
        std::memcpy(to, &stream[at], size);
        at += size;
        return 0;
    };
    const std::string whole = stream;
    winnow_cache_stats before{}, after{};
    Cache other(device_, request());
    append(other, 0, 3);
    const auto reason_of = [&](auto call, int64_t failing) {
        stream = whole;
        at = 0;
        calls_until_failure = failing;
        try {
            call();
            return std::string();
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_IO);
            return std::string(error.what());
        }
    };
    const auto load = [&] { other.load({.read = read, .size = whole.size()}); };
    EXPECT_EQ(reason_of([&] { cache_->save({.write = write}); }, 1),
              "the host's function write returned 77 for 8 bytes at byte 16");
    other.stats(before);
    const uint64_t in_use = device_.in_use;
    EXPECT_EQ(reason_of(load, 1), "the host's function read returned -3 for 8 bytes at byte 16");
    int64_t failures = 0;
    while (reason_of(load, failures) != "") {
        ++failures;
        other.stats(after);
        EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
        EXPECT_EQ(device_.in_use, in_use);
    }
    EXPECT_GT(failures, 20);
    EXPECT_EQ(positions_of(other, 0, 0, 0), positions_of(*cache_, 0, 0, 0));
}

// What a cache did stays counted, once, whatever is loaded and as what.
TEST_F(cache_snapshot, counters_are_of_the_cache_and_not_of_what_it_loads) {
    CacheRequest alone = request();
    alone.max_sequences = 1;
    Cache cache(device_, alone);
    append(cache, 0, 90);
    winnow_cache_stats before{}, after{}, of_sequence{};
    cache.stats(before);
    ASSERT_GT(before.evictions, 0u);
    for (const int64_t saved : {0, -1})
        for (const int64_t loaded : {0, -1}) {
            cache.save({.sequence = saved, .path = path()});
            cache.load({.sequence = loaded, .path = path()});
            cache.stats(after);
            after.peak_bytes = before.peak_bytes;
            EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0) << saved << " as " << loaded;
            cache.sequence_stats(0, of_sequence);
            EXPECT_EQ(of_sequence.evictions, 0u) << "it counts from when it was loaded, as a copy";
        }
    append(cache, 0, 29);
    cache.stats(after);
    cache.sequence_stats(0, of_sequence);
    EXPECT_GT(of_sequence.evictions, 0u);
    EXPECT_EQ(after.evictions, before.evictions + of_sequence.evictions);
}

// How long a stream is the host says, and a list in it may be as long as that.
TEST_F(cache_snapshot, a_list_that_is_longer_than_there_is_memory_is_refused) {
    append(*cache_, 0, 30);
    cache_->save({.path = path()});
    std::string stream = bytes();
    for (const uint64_t count : {UINT64_MAX - 100, UINT64_MAX / 2 - 100, uint64_t{1} << 40}) {
        std::memcpy(&stream[16], &count, sizeof count);
        size_t at = 0;
        const auto read = [&](void* to, uint64_t size) {
            if (size > stream.size() - at) return 1;
            std::memcpy(to, &stream[at], size);
            at += size;
            return 0;
        };
        try {
            cache_->load({.read = read, .size = UINT64_MAX});
            FAIL() << count;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
            EXPECT_STREQ(error.what(), "the stream is damaged: a list is too long");
        }
    }
}

// Its memory takes the place of that of the sequence that was there.
TEST_F(cache_snapshot, a_sequence_takes_the_place_of_another) {
    append(*cache_, 0, 90);
    append(*cache_, 1, 20);
    cache_->anchor(0, std::vector<int64_t>{85, 110});
    cache_->save({.sequence = 0, .path = path()});
    EXPECT_EQ(cache_->saved_size(0), bytes().size());
    EXPECT_GT(cache_->saved_size(-1), cache_->saved_size(0));
    Cache other(device_, request());
    append(other, 0, 5);
    append(other, 1, 80);
    winnow_cache_stats before{}, after{}, of_first{}, of_second{}, saved{};
    other.stats(before);
    for (int64_t count = 0;; ++count) {
        device_.allocations_until_failure = count;
        try {
            other.load({.sequence = 1, .path = path()});
            break;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_OUT_OF_MEMORY);
            other.stats(after);
            EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
        }
    }
    device_.allocations_until_failure = -1;
    other.stats(after);
    other.sequence_stats(0, of_first);
    other.sequence_stats(1, of_second);
    cache_->sequence_stats(0, saved);
    EXPECT_GT(std::exchange(saved.evictions, 0), 0u) << "the budget was never reached";
    EXPECT_EQ(std::memcmp(&of_second, &saved, sizeof saved), 0);
    EXPECT_EQ(after.bytes, of_first.bytes + saved.bytes);
    EXPECT_EQ(after.steps, before.steps);
    EXPECT_EQ(after.evictions, before.evictions);
    EXPECT_EQ(positions_of(other, 0, 0, 0).back(), 4);
    const int64_t count = count_;
    append(*cache_, 0, 29);
    const std::vector<float> expected = output_;
    count_ = count;
    append(other, 1, 29);
    EXPECT_EQ(output_, expected);
    EXPECT_EQ(positions_of(other, 1, 1, 0), positions_of(*cache_, 0, 1, 0)); // with the anchors
}

TEST_F(cache_snapshot, without_memory_or_a_place_nothing_happens) {
    append(*cache_, 0, 30);
    EXPECT_THROW(cache_->save({.path = folder_.file("none/cache")}), Error);
    cache_->save({.path = path()});
    append(*cache_, 0, 5);
    for (int64_t count = 0;; ++count) {
        device_.allocations_until_failure = count;
        if (refusal(*cache_, path(), WINNOW_ERROR_OUT_OF_MEMORY).empty()) break;
        EXPECT_EQ(positions_of(*cache_, 0, 1, 0).back(), 34);
    }
    device_.allocations_until_failure = -1;
    EXPECT_EQ(positions_of(*cache_, 0, 1, 0).back(), 29);
    std::filesystem::create_directory(folder_.file("taken"));
    EXPECT_THROW(cache_->save({.path = folder_.file("taken")}), Error);
    const auto files = std::filesystem::directory_iterator(folder_.path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(cache_snapshot, leaves_no_file_open_that_it_refuses) {
    const auto open_files = [] {
        const std::filesystem::directory_iterator begin("/proc/self/fd");
        return std::distance(begin, std::filesystem::directory_iterator());
    };
    const auto before = open_files();
    EXPECT_NE(refusal(*cache_, folder_.path()).find("is not a file"), std::string::npos);
    write("short");
    EXPECT_NE(refusal(*cache_, path()).find("is cut short"), std::string::npos);
    EXPECT_EQ(open_files(), before);
}

// The numbers of its shape and the bytes of its configuration are more than a reader expects of any other.
TEST_F(cache_snapshot, a_cache_of_very_many_layers_comes_back) {
    constexpr int64_t layers = 26'300;
    std::string text = "none:k=q4_0,v=q4_0,residual=4,k_fine=q8_0,fine=0";
    for (int64_t layer = 1; layer < 4096; ++layer)
        for (const char* head : {".0", ".2", ".4"}) text.append("+").append(std::to_string(layer)).append(head);
    const CacheRequest of_many{text, AlikeLayers{layers, 6, 32, 32, 16}, 1, 0, {}};
    Cache saved(device_, of_many), loaded(device_, of_many);
    saved.save({.path = path()});
    EXPECT_EQ(refusal(loaded, path()), "");
}

} // namespace
} // namespace winnow::cache
