// cache_export_rows and cache_import_rows: what is imported into an empty cache goes on as the cache that it was
// exported from, bit for bit, and is the same again when it is exported; what is damaged is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>

#include "cache_cases.hpp"
#include "cache_registration.hpp"
#include "cache_token_rows.hpp"
#include "formats.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

// Rows in types that lose nothing of a cache's dense rows, if the tokens of F32 segments came in F16.
TokenRows make_rows(const CacheSetup& setup, int64_t layer, int64_t sequence, const std::vector<int64_t>& token_ids) {
    TokenRows rows = make_token_rows(setup, layer, sequence, token_ids, WINNOW_TYPE_F16);
    if (setup.of_head(layer, 0).k_type_of(0) == WINNOW_TYPE_BF16)
        rows.k = make_token_rows(setup, layer, sequence, token_ids, WINNOW_TYPE_BF16).k;
    return rows;
}

std::vector<std::byte> bytes_of(const TestTensor& tensor) {
    std::vector<std::byte> bytes;
    tensor.each_row([&](const Index& at) {
        const std::byte* row = tensor.element(at);
        bytes.insert(bytes.end(), row, row + tensor.row_size());
    });
    return bytes;
}

std::string difference(const TokenRows& want, const TokenRows& got) {
    for (const auto& [name, a, b] : {std::tuple{"k", &want.k, &got.k}, std::tuple{"v", &want.v, &got.v}}) {
        const std::vector<std::byte> x = bytes_of(*a), y = bytes_of(*b);
        const auto at = std::mismatch(x.begin(), x.end(), y.begin()).first;
        if (at == x.end()) continue;
        const size_t row = static_cast<size_t>(at - x.begin()) / a->row_size();
        return std::string(name) + " differs, first in row " + std::to_string(row) + " of " +
               std::to_string(a->shape()[2]) + " a head, at byte " +
               std::to_string(static_cast<size_t>(at - x.begin()) % a->row_size());
    }
    return "";
}

enum class Sides { both, keys, values };

TokenRows exported(CacheHost& cache, int64_t layer, const std::vector<int64_t>& token_ids, Sides sides = Sides::both) {
    TokenRows rows = make_rows(cache.setup(), layer, 0, token_ids);
    if (sides == Sides::keys) rows.v = TestTensor();
    if (sides == Sides::values) rows.k = TestTensor();
    EXPECT_EQ(run(cache, cache.caches().export_rows, rows), WINNOW_OK) << cache.message();
    EXPECT_EQ(rows.k.damage() + rows.v.damage(), "") << "beside what is exported";
    return rows;
}

// A copy that was never handed over.
TokenRows as_given(const CacheSetup& setup, const TokenRows& rows, const std::vector<int64_t>& token_ids) {
    TokenRows given = make_rows(setup, rows.layer, rows.sequence, token_ids);
    given.k = rows.k.packed_copy();
    given.v = rows.v.packed_copy();
    if (setup.cells == 0) given.tokens = TestTensor(); // they take the next positions
    return given;
}

// Steps of the same tokens for some caches, of which all give the same output bit for bit.
void feed(const std::vector<CacheHost*>& caches, std::mt19937_64& engine, int64_t tokens, bool attends = true) {
    const CacheSetup& setup = caches.front()->setup();
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const uint64_t seed = engine();
        std::vector<std::vector<std::byte>> outputs;
        for (CacheHost* cache : caches) {
            std::mt19937_64 same(seed);
            Step step = draw_step(setup, same, layer, 0, tokens, attends ? tokens : 0);
            ASSERT_EQ(cache->run(step), WINNOW_OK) << cache->message();
            if (attends) outputs.push_back(bytes_of(step.out));
        }
        for (const std::vector<std::byte>& output : outputs)
            ASSERT_EQ(output, outputs.front()) << "layer " << layer << ", " << tokens << " tokens";
    }
}

