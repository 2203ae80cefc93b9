// Caches with recall where something fails, and what they use: beside twins of which nothing failed.
#include "cache/recall/recall.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {2, 2, 32, 32, 400, 0, 4};
constexpr int64_t q_heads = 4;

CacheRequest request_of(const std::string& where, const std::string& more = "") {
    return {"winnow:recall=" + where + ",k=q8_0,v=q8_0,budget=40000B" + more, shape, 1, 0, {}};
}

void fill(std::vector<float>& values, int64_t& seed) {
    for (float& value : values) value = std::sin(static_cast<float>(++seed));
}

// The outputs of all layers. Queries attend where asks is true.
std::vector<float> append(Cache& cache, int64_t tokens, int64_t seed, bool asks = true) {
    std::vector<float> outputs;
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        HostRows k(shape.kv_heads, tokens, 32), v = k, q(q_heads, tokens, 32), out = q;
        for (HostRows* each : {&k, &v, &q}) fill(each->values, seed);
        CacheStep args;
        args.layer = layer;
        args.scale = 1;
        args.k = k.tensor();
        args.v = v.tensor();
        if (asks) {
            args.q = q.tensor();
            args.out = out.tensor();
        }
        cache.step({&args, 1});
        outputs.insert(outputs.end(), out.values.begin(), out.values.end());
    }
    return outputs;
}

winnow_cache_stats stats_of(Cache& cache) {
    winnow_cache_stats stats{};
    cache.stats(stats);
    return stats;
}

// They answer alike from here on.
void expect_same(Cache& one, Cache& other) {
    for (int64_t layer = 0; layer < shape.layers; ++layer)
        for (int64_t head = 0; head < shape.kv_heads; ++head)
            EXPECT_EQ(positions_of(one, 0, layer, head), positions_of(other, 0, layer, head));
    for (const int64_t tokens : {1, 1, 20, 1, 3})
        EXPECT_EQ(append(one, tokens, 70 + tokens), append(other, tokens, 70 + tokens)) << tokens;
}

// Rows of a layer in F32, as a host gives and takes them.
struct Given {
    explicit Given(int64_t count) : k(shape.kv_heads, count, 32), v(shape.kv_heads, count, 32) {
        int64_t seed = 5;
        for (HostRows* each : {&k, &v}) fill(each->values, seed);
        token_ids.resize(static_cast<size_t>(count));
        std::iota(token_ids.begin(), token_ids.end(), 0);
    }
    CacheRows rows(int64_t layer) {
        CacheRows rows;
        rows.layer = layer;
        rows.k = k.tensor();
        rows.v = v.tensor();
        return rows;
    }
    Tensor tokens() {
        Tensor tensor = tensor_of(Type::i32, 1, 1, static_cast<int64_t>(token_ids.size()));
        tensor.data = reinterpret_cast<std::byte*>(token_ids.data());
        return tensor;
    }

    HostRows k, v;
    std::vector<int32_t> token_ids;
};

TEST(cache_recall, rows_of_a_file_stay_where_they_are_without_memory_to_move_them) {
    const TemporaryFolder folder;
    FakeDevice device;
    Cache file(device, request_of(folder.path())), memory(device, request_of("host"));
    for (Cache* each : {&file, &memory}) {
        append(*each, 200, 1);
        append(*each, 1, 2);
        if (each == &file) device.allocations_until_failure = 0;
        EXPECT_NO_THROW(each->remove(0, 50, 80));
        device.allocations_until_failure = -1;
    }
    expect_same(file, memory);
}

