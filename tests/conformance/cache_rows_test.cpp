// cache_read, cache_write, cache_import_rows: what is read is what attention sees, what is written takes its place, and
// a cache that is restored from what was read holds the same tokens in the same heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cache_cases.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "cache_token_rows.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

// Judged steps of every length, with rows read and written in between.
void run_exchange(const CacheSetup& setup) {
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    CacheOracle oracle(cache);
    ASSERT_EQ(oracle.read(0, 0, WINNOW_TYPE_F32), "") << "nothing was appended";
    const uint32_t types[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
    const int64_t lengths[] = {30, 1, 17, 32, 32, 1, 29, 32, 1, 1, 32, 3};
    int turn = 0;
    for (const int64_t length : lengths) {
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            const int64_t count = std::min(length, setup.chunk());
            Step step = draw_step(setup, engine, layer, 0, count, count);
            ASSERT_EQ(oracle.step(step), "") << "step " << turn;
            ASSERT_EQ(oracle.read(0, layer, types[turn % 3]), "") << "step " << turn;
            if (turn % 3 != 2) continue;
            ASSERT_EQ(oracle.write(0, layer, engine), "") << "step " << turn;
        }
        ++turn;
    }
    ASSERT_EQ(oracle.look(), "");
}

void feed(CacheHost& cache, std::mt19937_64& engine, int64_t sequence, int64_t tokens) {
    for (int64_t layer = 0; layer < cache.setup().layers; ++layer) {
        Step step = draw_step(cache.setup(), engine, layer, sequence, tokens, tokens);
        ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
    }
}

// The output of the same queries of the last token.
std::vector<double> answer(CacheHost& cache, int64_t layer) {
    std::mt19937_64 engine(3);
    Step step = draw_step(cache.setup(), engine, layer, 0, 0, 1);
    step.options.draft_tokens = 1;
    EXPECT_EQ(cache.run(step), WINNOW_OK) << cache.message();
    std::vector<double> values;
    step.out.each([&](const Index& at) { values.push_back(step.out.get(at)); });
    return values;
}

double length_of(const std::vector<double>& row) {
    double sum = 0;
    for (const double each : row) sum += each * each;
    return std::sqrt(sum);
}

// The permitted error of packed rows, relative to their length: they are packed a second time from their values.
double permitted(uint32_t type) {
    switch (type) {
    case WINNOW_TYPE_F32:
    case WINNOW_TYPE_F16:
    case WINNOW_TYPE_BF16: return 0;
    case WINNOW_TYPE_AFFINE4_G32:
    case WINNOW_TYPE_AFFINE4_G64:
    case WINNOW_TYPE_AFFINE4_G128: return .15; // scale and bias are chosen by the extremes, and chosen anew
    default: return .01;
    }
}

void expect_same_rows(const TestTensor& want, const TestTensor& got, double permitted, const char* name) {
    want.each_row([&](const Index& row) {
        std::vector<double> original, difference;
        for (Index at = row; at[3] < want.shape()[3]; ++at[3]) {
            original.push_back(want.get(at));
            difference.push_back(want.get(at) - got.get(at));
        }
        if (std::isnan(original[0])) {
            ASSERT_TRUE(std::isnan(got.get(row))) << name << " of token " << row[2] << " in head " << row[1];
            return;
        }
        ASSERT_LE(length_of(difference), permitted * length_of(original) + 1e-6)
            << name << " of token " << row[2] << " in head " << row[1];
    });
}