void expect_same(CacheHost& source, CacheHost& target, int64_t seen) {
    const CacheSetup& setup = source.setup();
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        ASSERT_EQ(difference(exported(source, layer, token_ids_to(seen)), exported(target, layer, token_ids_to(seen))),
                  "")
            << "layer " << layer << " of " << seen << " tokens";
        for (int64_t head = 0; head < setup.shape(layer).kv_heads; ++head) {
            ASSERT_EQ(target.positions(0, layer, head), source.positions(0, layer, head)) << "layer " << layer;
            if (!setup.keeps_importance()) continue;
            ASSERT_EQ(target.importance(0, layer, head), source.importance(0, layer, head)) << "layer " << layer;
        }
    }
}

// Packed rows may have been packed anew.
void expect_near(CacheHost& source, CacheHost& target, int64_t layer, int64_t seen) {
    TokenRows want = make_token_rows(source.setup(), layer, 0, token_ids_to(seen), WINNOW_TYPE_F32), got = want;
    ASSERT_EQ(run(source, source.caches().read, want), WINNOW_OK) << source.message();
    ASSERT_EQ(run(target, target.caches().read, got), WINNOW_OK) << target.message();
    for (const auto& [a, b] : {std::pair{&want.k, &got.k}, std::pair{&want.v, &got.v}})
        a->each([&, a = a, b = b](const Index& at) {
            const double x = a->get(at), y = b->get(at);
            ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : std::fabs(y - x) <= .05 * std::fabs(x) + .05) << at[2];
        });
}

// How a host exports what it has in several runs of cells.
enum class Parts {
    none,
    both,      // keys and values, of a third of the tokens and of the others
    first_key, // the first token's keys alone, which have too little room for a ledger; then all values
};

// In the middle of many steps everything goes into another cache, and both go on.
void run_continuation(const CacheSetup& setup, int64_t first, Parts parts) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    int64_t seen = 0;
    for (const int64_t length :
         {first, static_cast<int64_t>(1), static_cast<int64_t>(1), static_cast<int64_t>(17), static_cast<int64_t>(1)}) {
        ASSERT_NO_FATAL_FAILURE(feed({&source}, engine, length));
        seen += length;
    }
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const std::vector<int64_t> all = token_ids_to(seen);
        TokenRows rows = exported(source, layer, all);
        const auto put = [&](Sides sides, int64_t begin, int64_t end) {
            const TokenRows some = exported(source, layer, {all.begin() + begin, all.begin() + end}, sides);
            const auto copy = [&](const TestTensor& from, TestTensor& to) {
                from.each_row([&](const Index& at) {
                    std::memcpy(to.element({0, at[1], at[2] + begin, 0}), from.element(at), from.row_size());
                });
            };
            if (sides != Sides::values) copy(some.k, rows.k);
            if (sides != Sides::keys) copy(some.v, rows.v);
        };
        if (parts == Parts::both) {
            put(Sides::both, 0, seen / 3);
            put(Sides::both, seen / 3, seen);
        } else if (parts == Parts::first_key) {
            put(Sides::keys, 0, 1);
            put(Sides::keys, 1, seen);
            put(Sides::values, 0, seen);
        }
        TokenRows given = as_given(setup, rows, token_ids_to(seen));
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(source, target, seen));
    for (int64_t length : {1, 1, 30, 1, 32, 1, 1, 1, 40, 1}) {
        length = std::min(length, setup.context - seen);
        if (length == 0) break;
        ASSERT_NO_FATAL_FAILURE(feed({&source, &target}, engine, length));
        seen += length;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(source, target, seen));
    EXPECT_EQ(target.stats().bytes, source.stats().bytes);
}