// The slot map of rows in a file is the host's; it changes with those on the device, or not at all.
TEST(cache_recall, an_edit_that_fails_leaves_the_rows_of_a_file_where_they_were) {
    const TemporaryFolder folder;
    FakeDevice device;
    Cache file(device, request_of(folder.path())), memory(device, request_of("host"));
    for (Cache* each : {&file, &memory}) append(*each, 200, 1);
    const std::vector<int64_t> anchors = {3, 40};
    const std::function<void(Cache&)> edits[] = {
        [](Cache& cache) { cache.shift(0, 30, -1, 7); }, [](Cache& cache) { cache.remove(0, 50, 80); },
        [&](Cache& cache) { cache.anchor(0, anchors); }, [](Cache& cache) { cache.truncate(0, 190); }};
    for (const auto& edit : edits) {
        device.fails_edits = true;
        EXPECT_THROW(edit(file), Error);
        device.fails_edits = false;
        edit(file);
        edit(memory);
        EXPECT_EQ(positions_of(file, 0, 0, 0), positions_of(memory, 0, 0, 0));
    }
    file.save({.path = folder.file("cache")});
    EXPECT_NO_THROW(file.load({.path = folder.file("cache")}));
    expect_same(file, memory);
}

TEST(cache_recall, a_refused_reservation_gives_the_disk_its_space_back) {
    const TemporaryFolder folder;
    FakeDevice device;
    Cache cache(device, request_of(folder.path()));
    append(cache, 100, 1);
    const uint64_t before = stats_of(cache).disk_bytes;
    device.allocations_until_failure = 0;
    EXPECT_THROW(cache.reserve(0, 390), Error);
    device.allocations_until_failure = -1;
    EXPECT_EQ(stats_of(cache).disk_bytes, before);
    cache.reserve(0, 390);
    EXPECT_GT(stats_of(cache).disk_bytes, before);
}

// A head that holds less than others has free slots in front, where no query looks for what comes.
TEST(cache_recall, heads_that_disagree_lose_nothing_that_comes) {
    const TemporaryFolder folder;
    FakeDevice device;
    device.heads_differ = true;
    Cache file(device, request_of(folder.path())), memory(device, request_of("host"));
    for (Cache* each : {&file, &memory}) {
        Given given(100);
        for (int64_t token = 20; token < 60; ++token) given.k.at(1, token, 0) = NAN; // the second head has them not
        for (int64_t layer = 0; layer < shape.layers; ++layer) each->import_rows(given.rows(layer));
        EXPECT_EQ(positions_of(*each, 0, 0, 0).size(), 100u);
        EXPECT_EQ(positions_of(*each, 0, 0, 1).size(), 60u);
    }
    for (const int64_t tokens : {40, 1, 30, 1, 1}) {
        const std::vector<float> of_file = append(file, tokens, tokens), of_memory = append(memory, tokens, tokens);
        EXPECT_EQ(of_file, of_memory) << tokens;
    }
    expect_same(file, memory);
}

// A token that is removed from the residual window leaves it with the others; what comes after it takes no slot of rows
// that there are, and a prompt of several chunks has room.
TEST(cache_recall, a_prompt_after_a_removal_from_the_residual_window_loses_nothing) {
    const TemporaryFolder folder;
    for (const char* more : {"", ",cold=220"})
        for (const bool asks : {false, true}) {
            FakeDevice device;
            Cache file(device, request_of(folder.path(), more)), memory(device, request_of("host", more));
            for (Cache* each : {&file, &memory}) {
                append(*each, 180, 1);
                each->remove(0, 170, 174);
                append(*each, 85, 2, asks);
                append(*each, 85, 3, asks);
            }
            EXPECT_EQ(stats_of(file).evictions, stats_of(memory).evictions) << more;
            EXPECT_EQ(stats_of(file).evictions == 0, *more == 0);
            expect_same(file, memory);
        }
}

TEST(cache_recall, rows_that_are_written_anew_take_the_space_of_those_that_are_left) {
    const TemporaryFolder folder;
    FakeDevice device;
    Cache cache(device, request_of(folder.path()));
    append(cache, 380, 1);
    const uint64_t before = stats_of(cache).disk_bytes;
    cache.remove(0, 20, 340);
    append(cache, 1, 2); // its query picks
    EXPECT_LT(stats_of(cache).disk_bytes, before / 2);
}

