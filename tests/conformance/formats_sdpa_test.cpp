// Attention over packed keys and values: every format of K with every format of V, every option, many head sizes,
// values passed over. Programs are few and cases many: a program of sdpa_vector or sdpa_prefill is one pair of formats
// and head sizes, and one number of rows.
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "formats_registration.hpp"
#include "registered_cases.hpp"
#include "sdpa_problem.hpp"

namespace winnow::conformance {
namespace {

void run_cases(const std::vector<std::pair<SdpaCase, uint64_t>>& cases) {
    int refused = 0;
    std::string refusal;
    for (const auto& [shape, seed] : cases) {
        SCOPED_TRACE(shape.name + ": " + describe(shape));
        std::string reason;
        const std::string wrong = judge_sdpa(shape, seed, &reason);
        EXPECT_EQ(wrong, "");
        if (!reason.empty()) ++refused, refusal = reason;
    }
    if (refused > 0) GTEST_SKIP() << "UNSUPPORTED: " << refusal;
}

// ---- Pairs ---------------------------------------------------------------------------------------------------------

int64_t draw_size(const Format& format, std::mt19937_64& engine) {
    const int64_t sizes[] = {16, 32, 32,
                             48, 64, 128}; // small ones, for the compiler's sake; register_sizes has the rest
    for (;;)
        if (const int64_t size = sizes[engine() % std::size(sizes)]; fits(format, size)) return size;
}

size_t apart(size_t k, size_t v) { return (v + formats().size() - k) % formats().size(); }

// Each pair is a program to compile, and the code of a format of K knows nothing of V's. So unless all are asked for,
// each format is twice K and twice V, in a prompt with itself and in a step with another; or once each.
bool is_tried(size_t k, size_t v) {
    switch (options().pairs) {
    case Pairs::few: return apart(k, v) == 7;
    case Pairs::sample: return apart(k, v) == 0 || apart(k, v) == 7;
    default: return true;
    }
}

bool is_prompt(size_t k, size_t v, std::mt19937_64& engine) {
    if (options().pairs == Pairs::few) return k % 2 == 1;
    return apart(k, v) == 0 || (apart(k, v) != 7 && engine() % 4 == 0);
}

// The formats, head sizes and rows of a pair: what its program depends on. The same whatever the seed.
SdpaCase shape_of_pair(size_t k, size_t v) {
    std::mt19937_64 engine(k * formats().size() + v + 1);
    struct Rows {
        int64_t group, q_len;
    };
    const Rows steps[] = {{1, 1}, {2, 1}, {1, 1}, {1, 2}, {9, 1}, {4, 1}}, prompts[] = {{1, 20}, {2, 33}};
    SdpaCase c;
    c.k_type = formats()[k].type;
    c.v_type = formats()[v].type;
    c.head_size = draw_size(formats()[k], engine);
    c.v_head_size = fits(formats()[v], c.head_size) && engine() % 2 ? c.head_size : draw_size(formats()[v], engine);
    const auto [group, q_len] =
        is_prompt(k, v, engine) ? prompts[engine() % std::size(prompts)] : steps[engine() % std::size(steps)];
    c.kv_heads = q_len > 1 ? 1 : 2;
    c.q_heads = c.kv_heads * group;
    c.q_len = q_len;
    return c;
}

// A case of the same program as `c`, with everything else drawn.
SdpaCase drawn(SdpaCase c, std::mt19937_64& engine) {
    const int64_t lengths[] = {1, 3, 15, 16, 17, 37, 64, 65, 130, 201};
    c.kv_len = lengths[engine() % std::size(lengths)];
    c.kv_batch = 1 + static_cast<int64_t>(engine() % 2);
    c.batch = c.kv_batch * (1 + static_cast<int64_t>(engine() % 3 == 0));
    c.norm = static_cast<uint32_t>(engine() % 4);
    draw_options(c, engine);
    return c;
}

// Rows that nobody sees hold bytes that are no numbers.
SdpaCase with_garbage(SdpaCase c, std::mt19937_64& engine) {
    c.kv_len = 90 + static_cast<int64_t>(engine() % 20);
    c.content = Content::garbage_unseen;
    c.row_stats = true;
    c.scores_mode = engine() % 2 ? WINNOW_SCORES_PROBS : WINNOW_SCORES_NONE;
    c.k_layout = c.v_layout = engine() % 2 ? Layout::permuted_padded : Layout::packed;
    if (engine() % 2) {
        c.mask_shape = MaskShape::shared;
        c.mask_type = engine() % 2 ? WINNOW_TYPE_BOOL : WINNOW_TYPE_F16;
        c.mask_content = MaskContent::minus_infinity;
    } else {
        c.is_causal = true;
        c.q_offset = c.kv_len / 2 - c.q_len;
    }
    return c;
}

constexpr Content hostile_contents[] = {Content::one_huge,  Content::nan_key,    Content::nan_value,
                                        Content::zeros,     Content::denormal,   Content::inf_value,
                                        Content::nan_query, Content::huge_logits};

SdpaCase hostile(SdpaCase c, Content content, std::mt19937_64& engine) {
    c.kv_len = 40 + static_cast<int64_t>(engine() % 50);
    c.content = content;
    c.is_causal = c.content != Content::denormal; // so that some rows see the bad row and some do not
    c.q_offset = c.kv_len / 2 - 1;
    c.row_stats = true;
    c.scores_mode = static_cast<uint32_t>(engine() % 5);
    return c;
}

// What is_tried and is_prompt promise.
void expect_every_format() {
    std::set<std::pair<bool, uint32_t>> k_types, v_types;
    for (size_t k = 0; k < formats().size(); ++k)
        for (size_t v = 0; v < formats().size(); ++v) {
            if (!is_tried(k, v)) continue;
            const SdpaCase pair = shape_of_pair(k, v);
            const bool is_prefill = options().pairs != Pairs::few && pair.q_len > 8;
            k_types.emplace(is_prefill, pair.k_type);
            v_types.emplace(is_prefill, pair.v_type);
        }
    const size_t wanted = formats().size() * (options().pairs == Pairs::few ? 1 : 2);
    EXPECT_EQ(k_types.size(), wanted);
    EXPECT_EQ(v_types.size(), wanted);
}

void register_pairs() {
    register_format_test("pairs", "every_format", __FILE__, __LINE__, expect_every_format);
    for (size_t k = 0; k < formats().size(); ++k)
        for (size_t v = 0; v < formats().size(); ++v) {
            if (!is_tried(k, v)) {
                ++left_out()["pairs of formats"];
                continue;
            }
            const std::string name = std::string("k_") + formats()[k].name + "_v_" + formats()[v].name;
            register_format_test("pairs", name, __FILE__, __LINE__, [=] {
                const uint64_t seed = options().seed * 1000 + k * formats().size() + v;
                std::mt19937_64 engine(seed);
                const SdpaCase pair = shape_of_pair(k, v);
                std::vector<std::pair<SdpaCase, uint64_t>> cases{
                    {drawn(pair, engine), seed},
                    {with_garbage(pair, engine), seed},
                    {hostile(pair, hostile_contents[(k + v) % std::size(hostile_contents)], engine), seed}};
                if (has_bias(pair.k_type)) cases.push_back({hostile(pair, Content::beyond_half, engine), seed});
                run_cases(cases);
            });
        }
}

void register_random() {
    for (int index = 0; index < options().cases; ++index)
        register_format_test("random", std::to_string(options().seed) + "_" + std::to_string(index), __FILE__, __LINE__,
                             [=] {
                                 const uint64_t seed = options().seed * 7919 + static_cast<uint64_t>(index);
                                 std::mt19937_64 engine(seed);
                                 size_t k = 0, v = 0;
                                 do {
                                     k = engine() % formats().size();
                                     v = engine() % formats().size();
                                 } while (!is_tried(k, v));
                                 run_cases({{drawn(shape_of_pair(k, v), engine), seed}});
                             });
}

// ---- Small ones: both kernels with every format of K and of V ------------------------------------------------------

SdpaCase small_case(size_t at, bool is_prefill) {
    const Format &k = formats()[at], &v = formats()[(at + 7) % formats().size()];
    SdpaCase c;
    c.k_type = k.type;
    c.v_type = v.type;
    c.head_size = std::max<int64_t>(k.multiple, 16);
    c.v_head_size = std::max<int64_t>(v.multiple, at % 2 ? 32 : 16);
    c.kv_heads = 1;
    c.q_heads = is_prefill ? 1 : 2;
    c.q_len = is_prefill ? 9 : 1;
    return c;
}

void register_small() {
    for (size_t at = 0; at < formats().size(); ++at)
        for (const bool is_prefill : {false, true}) {
            const SdpaCase shape = small_case(at, is_prefill);
            const std::string name = std::string(is_prefill ? "prefill" : "vector") + "_k_" + type_name(shape.k_type) +
                                     "_v_" + type_name(shape.v_type);
            register_format_test("small", name, __FILE__, __LINE__, [=] {
                const uint64_t seed = options().seed * 1000 + 2 * at + is_prefill;
                std::mt19937_64 engine(seed);
                SdpaCase split = drawn(shape, engine), sparse = with_garbage(shape, engine);
                split.batch = split.kv_batch = 1;
                split.kv_len = 65 + static_cast<int64_t>(at % 9);
                sparse.kv_len = 5 + static_cast<int64_t>(2 * at);
                sparse.q_offset = sparse.kv_len / 2 - sparse.q_len;
                sparse.v_threshold = 0.02f;
                sparse.count_skipped = true;
                run_cases({{split, seed}, {sparse, seed}});
            });
        }
}

// ---- Products of small matrices: what kernels take by them, in the sizes in which they do ---------------------------

// With few pairs each format of K goes with two of V: itself, and the one three places behind it in the list.
bool is_product_left_out(size_t at, size_t types) {
    const size_t step = (at % types + types - at / types) % types;
    return options().pairs == Pairs::few && step != 0 && step != types / 2;
}

void register_products() {
    const uint32_t types[] = {WINNOW_TYPE_F16,    WINNOW_TYPE_Q8_0,   WINNOW_TYPE_Q4_0,
                              WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2};
    const int64_t sizes[][2] = {{128, 128}, {64, 64}, {96, 64}, {64, 128}};
    const int64_t groups[] = {8, 1, 3, 5};
    size_t at = 0;
    for (const uint32_t k : types)
        for (const uint32_t v : types) {
            if (is_product_left_out(at, std::size(types))) {
                ++left_out()["pairs of formats"];
                ++at;
                continue;
            }
            SdpaCase shape;
            shape.k_type = k;
            shape.v_type = v;
            shape.head_size = sizes[at % std::size(sizes)][0];
            shape.v_head_size = sizes[at % std::size(sizes)][1];
            shape.kv_heads = 2;
            shape.q_heads = 2 * groups[at / 2 % std::size(groups)];
            shape.q_len = at % 5 == 0 ? 3 : 1;
            const std::string name = std::string("k_") + type_name(k) + "_v_" + type_name(v);
            register_format_test("products", name, __FILE__, __LINE__, [=] {
                const uint64_t seed = options().seed * 1000 + at;
                std::mt19937_64 engine(seed);
                SdpaCase many = drawn(shape, engine), plain = shape;
                many.kv_len = 300 + static_cast<int64_t>(engine() % 200);
                plain.kv_len = 129 + static_cast<int64_t>(engine() % 70);
                plain.scores_mode = 1 + static_cast<uint32_t>(at % 4);
                std::vector<std::pair<SdpaCase, uint64_t>> cases{
                    {many, seed}, {plain, seed}, {with_garbage(shape, engine), seed}};
                for (const Content content : hostile_contents) cases.push_back({hostile(shape, content, engine), seed});
                run_cases(cases);
            });
            ++at;
        }
}

// ---- Options -------------------------------------------------------------------------------------------------------

// The table of the dense cases, each row with one of a few pairs of formats.
void register_options() {
    const uint32_t pairs[][2] = {{WINNOW_TYPE_Q8_0, WINNOW_TYPE_Q4_0},
                                 {WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3_5},
                                 {WINNOW_TYPE_AFFINE8_G64, WINNOW_TYPE_TURBO2}};
    size_t at = 0;
    for (SdpaCase shape : sdpa_cases()) {
        const bool has_its_own_formats = shape.k_type != WINNOW_TYPE_F16 || shape.v_type != WINNOW_TYPE_F16;
        if (has_its_own_formats || shape.head_size != 64 || shape.v_head_size != 64) continue;
        const auto& [k, v] = pairs[at++ % std::size(pairs)];
        shape.k_type = k;
        shape.v_type = v;
        shape.name += std::string("_k_") + find_format(k)->name + "_v_" + find_format(v)->name;
        const uint64_t seed = options().seed + at;
        register_format_test("options", shape.name, __FILE__, __LINE__, [=] { run_cases({{shape, seed}}); });
    }
}

// ---- Head sizes ----------------------------------------------------------------------------------------------------

void register_sizes() {
    // Each packed format meets its sizes as K, and as V those of the format after the next: two each, or unless all are
    // asked for one, whose turns go through them.
    std::vector<const Format*> packed;
    for (const Format& format : formats())
        if (format.family != Family::dense) packed.push_back(&format);
    const int64_t by_16[] = {16, 80, 112, 208, 576};
    const int64_t by_32[] = {32, 96, 160, 576};
    auto size_of = [&](const Format& format, size_t which) {
        if (format.multiple == 16) return by_16[which % std::size(by_16)];
        if (format.multiple == 32) return by_32[which % std::size(by_32)];
        return format.multiple * (format.multiple == 64 ? 3 : 2) * static_cast<int64_t>(1 + which % 2);
    };
    for (size_t at = 0; at < packed.size(); ++at)
        for (size_t which = at % 2; which < 4; which += 2) {
            if (options().pairs != Pairs::all && which / 2 != at / 2 % 2) {
                ++left_out()["head sizes of packed formats"];
                continue;
            }
            SdpaCase c;
            const Format& k = *packed[at];
            const Format& v = *packed[(at + 2) % packed.size()];
            c.k_type = k.type;
            c.v_type = v.type;
            c.head_size = size_of(k, at + which);
            c.v_head_size = size_of(v, at + which + 1);
            c.q_heads = 2;
            c.kv_heads = 2;
            c.kv_len = 70;
            c.q_len = at % 8 == 0 ? 20 : 1;
            c.row_stats = true;
            c.name = std::string("k_") + k.name + "_" + std::to_string(c.head_size) + "_v_" + v.name + "_" +
                     std::to_string(c.v_head_size);
            register_format_test("sizes", c.name, __FILE__, __LINE__, [=] { run_cases({{c, options().seed + at}}); });
        }
    // A huge element is the business of its own group.
    for (const uint32_t type : {WINNOW_TYPE_AFFINE4_G32, WINNOW_TYPE_AFFINE8_G64, WINNOW_TYPE_Q5_1})
        for (const int64_t q_len : {1, 20}) {
            SdpaCase c;
            c.k_type = WINNOW_TYPE_Q8_0;
            c.v_type = type;
            c.v_head_size = 128;
            c.kv_len = 70;
            c.q_len = q_len;
            c.content = Content::one_huge;
            c.name = std::string("one_huge_v_") + type_name(type) + "_q_len_" + std::to_string(q_len);
            register_format_test("sizes", c.name, __FILE__, __LINE__, [=] { run_cases({{c, options().seed}}); });
        }
}

// ---- Values passed over --------------------------------------------------------------------------------------------

void register_sparse_v() {
    const uint32_t pairs[][2] = {{WINNOW_TYPE_F16, WINNOW_TYPE_F16},
                                 {WINNOW_TYPE_Q8_0, WINNOW_TYPE_Q4_0},
                                 {WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3_5},
                                 {WINNOW_TYPE_AFFINE8_G64, WINNOW_TYPE_TURBO2}};
    for (const auto& pair : pairs)
        for (int64_t q_len : {1, 20})
            for (int how = 0; how < 9; ++how) {
                SdpaCase c;
                c.k_type = pair[0];
                c.v_type = pair[1];
                c.q_len = q_len;
                c.kv_len = how == 5 ? 1000 : 150;
                c.scale = 0.5f; // sharper than by default: many weights are small
                c.count_skipped = how != 1;
                c.row_stats = true;
                const float thresholds[] = {0, 1e-3f, 1e-6f, 0.02f, 0.4f, 1e-3f, 0.2f, 0.2f, 1e-30f};
                c.v_threshold = thresholds[how];
                if (how == 3) {
                    c.is_causal = true;
                    c.q_offset = 100;
                    c.sink = Sink::random;
                    c.out_layout = Layout::padded;
                    c.memory = Memory::allocated;
                }
                if (how == 4) {
                    c.mask_shape = MaskShape::shared;
                    c.mask_content = MaskContent::some_rows;
                    c.scores_mode = WINNOW_SCORES_PROBS;
                }
                // A value that is no number: passed over it may be, or not; with a threshold below all it has to be
                // read.
                if (how >= 6) c.content = how == 7 ? Content::inf_value : Content::nan_value;
                c.name = type_name(pair[0]) + "_" + type_name(pair[1]) + "_q_len_" + std::to_string(q_len) + "_case_" +
                         std::to_string(how);
                register_format_test("sparse_v", c.name, __FILE__, __LINE__, [=] {
                    run_cases({{c, options().seed + static_cast<uint64_t>(how)}});
                });
            }
}

} // namespace

void register_format_attention() {
    register_pairs();
    register_options();
    register_sizes();
    register_sparse_v();
    register_random();
    if (!options().has_small) return;
    register_small();
    register_products();
}

} // namespace winnow::conformance