// A key that is exported alone has no room for the means, and comes rounded; the values together bring them.
void run_means_in_values(const CacheSetup& setup) {
    constexpr int64_t seen = 150, alone = 60; // behind the sinks, and left the residual window
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed({&source}, engine, seen));
    const std::vector<int64_t> all = token_ids_to(seen);
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        TokenRows rows = exported(source, layer, all, Sides::values);
        rows.k = make_rows(setup, layer, 0, all).k;
        for (const auto& [begin, end] : {std::pair{int64_t{0}, alone}, {alone, alone + 1}, {alone + 1, seen}}) {
            TokenRows some = make_rows(setup, layer, 0, {all.begin() + begin, all.begin() + end});
            some.v = TestTensor();
            const int32_t status = run(source, source.caches().export_rows, some);
            ASSERT_EQ(status, begin == alone ? WINNOW_ERROR_UNSUPPORTED : WINNOW_OK) << source.message();
            EXPECT_TRUE(begin != alone || run(source, source.caches().read, some) == WINNOW_OK);
            some.k.each_row([&, first = begin](const Index& at) {
                std::memcpy(rows.k.element({0, at[1], at[2] + first, 0}), some.k.element(at), some.k.row_size());
            });
        }
        TokenRows given = as_given(setup, rows, all);
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
        ASSERT_NO_FATAL_FAILURE(expect_near(source, target, layer, seen));
    }
}

// Tokens that were taken back, or removed from the middle so that later ones moved down: what is left is imported and
// goes on.
void run_edited(const CacheSetup& setup, bool moves) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed({&source}, engine, 150));
    if (moves) {
        ASSERT_EQ(source.caches().remove(source.get(), 0, 60, 100), WINNOW_OK) << source.message();
        ASSERT_EQ(source.caches().shift(source.get(), 0, 100, -1, -40), WINNOW_OK) << source.message();
    } else {
        ASSERT_EQ(source.caches().truncate(source.get(), 0, 50), WINNOW_OK) << source.message();
    }
    int64_t seen = moves ? 110 : 50;
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        TokenRows given = as_given(setup, exported(source, layer, token_ids_to(seen)), token_ids_to(seen));
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(source, target, seen));
    for (const int64_t length : {1, 20, 1}) {
        ASSERT_NO_FATAL_FAILURE(feed({&source, &target}, engine, length));
        seen += length;
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(source, target, seen));
}

void append_cells(const std::vector<CacheHost*>& caches, int64_t layer, uint64_t seed,
                  const std::vector<std::vector<int64_t>>& cells, bool attends = false) {
    for (size_t i = 0; i < caches.size(); ++i) {
        std::mt19937_64 engine(seed);
        const auto tokens = static_cast<int64_t>(cells[i].size());
        Step step = draw_step(caches[i]->setup(), engine, layer, 0, tokens, attends ? tokens : 0);
        step.cells = TestTensor(WINNOW_TYPE_I64, {1, 1, 1, step.tokens});
        step.cells.each(
            [&](const Index& at) { step.cells.set(at, static_cast<double>(cells[i][static_cast<size_t>(at[3])])); });
        if (attends) { // everything
            step.mask = TestTensor(WINNOW_TYPE_BOOL, {1, 1, tokens, caches[i]->setup().cells});
            step.mask.each([&](const Index& each) { step.mask.set(each, 1); });
        }
        ASSERT_EQ(caches[i]->run(step), WINNOW_OK) << caches[i]->message();
    }
}

// The packed row that a row of exported ones stands for, with its format; empty where it stands for none.
std::vector<std::byte> packed_row(const CacheHost& cache, const TestTensor& rows, const Index& at, uint32_t type) {
    constexpr size_t header = 6, about_packed = 6;
    constexpr std::byte packed_kind{2};
    const std::byte* const row = rows.element(at);
    uint16_t marker = 0;
    std::memcpy(&marker, row, sizeof marker);
    if (marker != 0x7fa5 || row[3] != packed_kind) return {};
    uint64_t bytes = 0;
    EXPECT_EQ(cache.api().row_bytes(type, rows.shape()[3], &bytes, nullptr, 0), WINNOW_OK);
    return {row + header, row + header + about_packed + bytes};
}