TEST(cache_recall, a_larger_reservation_that_fails_leaves_what_another_sequence_has) {
    const TemporaryFolder folder;
    for (int fails_at = 0;; ++fails_at) {
        FakeDevice device;
        CacheRequest request = request_of(folder.path());
        request.max_sequences = 2;
        Cache cache(device, request);
        cache.reserve(0, 100);
        const uint64_t scratch = stats_of(cache).scratch_bytes;
        device.allocations_until_failure = fails_at;
        bool has_failed = false;
        try {
            cache.reserve(1, 390);
        } catch (const Error& error) {
            has_failed = error.status() == WINNOW_ERROR_OUT_OF_MEMORY;
        }
        if (!has_failed) break;
        EXPECT_EQ(stats_of(cache).scratch_bytes, scratch) << fails_at;
    }
}

TEST(cache_recall, more_query_heads_than_a_pick_has_tables_for_are_refused) {
    FakeDevice device;
    CacheRequest request = request_of("host");
    request.shape = shape.with_q_heads(shape.kv_heads * 8193); // of 32 elements
    try {
        const Cache cache(device, request);
        ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find("8193 query heads for a KV head"), std::string::npos) << error.what();
    }
    request.shape = shape.with_q_heads(shape.kv_heads * 8192);
    EXPECT_NO_THROW(Cache(device, request));
}

TEST(cache_recall, a_refused_write_changes_no_pick) {
    FakeDevice device;
    Cache refused(device, request_of("host")), other(device, request_of("host"));
    for (Cache* each : {&refused, &other}) {
        append(*each, 300, 1);
        append(*each, 1, 2);
    }
    Given given(3);
    given.token_ids = {4, 4, 5}; // one of them twice
    CacheRows rows = given.rows(0);
    rows.tokens = given.tokens();
    EXPECT_THROW(refused.write(rows), Error);
    for (int at = 0; at < 10; ++at) EXPECT_EQ(append(refused, 1, at), append(other, 1, at)) << at;
    EXPECT_EQ(stats_of(refused).misses, stats_of(other).misses);
    EXPECT_GT(stats_of(other).picks, 0u);
}

TEST(cache_recall, the_peak_counts_rows_on_their_way_into_a_file) {
    const TemporaryFolder folder, cold;
    FakeDevice device;
    Cache cache(device, request_of(cold.path()));
    append(cache, 300, 1);
    cache.save({.path = folder.file("cache")});
    FakeDevice of_loaded;
    Cache loaded(of_loaded, request_of(cold.path()));
    loaded.load({.path = folder.file("cache")});
    EXPECT_LE(of_loaded.most_in_use, stats_of(loaded).peak_bytes);
    EXPECT_GT(of_loaded.most_in_use, of_loaded.in_use);

    FakeDevice of_imported;
    of_imported.heads_differ = true; // an import puts a row into one of the segments
    Cache imported(of_imported, request_of(cold.path()));
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        Given given(300);
        CacheRows rows = given.rows(layer);
        for (Tensor* each : {&rows.k, &rows.v}) { // which need half of the memory
            std::byte* const memory = each->data;
            *each = tensor_of(Type::f16, shape.kv_heads, 300, 32);
            each->stride = {shape.kv_heads * 300 * 64, 300 * 64, 64, 2};
            each->data = memory;
        }
        rows.tokens = given.tokens();
        cache.export_rows(rows);
        rows.tokens = {};
        imported.import_rows(rows);
    }
    EXPECT_EQ(positions_of(imported, 0, 0, 0), positions_of(cache, 0, 0, 0));
    EXPECT_LE(of_imported.most_in_use, stats_of(imported).peak_bytes);
}