// What was read of a cache that evicted tokens makes another one of the same: no further token is evicted, however
// different the heads are, and both go on.
void run_restore(const CacheSetup& setup, bool has_others) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    for (const int64_t length : {100, 1, 1, 60, 1, 20, 1, 1, 1, 40})
        ASSERT_NO_FATAL_FAILURE(feed(source, engine, 0, length));
    if (has_others) {
        ASSERT_NO_FATAL_FAILURE(feed(target, engine, 0, 90));
        ASSERT_EQ(target.caches().remove(target.get(), 0, 0, -1), WINNOW_OK) << target.message();
    }
    const int64_t seen = 226;
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        TokenRows rows = make_token_rows(setup, layer, 0, token_ids_to(seen), WINNOW_TYPE_F32);
        ASSERT_EQ(run(source, source.caches().read, rows), WINNOW_OK) << source.message();
        TokenRows given = rows;
        given.tokens = TestTensor(); // they take the next positions
        given.k = rows.k.packed_copy();
        given.v = rows.v.packed_copy();
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
        for (int64_t head = 0; head < setup.kv_heads; ++head)
            ASSERT_EQ(target.positions(0, layer, head), source.positions(0, layer, head))
                << "layer " << layer << ", head " << head;
        TokenRows again = make_token_rows(setup, layer, 0, token_ids_to(seen), WINNOW_TYPE_F32);
        ASSERT_EQ(run(target, target.caches().read, again), WINNOW_OK) << target.message();
        // With means of its own a cache rounds otherwise. Among several packed segments a row may come to another one
        // than it was in, and be of 2 bits there; the schedules judge which, and what becomes of it.
        double k_off = 0, v_off = 0;
        for (const CacheSetup& its : setup.of_heads(layer)) {
            k_off = std::max(k_off, permitted(its.k_type));
            v_off = std::max(v_off, permitted(its.v_type));
        }
        const double more = !setup.lower.empty() ? .6 : setup.center ? .05 : 0;
        ASSERT_NO_FATAL_FAILURE(expect_same_rows(rows.k, again.k, k_off + more, "the key"));
        ASSERT_NO_FATAL_FAILURE(expect_same_rows(rows.v, again.v, v_off + more, "the value"));
        const std::vector<double> want = answer(source, layer), got = answer(target, layer);
        const double off = k_off + v_off + more + 1e-4;
        for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], 2 * off) << "layer " << layer;
    }
    EXPECT_EQ(target.stats().tokens, source.stats().tokens);
    EXPECT_EQ(target.stats().resident_slots, source.stats().resident_slots);
    EXPECT_LE(target.stats().bytes, target.stats().budget_bytes);
    const std::vector<int64_t> budgets = setup.layer_tokens();
    int64_t appended = seen;
    for (int64_t length : {1, 1, 40, 1, 30, 1}) {
        length = std::min(length, setup.context - appended);
        if (length == 0) break;
        ASSERT_NO_FATAL_FAILURE(feed(target, engine, 0, length));
        appended += length;
        for (int64_t layer = 0; layer < setup.layers; ++layer)
            for (int64_t head = 0; head < setup.kv_heads; ++head) {
                const std::vector<int64_t> resident = target.positions(0, layer, head);
                EXPECT_LE(static_cast<int64_t>(resident.size()), budgets[static_cast<size_t>(layer)]);
                EXPECT_TRUE(setup.sink == 0 || resident.front() == 0) << "a sink was evicted";
                EXPECT_EQ(resident.back(), appended - 1) << "the newest was evicted";
            }
    }
}

// Into a full cache: room is made as for tokens that are appended.
void run_restore_into_full(const CacheSetup& setup) {
    std::mt19937_64 engine(options().seed);
    CacheHost cache(subject(), setup);
    const int64_t seen = std::min<int64_t>(300, setup.context - 100);
    ASSERT_NO_FATAL_FAILURE(feed(cache, engine, 0, seen));
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        TokenRows rows = make_token_rows(setup, layer, 0, token_ids_to(100), WINNOW_TYPE_F32);
        fill_token_rows(rows, engine, true);
        TokenRows given = rows;
        given.tokens = TestTensor();
        ASSERT_EQ(run(cache, cache.caches().import_rows, given), WINNOW_OK) << cache.message();
        for (int64_t head = 0; head < setup.kv_heads; ++head) {
            const std::vector<int64_t> resident = cache.positions(0, layer, head);
            EXPECT_LE(static_cast<int64_t>(resident.size()), setup.layer_tokens()[static_cast<size_t>(layer)]);
            const int64_t last_chunk = 99 % setup.chunk() + 1;
            for (int64_t at = 100 - (setup.residual > 0 ? 16 : last_chunk); at < 100; ++at) {
                const bool was_resident = !std::isnan(rows.k.get({0, head, at, 0}));
                EXPECT_EQ(std::binary_search(resident.begin(), resident.end(), static_cast<int32_t>(seen + at)),
                          was_resident)
                    << "token " << at;
            }
        }
    }
}