// `target` was given `rows` beside others, in these cells: `restored` was given the same by values, and has the
// same tokens. Packed rows that are packed again have the same bytes, and the others the same values, if they were
// dense and were not packed now. How many were packed before and after.
int64_t expect_same_rows(CacheHost& target, CacheHost& source, CacheHost& restored, const TokenRows& rows,
                         const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    const CacheSetup& setup = target.setup();
    const std::vector<CacheSetup> of_heads = setup.of_heads(rows.layer);
    const TokenRows again = exported(target, rows.layer, to);
    TokenRows want = make_rows(setup, rows.layer, 0, from), got = make_rows(setup, rows.layer, 0, to);
    EXPECT_EQ(run(source, source.caches().read, want), WINNOW_OK) << source.message();
    EXPECT_EQ(run(target, target.caches().read, got), WINNOW_OK) << target.message();
    for (int64_t head = 0; head < setup.shape(rows.layer).kv_heads; ++head)
        EXPECT_EQ(target.positions(0, rows.layer, head), restored.positions(0, rows.layer, head)) << "head " << head;
    int64_t packed = 0;
    using Part = std::tuple<const TestTensor*, const TestTensor*, const TestTensor*, const TestTensor*>;
    for (const auto& [before, after, want_values, got_values] :
         {Part{&rows.k, &again.k, &want.k, &got.k}, Part{&rows.v, &again.v, &want.v, &got.v}})
        before->each_row([&, before = before, after = after, a = want_values, b = got_values](const Index& at) {
            if (std::isnan(got.k.get({0, at[1], at[2], 0}))) return; // evicted by now, as in `restored`
            const CacheSetup& its = of_heads[static_cast<size_t>(at[1])];
            const uint32_t type = before == &rows.k ? its.k_type : its.v_type;
            const std::vector<std::byte> x = packed_row(source, *before, at, type),
                                         y = packed_row(target, *after, at, type);
            if (x.empty() && !y.empty()) return; // packed for the first time
            const std::string what = std::string(before == &rows.k ? "k" : "v") + " of head " + std::to_string(at[1]) +
                                     ", token " + std::to_string(at[2]);
            packed += !x.empty() && !y.empty();
            if (setup.center && !x.empty()) { // less the means of other tokens: packed anew
                for (Index i = at; i[3] < a->shape()[3]; ++i[3])
                    EXPECT_NEAR(b->get(i), a->get(i), .05 * std::fabs(a->get(i)) + .05) << what;
                return;
            }
            EXPECT_TRUE(std::equal(a->element(at), a->element(at) + a->row_size(), b->element(at))) << what;
            EXPECT_TRUE(y.empty() || x == y) << what << ": other packed bytes";
        });
    return packed;
}

