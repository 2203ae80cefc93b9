// Appending rows against the reference, bit for bit: conversions, scattered and skipped rows, layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "elements.hpp"
#include "registered_cases.hpp"
#include "registration.hpp"
#include "session.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {
namespace {

enum class Rows { k_and_v, only_k, only_v };
enum class Indices { in_order, scattered, with_skipped, all_skipped };
enum class Numbers { normal, hostile }; // hostile: ties, denormals, overflow, infinities, NaN

struct AppendCase {
    std::string name;
    int64_t batch = 1, heads = 2, tokens = 3, k_size = 64, v_size = 64, k_slots = 40, v_slots = 40;
    uint32_t src_type = WINNOW_TYPE_F32, k_type = WINNOW_TYPE_F16, v_type = WINNOW_TYPE_F16;
    uint32_t index_type = WINNOW_TYPE_I32;
    int64_t index_batch = 1, index_heads = 1;
    bool own_v_indices = false;
    Rows rows = Rows::k_and_v;
    Indices indices = Indices::scattered;
    Numbers numbers = Numbers::normal;
    Layout src_layout = Layout::packed, cache_layout = Layout::packed;
    Memory memory = Memory::host;
};

double number_for(Numbers numbers, uint32_t target, std::mt19937_64& engine) {
    const double uniform = static_cast<double>(engine() >> 11) * 0x1p-53;
    if (numbers == Numbers::normal) return 6 * uniform - 3;
    const HalfFormat format = target == WINNOW_TYPE_BF16 ? bf16_format : f16_format;
    const double sign = engine() % 2 ? 1 : -1;
    const double one_half = 0.5 * (engine() % 2);
    switch (engine() % 8) {
    case 0: // a tie of the target's, or its neighbour
        return sign * std::ldexp(static_cast<double>(engine() % 4096) + one_half, -format.fraction_bits) *
               (1 + static_cast<double>(engine() % 3 - 1.0) * 0x1p-22);
    case 1: // around the target's denormals
        return sign * std::ldexp(static_cast<double>(engine() % 2048) + one_half,
                                 format.lowest_exponent - format.fraction_bits);
    case 2: return sign * largest(target) * (1 - 0x1p-12 + uniform * 0x1p-11); // around its largest
    case 3: return sign * std::ldexp(1 + uniform, static_cast<int>(engine() % 250) - 125);
    case 4: return sign * 0;
    case 5: return sign * std::numeric_limits<double>::infinity();
    case 6: return std::numeric_limits<double>::quiet_NaN();
    default: return sign * std::ldexp(static_cast<double>(engine() % 1000), -149); // denormal floats
    }
}

struct AppendProblem {
    AppendCase shape;
    TestTensor k_src, v_src, k_cache, v_cache, k_indices, v_indices;

    AppendProblem() = default;
    AppendProblem(const AppendCase& what, uint64_t seed) : shape(what) {
        const AppendCase& c = shape;
        std::mt19937_64 engine(seed);
        auto side = [&](TestTensor& src, TestTensor& cache, uint32_t type, int64_t size, int64_t slots) {
            src = TestTensor(c.src_type, {c.batch, c.heads, c.tokens, size}, c.src_layout, c.memory);
            cache = TestTensor(type, {c.batch, c.heads, slots, size}, c.cache_layout, c.memory);
            src.each([&](const Index& at) { src.set(at, number_for(c.numbers, type, engine)); });
            cache.each([&](const Index& at) { cache.set(at, static_cast<double>(engine() % 100)); });
        };
        const bool has_k = c.rows != Rows::only_v, has_v = c.rows != Rows::only_k;
        const bool v_has_own = has_v && (!has_k || c.own_v_indices);
        if (has_k) side(k_src, k_cache, c.k_type, c.k_size, c.k_slots);
        if (has_k) fill_indices(k_indices, c.k_slots, v_has_own || !has_v ? 0 : c.v_slots, engine);
        if (has_v) side(v_src, v_cache, c.v_type, c.v_size, c.v_slots);
        if (v_has_own) fill_indices(v_indices, c.v_slots, 0, engine);
    }

    // Of a cache with so many slots, and of another one beside it: what is to be skipped lies beyond both.
    void fill_indices(TestTensor& indices, int64_t slots, int64_t slots_beside, std::mt19937_64& engine) {
        const AppendCase& c = shape;
        indices = TestTensor(c.index_type, {c.index_batch, c.index_heads, 1, c.tokens}, c.src_layout, c.memory);
        for (int64_t b = 0; b < c.index_batch; ++b)
            for (int64_t h = 0; h < c.index_heads; ++h) {
                std::vector<int64_t> order(static_cast<size_t>(std::max(slots, c.tokens)));
                std::iota(order.begin(), order.end(), 0); // without doubles: which one remains is not defined
                if (c.indices != Indices::in_order) std::shuffle(order.begin(), order.begin() + slots, engine);
                const auto past = static_cast<double>(std::max(slots, slots_beside));
                const double beyond[] = {-1,
                                         -2,
                                         past,
                                         past + 1,
                                         -2147483648.0,
                                         2147483647.0,
                                         c.index_type == WINNOW_TYPE_I64 ? 4294967296.0 : -3.0,
                                         c.index_type == WINNOW_TYPE_I64 ? -9007199254740992.0 : -5.0};
                for (int64_t t = 0; t < c.tokens; ++t) {
                    double row = static_cast<double>(order[static_cast<size_t>(t)]);
                    if (c.indices == Indices::all_skipped || (c.indices == Indices::with_skipped && t % 2 == 0))
                        row = beyond[engine() % 8];
                    indices.set({b, h, 0, t}, row);
                }
            }
    }