// With cells a state may come back in others, some of which are taken.
void run_restore_cells(CacheSetup setup) {
    setup.cells = 200;
    setup.context = 4096;
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    const auto append = [&](CacheHost& cache, int64_t layer, const std::vector<int64_t>& cells) {
        Step step = draw_step(setup, engine, layer, 0, static_cast<int64_t>(cells.size()), 0);
        step.cells = TestTensor(WINNOW_TYPE_I64, {1, 1, 1, step.tokens});
        step.cells.each(
            [&](const Index& at) { step.cells.set(at, static_cast<double>(cells[static_cast<size_t>(at[3])])); });
        ASSERT_EQ(cache.run(step), WINNOW_OK) << cache.message();
    };
    const auto moved = [](int64_t cell) { return (cell + 37) % 200; };
    std::vector<int64_t> from, to, there;
    for (int64_t each = 0; each < 180; ++each) from.push_back((each * 7) % 200);
    for (const int64_t cell : from) to.push_back(moved(cell));
    // Without a residual window those would leave sinks' slots behind that nobody else can have.
    for (int64_t each = 0; each < 30 && setup.residual > 0; ++each) there.push_back(to[static_cast<size_t>(3 * each)]);
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        ASSERT_NO_FATAL_FAILURE(append(source, layer, from));
        if (!there.empty()) {
            ASSERT_NO_FATAL_FAILURE(append(target, layer, there));
        }
        TokenRows rows = make_token_rows(setup, layer, 0, from, setup.type);
        ASSERT_EQ(run(source, source.caches().read, rows), WINNOW_OK) << source.message();
        TokenRows given = make_token_rows(setup, layer, 0, to, setup.type);
        given.k = rows.k.packed_copy();
        given.v = rows.v.packed_copy();
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
        for (int64_t head = 0; head < setup.kv_heads; ++head) {
            std::vector<int64_t> want;
            for (const int64_t cell : source.positions(0, layer, head)) want.push_back(moved(cell));
            std::sort(want.begin(), want.end());
            ASSERT_EQ(target.positions(0, layer, head), want) << "layer " << layer << ", head " << head;
        }
    }
}

// What is refused leaves no trace.
void run_refused() {
    CacheSetup setup{.context = 256};
    std::mt19937_64 engine(1);
    CacheHost cache(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed(cache, engine, 0, 200));
    const std::string before = cache.portrait();
    const auto expect_refused = [&](TokenRowsFunction function, TokenRows rows, const std::string& what) {
        EXPECT_EQ(run(cache, function, rows), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(cache.message().find(what), std::string::npos) << cache.message();
        EXPECT_EQ(cache.portrait(), before);
    };
    const winnow_cache_api& caches = cache.caches();
    const auto rows_of = [&](const std::vector<int64_t>& token_ids) {
        return make_token_rows(setup, 0, 0, token_ids, WINNOW_TYPE_F32);
    };
    for (const TokenRowsFunction each : {caches.read, caches.write}) {
        expect_refused(each, rows_of({3, 9, 3}), "tokens has 3 twice");
        expect_refused(each, rows_of({3, 256}), "tokens[1] is 256, expected 0 to 255");
        expect_refused(each, rows_of({-1}), "tokens[0] is -1");
        TokenRows rows = rows_of({1, 2});
        rows.k = rows.v = TestTensor();
        expect_refused(each, rows, "neither k nor v is given");
        rows = rows_of({1, 2});
        rows.v = TestTensor(WINNOW_TYPE_F32, {1, setup.kv_heads, 3, setup.v_head_size});
        expect_refused(each, rows, "v.shape[2]");
        rows = rows_of({1, 2});
        rows.layer = 2;
        expect_refused(each, rows, "layer is 2");
        rows.layer = 0;
        rows.sequence = -1;
        expect_refused(each, rows, "sequence is -1");
        rows = rows_of({1, 2});
        rows.tokens = TestTensor();
        expect_refused(each, rows, "tokens is NULL");
    }
    expect_refused(caches.import_rows, rows_of({200, 201}), "tokens is given, expected NULL in a cache without cells");
    TokenRows rows = rows_of(token_ids_to(57));
    rows.tokens = TestTensor();
    expect_refused(caches.import_rows, rows, "at most 256 together, the cache's context");
    rows.v = TestTensor();
    expect_refused(caches.import_rows, rows, "v is NULL");
}

} // namespace

void register_cache_rows() {
    int at = 0;
    for (const NamedSetup& each : policy_setups()) {
        CacheSetup setup = with_shape(each.setup, at++ % cache_shapes);
        setup.sparse_v = 0; // which values are passed over depends on where their rows lie
        register_cache_test("rows", "exchange_" + each.name, __FILE__, __LINE__, [=] { run_exchange(setup); });
        register_cache_test("rows", "restore_" + each.name, __FILE__, __LINE__, [=] { run_restore(setup, at % 2); });
        // Of equal importances the networks of learned need not take the oldest first, which are those whose cells are
        // taken: what comes back may go in their place.
        if (setup.policy != Policy::adaptive_budget && setup.policy != Policy::learned && setup.budget > 0)
            register_cache_test("rows", "restore_cells_" + each.name, __FILE__, __LINE__,
                                [=] { run_restore_cells(setup); });
        if (!setup.covers_all(0))
            register_cache_test("rows", "restore_into_full_" + each.name, __FILE__, __LINE__,
                                [=] { run_restore_into_full(setup); });
    }
    register_cache_test("rows", "refused", __FILE__, __LINE__, [] { run_refused(); });
}

} // namespace winnow::conformance