// Into other cells, empty or beside others: the same heads have the same tokens, and what comes next goes the same way.
void run_cells(CacheSetup setup, bool is_beside) {
    setup.cells = 200;
    setup.context = 4096;
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup), restored(subject(), setup);
    const auto moved = [](const std::vector<int64_t>& cells) {
        std::vector<int64_t> others;
        for (const int64_t cell : cells) others.push_back((cell + 37) % 200);
        return others;
    };
    std::vector<int64_t> from, next;
    for (int64_t each = 0; each < 110; ++each) from.push_back((each * 7) % 200);
    for (int64_t each = 110; each < 170; ++each) next.push_back((each * 7) % 200);
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        ASSERT_NO_FATAL_FAILURE(append_cells({&source}, layer, engine(), {from}));
        if (is_beside) {
            ASSERT_NO_FATAL_FAILURE(append_cells({&target, &restored}, layer, engine(), {moved(next), moved(next)}));
        }
        const TokenRows rows = exported(source, layer, from);
        TokenRows given = as_given(setup, rows, moved(from));
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
        if (is_beside) {
            TokenRows values = make_rows(setup, layer, 0, from);
            ASSERT_EQ(run(source, source.caches().read, values), WINNOW_OK) << source.message();
            values.tokens = make_rows(setup, layer, 0, moved(from)).tokens;
            ASSERT_EQ(run(restored, restored.caches().import_rows, values), WINNOW_OK) << restored.message();
            const int64_t packed = expect_same_rows(target, source, restored, rows, from, moved(from));
            const std::vector<CacheSetup> of_heads = setup.of_heads(layer);
            const bool has_packed = std::any_of(of_heads.begin(), of_heads.end(), [](const CacheSetup& its) {
                return is_packed(its.k_type) || is_packed(its.v_type);
            });
            EXPECT_EQ(packed > 0, has_packed) << packed << " packed rows were compared";
            continue;
        }
        ASSERT_EQ(difference(rows, exported(target, layer, moved(from))), "") << "layer " << layer;
        const uint64_t seed = engine();
        for (size_t at = 0; at < next.size(); at += 12) {
            const std::vector<int64_t> some(next.begin() + static_cast<int64_t>(at),
                                            next.begin() + static_cast<int64_t>(at) + 12);
            ASSERT_NO_FATAL_FAILURE(append_cells({&source, &target}, layer, seed + at, {some, moved(some)}));
        }
        from.insert(from.end(), next.begin(), next.end());
        ASSERT_EQ(difference(exported(source, layer, from), exported(target, layer, moved(from))), "")
            << "layer " << layer << " after more tokens";
        from.resize(110);
    }
    EXPECT_LE(target.stats().bytes, target.stats().budget_bytes);
}

// The few tokens of one sequence among another's, exported in two parts: they are the same bytes again alone in an
// empty cache, and beside others.
void run_apart(CacheSetup setup) {
    setup.cells = 200;
    setup.context = 4096;
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), alone(subject(), setup), beside(subject(), setup);
    const std::vector<int64_t> first = {2, 3}, second = {5}, all = {7, 8, 9};
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        ASSERT_NO_FATAL_FAILURE(append_cells({&source}, layer, engine(), {{0, 1, 2}}, true));
        ASSERT_NO_FATAL_FAILURE(append_cells({&source}, layer, engine(), {{3, 4, 5}}, true));
        ASSERT_NO_FATAL_FAILURE(append_cells({&beside}, layer, engine(), {{20, 21}}, true));
        TokenRows rows = make_rows(setup, layer, 0, all);
        const TokenRows parts[] = {exported(source, layer, first), exported(source, layer, second)};
        for (int64_t part : {0, 1})
            for (const auto& [to, from] : {std::pair{&rows.k, &parts[part].k}, std::pair{&rows.v, &parts[part].v}})
                from->each_row([&, to = to, from = from](const Index& at) {
                    std::memcpy(to->element({0, at[1], at[2] + 2 * part, 0}), from->element(at), from->row_size());
                });
        for (CacheHost* target : {&alone, &beside}) {
            TokenRows given = as_given(setup, rows, all);
            ASSERT_EQ(run(*target, target->caches().import_rows, given), WINNOW_OK) << target->message();
            ASSERT_EQ(difference(rows, exported(*target, layer, all)), "")
                << "layer " << layer << (target == &alone ? ", alone" : ", beside others");
        }
        if (!setup.keeps_importance()) continue;
        for (int64_t head = 0; head < setup.shape(layer).kv_heads; ++head) {
            const auto of = [&](CacheHost& cache, const std::vector<int64_t>& cells) {
                const auto resident = cache.positions(0, layer, head);
                const std::vector<float> of_all = cache.importance(0, layer, head);
                std::vector<float> values;
                for (size_t i = 0; i < resident.size(); ++i)
                    if (std::find(cells.begin(), cells.end(), resident[i]) != cells.end()) values.push_back(of_all[i]);
                return values;
            };
            EXPECT_EQ(of(alone, all), of(source, {2, 3, 5})) << "head " << head;
            EXPECT_EQ(of(beside, all), of(source, {2, 3, 5})) << "head " << head;
        }
    }
}