// Pages that a frame still names may be of other tokens by the time that they are signed for the first time.
TEST(cache_recall, tokens_after_a_truncate_are_attended_to_as_in_a_new_cache) {
    const TemporaryFolder folder;
    for (const std::string& where : {std::string("host"), folder.path()})
        for (const int64_t length : {0, 4})
            for (const bool asks : {true, false}) {
                SCOPED_TRACE(testing::Message() << where << ", " << length << (asks ? "" : ", asks nothing"));
                FakeDevice device, other;
                Cache used(device, request_of(where, ",bonus=20")), fresh(other, request_of(where, ",bonus=20"));
                used.reserve(0, 390);
                append(used, 200, 1);
                for (int at = 0; at < 3; ++at) append(used, 1, at);
                used.truncate(0, 0);
                for (Cache* each : {&used, &fresh}) append(*each, 4, 3);
                if (length > 0) {
                    append(used, 190, 4);
                    used.truncate(0, length);
                }
                const winnow_cache_stats before[] = {stats_of(used), stats_of(fresh)};
                for (const int64_t tokens : {300, 1, 1})
                    EXPECT_EQ(append(used, tokens, 5, asks || tokens == 1),
                              append(fresh, tokens, 5, asks || tokens == 1))
                        << tokens;
                EXPECT_EQ(stats_of(used).misses - before[0].misses, stats_of(fresh).misses - before[1].misses);
            }
}

// What the pages of the first layer were signed by.
class SigningDevice : public FakeDevice {
public:
    struct Signing {
        int64_t center_end, first, end;
        bool keeps_frames;
    };
    std::vector<Signing> signings;

    using FakeDevice::launch;
    void launch(const PageSign& args) override {
        if (signings.empty()) first_layer_ = args.index.signatures.buffer;
        if (args.index.signatures.buffer == first_layer_)
            signings.push_back({args.center_end, args.first, args.end, args.keeps_frames});
        FakeDevice::launch(args);
    }

private:
    const Buffer* first_layer_ = nullptr;
};

TEST(cache_recall, what_a_sequence_picked_counts_when_it_is_gone) {
    const TemporaryFolder folder;
    for (const std::string& where : {std::string("host"), folder.path()}) {
        FakeDevice device;
        CacheRequest request = request_of(where);
        request.max_sequences = 2;
        Cache cache(device, request);
        uint64_t picks = 0, misses = 0;
        const auto expect_counted = [&](const char* after) {
            EXPECT_EQ(stats_of(cache).picks, picks) << after;
            EXPECT_EQ(stats_of(cache).misses, misses) << after;
            winnow_cache_stats own{};
            cache.sequence_stats(0, own);
            EXPECT_EQ(own.picks + own.misses, 0u) << after;
        };
        const auto run = [&] {
            append(cache, 200, 1);
            append(cache, 1, 2);
            EXPECT_GT(stats_of(cache).picks, picks);
            EXPECT_GT(stats_of(cache).misses, misses);
            picks = stats_of(cache).picks;
            misses = stats_of(cache).misses;
        };
        run();
        cache.remove(0, 0, -1);
        expect_counted("remove");
        run();
        cache.copy(1, 0);
        expect_counted("copy");
        const std::string saved = folder.path() + "/saved";
        cache.save({.path = saved});
        run();
        cache.load({.path = saved});
        expect_counted("load"); // a file has none
        cache.reserve(0, 300);
        run();
        cache.truncate(0, 0); // which keeps its memory
        expect_counted("truncate");
        cache.reset();
        picks = misses = 0;
        expect_counted("reset");
    }
}

// All pages are signed anew where a query picks among twice as many rows, however these came.
TEST(cache_recall, the_center_of_signatures_is_that_of_the_rows_at_each_power_of_two) {
    const TemporaryFolder folder;
    for (const std::string& where : {std::string("host"), folder.path()})
        for (const std::vector<int64_t>& prompts : {std::vector<int64_t>{100}, {9, 40, 51}}) {
            SigningDevice device;
            Cache cache(device, request_of(where, ",residual=16,cadence=8"));
            for (const int64_t tokens : prompts) append(cache, tokens, tokens, tokens == prompts.back());
            ASSERT_EQ(device.signings.size(), 1u);
            EXPECT_EQ(device.signings[0].center_end, 64);
            EXPECT_EQ(device.signings[0].first, 0);
            const int64_t pages = device.signings[0].end;
            EXPECT_GE(pages, 36);
            for (int64_t at = 0; at < 200; ++at) append(cache, 1, at);
            std::vector<int64_t> centers;
            int64_t end = pages;
            for (const SigningDevice::Signing& each : std::span(device.signings).subspan(1)) {
                EXPECT_LE(each.first, end);
                EXPECT_GE(each.first, each.center_end > 0 ? 0 : end - 1); // a page that has come to have both rows
                EXPECT_EQ(each.first == 0, each.center_end > 0);
                EXPECT_EQ(each.keeps_frames, each.center_end > 0);
                if (each.center_end > 0) centers.push_back(each.center_end);
                EXPECT_GE(2 * each.end, each.center_end);
                end = each.end;
            }
            EXPECT_EQ(centers, (std::vector<int64_t>{128, 256}));
            EXPECT_GE(end, pages + 96);
        }
}