    AppendProblem for_reference() const {
        AppendProblem copy;
        copy.shape = shape;
        copy.k_src = k_src.packed_copy();
        copy.v_src = v_src.packed_copy();
        copy.k_cache = k_cache.packed_copy();
        copy.v_cache = v_cache.packed_copy();
        copy.k_indices = k_indices.packed_copy();
        copy.v_indices = v_indices.packed_copy();
        return copy;
    }

    winnow_kv_append_desc desc() const {
        winnow_kv_append_desc d{};
        d.struct_size = sizeof d;
        d.k_src = k_src.view();
        d.v_src = v_src.view();
        d.k_cache = k_cache.view();
        d.v_cache = v_cache.view();
        d.k_row_indices = k_indices ? k_indices.view() : nullptr;
        d.v_row_indices = v_indices ? v_indices.view() : nullptr;
        return d;
    }

    void bind(Session& session) {
        for (TestTensor* tensor : {&k_src, &v_src, &k_cache, &v_cache, &k_indices, &v_indices}) tensor->bind(session);
    }
    void fetch() {
        for (TestTensor* tensor : {&k_src, &v_src, &k_cache, &v_cache, &k_indices, &v_indices}) tensor->fetch();
    }
};

std::string first_difference(const TestTensor& got, const TestTensor& want, const TestTensor& src) {
    std::ostringstream text;
    int count = 0;
    const size_t size = element_size(got.type());
    got.each([&](const Index& at) {
        const double a = got.get(at), b = want.get(at);
        if (std::isnan(a) && std::isnan(b)) return; // a NaN stays one; its payload is free
        if (std::memcmp(got.element(at), want.element(at), size) == 0) return;
        if (++count > 1) return;
        text << type_name(src.type()) << " -> " << type_name(got.type()) << ": cache[" << at[0] << ", " << at[1] << ", "
             << at[2] << ", " << at[3] << "] is " << std::hexfloat << a << ", the reference says " << b;
    });
    if (count > 1) text << "; " << std::dec << count << " elements in all";
    return text.str();
}

void run_case(const AppendCase& shape, uint64_t seed) {
    AppendProblem problem(shape, seed);
    const Session::Answer before = subject().supports(problem.desc());
    AppendProblem wanted = problem.for_reference();
    problem.bind(subject());
    const winnow_kv_append_desc desc = problem.desc();
    const Session::Answer with_memory = subject().supports(desc);
    const uint64_t tokens_before = subject().stats().tokens_appended;
    const int32_t status = subject().run(desc);
    const std::string message = status == WINNOW_OK ? "" : subject().message();
    ASSERT_EQ(before.status, status) << "supports says: " << before.message << "; kv_append: " << message;
    ASSERT_EQ(with_memory.status, status) << with_memory.message;
    EXPECT_NE(before.message, "") << "neither a variant nor a reason";
    ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    problem.fetch();
    if (status == WINNOW_ERROR_UNSUPPORTED) {
        subject().note_unsupported("kv_append", before.message);
        EXPECT_EQ(problem.k_cache.change(), "");
        EXPECT_EQ(problem.v_cache.change(), "");
        GTEST_SKIP() << "UNSUPPORTED: " << before.message;
    }
    ASSERT_EQ(status, WINNOW_OK) << message;
    EXPECT_EQ(subject().stats().tokens_appended - tokens_before, static_cast<uint64_t>(shape.batch * shape.tokens));

    wanted.bind(reference());
    ASSERT_EQ(reference().run(wanted.desc()), WINNOW_OK) << reference().message();
    EXPECT_EQ(first_difference(problem.k_cache, wanted.k_cache, problem.k_src), "");
    EXPECT_EQ(first_difference(problem.v_cache, wanted.v_cache, problem.v_src), "");
    EXPECT_EQ(problem.k_cache.damage(), "") << "beside k_cache";
    EXPECT_EQ(problem.v_cache.damage(), "") << "beside v_cache";
    for (const TestTensor* input : {&problem.k_src, &problem.v_src, &problem.k_indices, &problem.v_indices})
        EXPECT_EQ(input->change(), "") << "an input";
}

std::vector<AppendCase> table() {
    std::vector<AppendCase> cases;
    auto add = [&](std::string name, auto change) {
        AppendCase c;
        c.name = std::move(name);
        change(c);
        cases.push_back(c);
    };
    const uint32_t floating[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
    for (uint32_t src : floating)
        for (uint32_t k : floating)
            for (uint32_t v : floating)
                add(std::string(type_name(src)) + "_to_" + type_name(k) + "_and_" + type_name(v), [&](AppendCase& c) {
                    c.src_type = src;
                    c.k_type = k;
                    c.v_type = v;
                    c.numbers = Numbers::hostile;
                    c.tokens = 30;
                    c.v_size = 80;
                });
    for (int rows = 0; rows < 3; ++rows)
        for (uint32_t type : {WINNOW_TYPE_I32, WINNOW_TYPE_I64})
            for (int indices = 0; indices < 4; ++indices)
                add("rows_" + std::to_string(rows) + "_" + type_name(type) + "_indices_" + std::to_string(indices),
                    [&](AppendCase& c) {
                        c.rows = Rows(rows);
                        c.index_type = type;
                        c.indices = Indices(indices);
                        c.tokens = 7;
                        c.own_v_indices = indices == 1;
                        c.v_slots = 23;
                    });
    for (int64_t index_batch : {1, 2, 4})
        for (int64_t index_heads : {1, 3, 6})
            add("index_batch_" + std::to_string(index_batch) + "_heads_" + std::to_string(index_heads),
                [&](AppendCase& c) {
                    c.batch = 4;
                    c.heads = 6;
                    c.index_batch = index_batch;
                    c.index_heads = index_heads;
                    c.k_size = c.v_size = 24;
                    c.indices = Indices::with_skipped;
                    c.own_v_indices = index_heads == 3;
                });
    for (int64_t size : {1, 2, 3, 5, 16, 40, 65, 80, 128, 576})
        add("size_" + std::to_string(size), [&](AppendCase& c) {
            c.k_size = size;
            c.v_size = 577 - size;
        });
    for (int64_t tokens : {1, 2, 64, 513})
        add("tokens_" + std::to_string(tokens), [&](AppendCase& c) {
            c.tokens = tokens;
            c.k_slots = c.v_slots = 600;
        });
    for (Layout src : {Layout::packed, Layout::permuted, Layout::tokens_outer, Layout::padded, Layout::permuted_padded,
                       Layout::one_head})
        for (Layout cache :
             {Layout::packed, Layout::permuted, Layout::tokens_outer, Layout::padded, Layout::permuted_padded})
            add("layout_" + std::to_string(static_cast<int>(src)) + "_to_" + std::to_string(static_cast<int>(cache)),
                [&](AppendCase& c) {
                    c.batch = 2;
                    c.src_layout = src;
                    c.cache_layout = cache;
                });
    for (Memory memory : {Memory::host, Memory::allocated, Memory::imported})
        for (Layout layout : {Layout::packed, Layout::padded})
            for (uint32_t type : {WINNOW_TYPE_F32, WINNOW_TYPE_F16})
                add("memory_" + std::to_string(static_cast<int>(memory)) + "_layout_" +
                        std::to_string(static_cast<int>(layout)) + "_" + type_name(type),
                    [&](AppendCase& c) {
                        c.memory = memory;
                        c.src_layout = c.cache_layout = layout;
                        c.src_type = type;
                    });
    return cases;
}

AppendCase random_case(uint64_t seed, int index) {
    std::mt19937_64 engine(seed * 1000033 + static_cast<uint64_t>(index));
    auto below = [&](int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); };
    auto layout = [&] { return Layout(below(5)); };
    auto type = [&] { return static_cast<uint32_t>(1 + below(3)); };
    AppendCase c;
    c.name = "random_" + std::to_string(seed) + "_" + std::to_string(index);
    c.index_batch = 1 + below(2);
    c.index_heads = 1 + below(2);
    c.batch = c.index_batch * (1 + below(2));
    c.heads = c.index_heads * (1 + below(4));
    c.tokens = 1 + below(20);
    c.k_size = 1 + below(140);
    c.v_size = 1 + below(140);
    c.k_slots = c.tokens + below(50);
    c.v_slots = c.tokens + below(50);
    c.src_type = type();
    c.k_type = type();
    c.v_type = type();
    c.index_type = below(2) ? WINNOW_TYPE_I32 : WINNOW_TYPE_I64;
    c.own_v_indices = below(2) || c.v_slots < c.k_slots;
    c.rows = below(4) ? Rows::k_and_v : below(2) ? Rows::only_k : Rows::only_v;
    c.indices = Indices(below(3));
    c.numbers = Numbers(below(2));
    c.src_layout = layout();
    c.cache_layout = layout();
    c.memory = Memory(below(3));
    return c;
}

} // namespace

void register_kv_append_cases() {
    uint64_t at = 0;
    for (const AppendCase& shape : table()) {
        const uint64_t seed = options().seed + ++at;
        register_function("kv_append_table", shape.name, __FILE__, __LINE__, [=] { run_case(shape, seed); });
    }
    for (int index = 0; index < options().cases; ++index) {
        const AppendCase shape = random_case(options().seed, index);
        const uint64_t seed = options().seed * 7919 + static_cast<uint64_t>(index);
        register_function("kv_append_random", shape.name, __FILE__, __LINE__, [=] { run_case(shape, seed); });
    }
}

} // namespace winnow::conformance