// A record that changed by a bit is refused, and the cache is as before.
void run_damaged(const CacheSetup& setup) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed({&source}, engine, 200));
    const TokenRows rows = exported(source, 0, token_ids_to(200));
    const std::string before = target.portrait();
    std::vector<Index> records;
    uint16_t first = 0;
    rows.k.each_row([&](const Index& at) {
        std::memcpy(&first, rows.k.element(at), sizeof first);
        if (first == 0x7fa5) records.push_back(at);
    });
    ASSERT_GT(records.size(), 10U) << "nothing was packed";
    for (int tried = 0; tried < 100; ++tried) {
        TokenRows given = as_given(setup, rows, token_ids_to(200));
        const size_t at = 2 + engine() % (given.k.row_size() - 2); // an unmarked row is a plain one
        given.k.element(records[engine() % records.size()])[at] ^= static_cast<std::byte>(1U << engine() % 8);
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_ERROR_INVALID_ARGUMENT) << "byte " << at;
        ASSERT_NE(target.message().find("k of token"), std::string::npos) << target.message();
        ASSERT_EQ(target.portrait(), before);
    }
    TokenRows given = as_given(setup, rows, token_ids_to(200));
    ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
}

// Formats and policies that are others: who holds what is the same, and rows are converted.
void run_conversion(const CacheSetup& setup, CacheSetup other) {
    std::mt19937_64 engine(options().seed);
    CacheHost source(subject(), setup), target(subject(), other);
    ASSERT_NO_FATAL_FAILURE(feed({&source}, engine, 130));
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        TokenRows given = as_given(setup, exported(source, layer, token_ids_to(130)), token_ids_to(130));
        ASSERT_EQ(run(target, target.caches().import_rows, given), WINNOW_OK) << target.message();
        for (int64_t head = 0; head < setup.shape(layer).kv_heads; ++head)
            EXPECT_EQ(target.positions(0, layer, head), source.positions(0, layer, head)) << "layer " << layer;
        ASSERT_NO_FATAL_FAILURE(expect_near(source, target, layer, 130));
    }
}