// A host that lends three threads.
class ThreadedDevice : public FakeDevice {
public:
    int runs = 0;
    bool fails = false; // one of the tasks

    uint32_t host_threads() const override { return 3; }
    void run_on_host(uint32_t count, const std::function<void(uint32_t)>& task) override {
        ++runs;
        std::vector<std::exception_ptr> failures(count);
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < count; ++i)
            threads.emplace_back([&, i] {
                try {
                    if (fails && i + 1 == count) throw Error(WINNOW_ERROR_IO, "a thread's read failed");
                    task(i);
                } catch (...) {
                    failures[i] = std::current_exception();
                }
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::exception_ptr& failure : failures)
            if (failure) std::rethrow_exception(failure);
    }
};

// Enough of them for a pick to miss what is worth several threads. Pages that were picked before have no bonus, so that
// after a failure, when there are none, the same ones are picked.
CacheRequest many_pages(const std::string& where) {
    return {"winnow:recall=" + where + ",k=q8_0,v=q8_0,budget=80000B,bonus=0", shape, 1, 0, {}};
}

TEST(cache_recall, threads_of_the_host_bring_what_one_would) {
    const TemporaryFolder folder;
    ThreadedDevice threads;
    FakeDevice device;
    Cache file(threads, many_pages(folder.path())), memory(device, many_pages("host"));
    for (const int64_t tokens : {390, 1, 1, 1, 1})
        EXPECT_EQ(append(file, tokens, tokens), append(memory, tokens, tokens)) << tokens;
    EXPECT_GT(threads.runs, 0);
    EXPECT_GT(stats_of(file).bytes_read, 0u);
    EXPECT_EQ(stats_of(file).misses, stats_of(memory).misses);
}

TEST(cache_recall, a_read_that_fails_in_a_thread_leaves_the_sequence_as_it_was) {
    const TemporaryFolder folder;
    ThreadedDevice threads;
    FakeDevice device;
    Cache file(threads, many_pages(folder.path())), memory(device, many_pages("host"));
    for (Cache* each : {&file, &memory}) append(*each, 100, 1);
    threads.runs = 0;
    threads.fails = true;
    EXPECT_THROW(append(file, 290, 2), Error); // its last query picks
    EXPECT_EQ(threads.runs, 1);
    EXPECT_EQ(positions_of(file, 0, 0, 0).size(), 100u);
    threads.fails = false;
    for (const int64_t tokens : {290, 1, 1}) EXPECT_EQ(append(file, tokens, 3), append(memory, tokens, 3)) << tokens;
}

// However few pages there are, queries pick some by their scores.
TEST(cache_recall, the_newest_take_at_most_half_of_what_is_picked) {
    const auto sizes_of = [](const std::string& keys, int64_t context) {
        CacheRequest request{"winnow:recall=host," + keys, AlikeLayers{30, 3, 64, 64, context, 0, 9}, 1, 0, {}};
        return Geometry(request, parse(request.config)).recall(0);
    };
    EXPECT_EQ(sizes_of("budget=1/16", 2048).newest, 16);
    for (const char* keys : {"budget=1/16", "budget=1/16,page=1", "budget=1/4,picked=8", "budget=1/4,picked=2,page=1",
                             "budget=1/4,newest=400"}) {
        const RecallSizes sizes = sizes_of(keys, 512);
        EXPECT_EQ(sizes.newest, sizes.hot_slots() / 2) << keys;
    }
}

} // namespace
} // namespace winnow::cache
