// Appends into packed caches at scattered rows: every format, many sizes, hostile numbers, rows beside them untouched
// byte for byte, K and V in different formats in one launch.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <random>

#include "elements.hpp"
#include "formats_registration.hpp"
#include "registered_cases.hpp"
#include "rows_judge.hpp"

namespace winnow::conformance {
namespace {

struct FormatAppend {
    uint32_t k_type = 0, v_type = 0; // 0: that side is absent
    int64_t k_size = 64, v_size = 64;
    int64_t batch = 1, heads = 2, tokens = number_kinds, slots = 40;
    uint32_t src_type = WINNOW_TYPE_F32, index_type = WINNOW_TYPE_I32;
    int64_t index_heads = 1;
    bool own_v_indices = false, skips = true;
    uint32_t k_norm = WINNOW_NORM_DEFAULT, v_norm = WINNOW_NORM_DEFAULT;
    Layout src_layout = Layout::packed, cache_layout = Layout::packed;
    Memory memory = Memory::host;
};

TestTensor draw_indices(const FormatAppend& c, std::mt19937_64& engine) {
    TestTensor indices(c.index_type, {1, c.index_heads, 1, c.tokens}, Layout::packed, c.memory);
    for (int64_t head = 0; head < c.index_heads; ++head) {
        std::vector<int64_t> order(static_cast<size_t>(c.slots));
        std::iota(order.begin(), order.end(), 0);
        for (size_t at = order.size(); at > 1; --at) std::swap(order[at - 1], order[engine() % at]);
        for (int64_t t = 0; t < c.tokens; ++t) {
            const double beyond[] = {-1, static_cast<double>(c.slots), -2147483648.0, 2147483647.0};
            const bool is_skipped = c.skips && (t + head) % 5 == 4;
            indices.set({0, head, 0, t},
                        is_skipped ? beyond[engine() % 4] : static_cast<double>(order[static_cast<size_t>(t)]));
        }
    }
    return indices;
}

struct Side {
    TestTensor src, cache, indices;
    void bind(Session& session) {
        for (TestTensor* tensor : {&src, &cache, &indices}) tensor->bind(session);
    }
    void fetch() {
        for (TestTensor* tensor : {&src, &cache, &indices}) tensor->fetch();
    }
    Side copy() const { return {src.packed_copy(), cache.packed_copy(), indices.packed_copy()}; }
};

winnow_kv_append_desc desc_of(const FormatAppend& c, const Side& k, const Side& v) {
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = k.src.view();
    desc.v_src = v.src.view();
    desc.k_cache = k.cache.view();
    desc.v_cache = v.cache.view();
    desc.k_row_indices = k.indices.view();
    desc.v_row_indices = v.indices.view();
    desc.k_norm = c.k_norm;
    desc.v_norm = c.v_norm;
    return desc;
}

void expect_rows(const Side& got, const Side& want, const TestTensor& indices, const char* name) {
    TestTensor numbers(WINNOW_TYPE_F32, got.src.shape());
    numbers.each([&](const Index& at) { numbers.set(at, got.src.get(at)); });
    std::map<std::pair<int64_t, int64_t>, int64_t> token_of; // (head of the indices, slot)
    indices.each([&](const Index& at) { token_of[{at[1], static_cast<int64_t>(indices.get(at))}] = at[3]; });
    const auto origin = [&](const Index& row) -> Origin {
        const auto found = token_of.find({row[1] % indices.shape()[1], row[2]});
        if (found == token_of.end()) return {};
        return {true, {row[0], row[1], found->second, 0}};
    };
    EXPECT_EQ(judge_rows({got.cache, want.cache, numbers, origin}), "") << name;
    EXPECT_EQ(got.cache.damage(), "") << "beside " << name;
    EXPECT_EQ(got.src.change(), "") << name << ": an input";
    EXPECT_EQ(got.indices.change(), "") << name << ": an input";
}

void run_append(const FormatAppend& c, uint64_t seed) {
    std::mt19937_64 engine(seed);
    Side k, v;
    const auto make = [&](Side& side, uint32_t type, int64_t size, bool has_indices) {
        if (type == 0) return;
        side.src = TestTensor(c.src_type, {c.batch, c.heads, c.tokens, size}, c.src_layout, c.memory);
        side.cache = TestTensor(type, {c.batch, c.heads, c.slots, size}, c.cache_layout, c.memory);
        side.src.each_row([&](const Index& row) {
            fill_row(side.src, row, static_cast<int>((row[2] + row[1] + row[0]) % number_kinds), engine());
        });
        if (has_indices) side.indices = draw_indices(c, engine);
    };
    make(k, c.k_type, c.k_size, true);
    make(v, c.v_type, c.v_size, c.own_v_indices || c.k_type == 0);
    Side wanted_k = k.copy(), wanted_v = v.copy();
    const Session::Answer before = subject().supports(desc_of(c, k, v));
    k.bind(subject());
    v.bind(subject());
    if (!carried_out("kv_append", before, desc_of(c, k, v))) return;
    k.fetch();
    v.fetch();
    wanted_k.bind(reference());
    wanted_v.bind(reference());
    ASSERT_EQ(reference().run(desc_of(c, wanted_k, wanted_v)), WINNOW_OK) << reference().message();
    if (c.k_type) expect_rows(k, wanted_k, k.indices, "k_cache");
    if (c.v_type) expect_rows(v, wanted_v, v.indices ? v.indices : k.indices, "v_cache");
}

void add(const std::string& name, const FormatAppend& c, uint64_t seed) {
    register_format_test("append", name, __FILE__, __LINE__, [=] { run_append(c, options().seed + seed); });
}

// The formats and sizes that share a program: every format is K once and V once.
FormatAppend pair_of(size_t at) {
    const Format& k = formats()[at % formats().size()];
    const Format& v = formats()[(at + 7) % formats().size()];
    FormatAppend c;
    c.k_type = k.type;
    c.v_type = v.type;
    c.k_size = k.multiple == 16 ? 80 : k.multiple == 1 ? 40 : std::max<int64_t>(k.multiple, 64);
    c.v_size = v.multiple == 16  ? 112
               : v.multiple == 1 ? 33
                                 : std::max<int64_t>(v.multiple, 96 / v.multiple * v.multiple);
    return c;
}

void vary(FormatAppend& c, std::mt19937_64& engine) {
    const uint32_t types[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
    c.batch = 1 + static_cast<int64_t>(engine() % 2);
    c.index_heads = 1 + static_cast<int64_t>(engine() % 2);
    c.heads = c.index_heads * (1 + static_cast<int64_t>(engine() % 3));
    c.tokens = engine() % 3 == 0 ? 1 : 1 + static_cast<int64_t>(engine() % 30);
    c.slots = c.tokens + static_cast<int64_t>(engine() % 40);
    c.src_type = types[engine() % 3];
    c.index_type = engine() % 2 ? WINNOW_TYPE_I32 : WINNOW_TYPE_I64;
    c.own_v_indices = engine() % 2;
    c.skips = engine() % 2;
    c.k_norm = static_cast<uint32_t>(engine() % 4);
    c.v_norm = static_cast<uint32_t>(engine() % 4);
    c.src_layout = Layout(engine() % 5);
    c.cache_layout = Layout(engine() % 5);
    c.memory = Memory(engine() % 3);
}

void register_sizes() {
    const int64_t by_16[] = {16, 48, 96, 128, 176, 256, 576};
    const int64_t by_32[] = {32, 128, 160, 576};
    size_t at = 0;
    for (const Format& format : formats()) {
        if (format.family == Family::dense) continue;
        FormatAppend c;
        ++at;
        const bool is_k = at % 2;
        const int64_t size = format.multiple == 16   ? by_16[at % std::size(by_16)]
                             : format.multiple == 32 ? by_32[at % std::size(by_32)]
                                                     : 3 * format.multiple;
        (is_k ? c.k_type : c.v_type) = format.type;
        (is_k ? c.k_size : c.v_size) = size;
        add(std::string(is_k ? "only_k_" : "only_v_") + format.name + "_" + std::to_string(size), c, at);
    }
    for (int64_t size : by_16) {
        FormatAppend c;
        c.k_type = WINNOW_TYPE_TURBO3_5;
        c.v_type = WINNOW_TYPE_TURBO2;
        c.k_size = size;
        c.v_size = 16;
        add("turbo3_5_" + std::to_string(size), c, static_cast<uint64_t>(size));
    }
}

// Rows in which all heads of a token lie side by side, as some hosts store them: far longer than any head.
void register_merged_heads() {
    const struct {
        uint32_t k_type;
        int64_t k_size;
        uint32_t v_type;
        int64_t v_size;
    } rows[] = {{WINNOW_TYPE_Q8_0, 1024, WINNOW_TYPE_Q4_0, 4096},
                {WINNOW_TYPE_Q5_1, 1056, WINNOW_TYPE_IQ4_NL, 1120},
                {WINNOW_TYPE_Q5_0, 4096, WINNOW_TYPE_Q4_1, 1024},
                {WINNOW_TYPE_IQ4_NL, 65536, WINNOW_TYPE_BF16, 65536},
                {WINNOW_TYPE_AFFINE8_G64, 1088, WINNOW_TYPE_AFFINE4_G128, 1152},
                {WINNOW_TYPE_AFFINE4_G32, 4096, WINNOW_TYPE_AFFINE8_G32, 608}};
    for (const auto& [k_type, k_size, v_type, v_size] : rows) {
        FormatAppend c;
        c.k_type = k_type;
        c.v_type = v_type;
        c.k_size = k_size;
        c.v_size = v_size;
        c.heads = 1;
        c.slots = number_kinds + 2;
        c.src_type = k_size % 3 == 1 ? WINNOW_TYPE_F32 : WINNOW_TYPE_F16;
        c.cache_layout = k_size % 64 ? Layout::padded : Layout::packed;
        add("merged_heads_" + type_name(k_type) + "_" + std::to_string(k_size) + "_" + type_name(v_type) + "_" +
                std::to_string(v_size),
            c, static_cast<uint64_t>(k_size));
    }
}

} // namespace

void register_format_appends() {
    for (size_t at = 0; at < formats().size(); ++at) {
        const FormatAppend c = pair_of(at);
        const std::string name = "k_" + type_name(c.k_type) + "_v_" + type_name(c.v_type);
        add(name, c, at);
        for (uint32_t norm : {WINNOW_NORM_PLAIN, WINNOW_NORM_CORRECTED, WINNOW_NORM_UNIT_SLOPE}) {
            if (!is_turbo(c.k_type) && !is_turbo(c.v_type)) continue;
            FormatAppend normed = c;
            normed.k_norm = norm;
            normed.v_norm = 1 + norm % 3;
            add(name + "_norm_" + std::to_string(norm), normed, at);
        }
        for (int which = 0; which < 4; ++which) {
            FormatAppend varied = c;
            std::mt19937_64 engine(at * 100 + static_cast<uint64_t>(which));
            vary(varied, engine);
            add(name + "_varied_" + std::to_string(which), varied, at * 100 + static_cast<uint64_t>(which));
        }
    }
    register_sizes();
    register_merged_heads();
    for (int index = 0; index < options().cases; ++index) {
        std::mt19937_64 engine(options().seed * 7919 + static_cast<uint64_t>(index));
        FormatAppend c = pair_of(engine());
        vary(c, engine);
        add("random_" + std::to_string(options().seed) + "_" + std::to_string(index), c, engine());
    }
}

} // namespace winnow::conformance