// Rows that the host's type does not hold are refused, and nothing is written.
void run_rounded(uint32_t stored, uint32_t type, bool center) {
    CacheSetup setup{.k_type = stored, .v_type = stored, .center = center};
    std::mt19937_64 engine(1);
    CacheHost cache(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed({&cache}, engine, 100)); // some of them leave the residual window
    const std::string before = cache.portrait();
    TokenRows rows = make_token_rows(setup, 0, 0, token_ids_to(100), type);
    const std::vector<std::byte> k = bytes_of(rows.k), v = bytes_of(rows.v);
    EXPECT_EQ(run(cache, cache.caches().export_rows, rows), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_NE(cache.message().find("does not hold the row"), std::string::npos) << cache.message();
    EXPECT_TRUE(bytes_of(rows.k) == k && bytes_of(rows.v) == v) << "something was written";
    EXPECT_EQ(cache.portrait(), before);
}

void run_refused() {
    CacheSetup setup;
    std::mt19937_64 engine(1);
    CacheHost cache(subject(), setup);
    ASSERT_NO_FATAL_FAILURE(feed({&cache}, engine, 40));
    const std::string before = cache.portrait();
    const auto expect_refused = [&](TokenRowsFunction function, TokenRows rows, const std::string& what) {
        EXPECT_EQ(run(cache, function, rows), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(cache.message().find(what), std::string::npos) << cache.message();
        EXPECT_EQ(cache.portrait(), before);
    };
    TokenRows rows = make_token_rows(setup, 0, 0, {1, 2}, WINNOW_TYPE_F32);
    expect_refused(cache.caches().export_rows, rows, "expected F16 or BF16 for exact rows");
    rows.tokens = TestTensor();
    rows.k = make_token_rows(setup, 0, 0, {1, 2}, WINNOW_TYPE_F16).k; // in F32 both are values
    expect_refused(cache.caches().import_rows, rows, "v is F32, expected F16 or BF16 for exact rows");
    rows = make_rows(setup, 0, 0, {1, 2});
    expect_refused(cache.caches().import_rows, rows, "tokens is given, expected NULL");
    rows = make_token_rows(setup, 0, 0, {1, 2}, WINNOW_TYPE_F16);
    rows.v = TestTensor();
    rows.tokens = TestTensor();
    expect_refused(cache.caches().import_rows, rows, "v is NULL");
}

} // namespace

void register_cache_exact_rows() {
    const std::string suite = "exact_rows";
    int at = 0;
    for (const NamedSetup& each : all_setups()) {
        // Rows that are not packed do not come back in 16 bits where they are less a mean: shapes of packed ones.
        CacheSetup setup = with_shape(each.setup, each.setup.center ? 1 + at % 4 : at % cache_shapes);
        for (int64_t layer = 0; layer < setup.layers; ++layer)
            for (const CacheSetup& its : setup.of_heads(layer))
                if (its.k_type == WINNOW_TYPE_F32 || its.v_type == WINNOW_TYPE_F32)
                    setup.type = WINNOW_TYPE_F16; // or F16 rows would round them
        const int64_t first =
            std::min<int64_t>(std::array{60, 110, 150}[static_cast<size_t>(at % 3)], setup.context / 2);
        const Parts parts = at++ % 2 == 1 ? Parts::both : Parts::none;
        register_cache_test(suite, "continuation_" + each.name, __FILE__, __LINE__,
                            [=] { run_continuation(setup, first, parts); });
        for (const bool moves : {false, true})
            register_cache_test(suite, (moves ? "moved_" : "truncated_") + each.name, __FILE__, __LINE__,
                                [=] { run_edited(setup, moves); });
        if (setup.policy != Policy::adaptive_budget && setup.residual >= 6)
            register_cache_test(suite, "apart_" + each.name, __FILE__, __LINE__, [=] { run_apart(setup); });
        // Beside others rows of 2 bits are further off when they are packed anew than this test permits.
        const bool is_beside = setup.residual > 0 && at % 3 == 0 && setup.own_formats.empty();
        if (setup.policy != Policy::adaptive_budget && setup.budget > 0)
            register_cache_test(suite, "cells_" + each.name, __FILE__, __LINE__, [=] { run_cells(setup, is_beside); });
    }
    const CacheSetup packed = with_shape({}, 1);
    register_cache_test(suite, "keys_in_parts", __FILE__, __LINE__,
                        [=] { run_continuation(packed, 110, Parts::first_key); });
    CacheSetup centered = with_shape({}, 2); // of many bits: rows are packed anew, less the means of other tokens
    centered.center = true;
    register_cache_test(suite, "means_in_values", __FILE__, __LINE__, [=] { run_means_in_values(centered); });
    register_cache_test(suite, "damaged", __FILE__, __LINE__, [=] { run_damaged(packed); });
    CacheSetup other = packed;
    other.k_type = other.v_type = WINNOW_TYPE_Q8_0;
    register_cache_test(suite, "conversion", __FILE__, __LINE__, [=] { run_conversion(packed, other); });
    register_cache_test(suite, "refused", __FILE__, __LINE__, [] { run_refused(); });
    for (const auto& [name, stored, type, center] : {std::tuple{"rounded_f32", WINNOW_TYPE_F32, WINNOW_TYPE_F16, false},
                                                     {"rounded_f16", WINNOW_TYPE_Q8_0, WINNOW_TYPE_BF16, false},
                                                     {"rounded_centered", WINNOW_TYPE_F16, WINNOW_TYPE_F16, true}})
        register_cache_test(suite, name, __FILE__, __LINE__,
                            [stored = stored, type = type, center = center] { run_rounded(stored, type, center); });
}

} // namespace winnow::conformance
