// The hostile table of attention cases. The conformance suite runs each row against the reference; benchmarks may take
// shapes from here. Needs nothing but winnow.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sdpa_case.hpp"
#include "sdpa_lengths_cases.hpp"
#include "sdpa_slots_cases.hpp"

namespace winnow::conformance {

// Builds the table: each row changes one or a few things of the one it is derived from.
class SdpaTable {
public:
    static std::vector<SdpaCase> build() {
        SdpaTable table;
        table.shapes();
        table.types();
        table.layouts();
        table.masks();
        table.positions();
        table.logits();
        table.contents();
        table.many_rows();
        table.reported();
        return std::move(table.rows_);
    }

private:
    template <typename Change>
    void add(std::string name, Change change) {
        SdpaCase row;
        row.name = std::move(name);
        change(row);
        rows_.push_back(std::move(row));
    }

    static std::string number(int64_t value) {
        return value < 0 ? "minus" + std::to_string(-value) : std::to_string(value);
    }

    void shapes() {
        for (int64_t kv_len : {1, 2, 15, 16, 17, 63, 64, 65, 257, 1000, 4097})
            add("kv_len_" + number(kv_len), [&](SdpaCase& c) {
                c.kv_len = kv_len;
                c.row_stats = true;
            });
        for (int64_t kv_len : {1, 31, 130, 1025})
            add("prefill_kv_len_" + number(kv_len), [&](SdpaCase& c) {
                c.kv_len = kv_len;
                c.q_len = 33;
            });
        for (int64_t q_len : {2, 3, 4, 5, 6, 7, 8, 9, 33, 64, 65, 130})
            add("q_len_" + number(q_len), [&](SdpaCase& c) {
                c.q_len = q_len;
                c.kv_len = 130;
                c.is_causal = true;
                c.q_offset = 130 - q_len;
            });
        for (int64_t group : {1, 3, 4, 8, 16})
            for (int64_t q_len : {1, 2, 33})
                add("group_" + number(group) + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.kv_heads = 2;
                    c.q_heads = 2 * group;
                    c.q_len = q_len;
                    c.batch = c.kv_batch = 2;
                });
        for (int64_t size : {1, 3, 16, 40, 64, 80, 96, 112, 128, 192, 256, 576})
            for (int64_t q_len : {1, 33})
                add("head_size_" + number(size) + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.head_size = c.v_head_size = size;
                    c.q_len = q_len;
                    c.kv_len = 49;
                });
        const int64_t pairs[][2] = {{576, 512}, {192, 128}, {64, 1}, {5, 130}, {1, 64}};
        for (const auto& pair : pairs)
            for (int64_t q_len : {1, 9})
                add("head_size_" + number(pair[0]) + "_and_" + number(pair[1]) + "_q_len_" + number(q_len),
                    [&](SdpaCase& c) {
                        c.head_size = pair[0];
                        c.v_head_size = pair[1];
                        c.q_len = q_len;
                        c.kv_len = 70;
                    });
        for (int64_t q_len : {1, 33})
            add("kv_batch_broadcast_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.batch = 6;
                c.kv_batch = 2;
                c.q_len = q_len;
            });
    }

    void types() {
        const uint32_t floating[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
        auto text = [](uint32_t type) {
            return type == WINNOW_TYPE_F32 ? "f32" : type == WINNOW_TYPE_F16 ? "f16" : "bf16";
        };
        for (uint32_t k : floating)
            for (uint32_t v : floating)
                for (int64_t q_len : {1, 17})
                    add(std::string("k_") + text(k) + "_v_" + text(v) + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                        c.k_type = k;
                        c.v_type = v;
                        c.q_len = q_len;
                        c.kv_len = 130;
                    });
        for (uint32_t q : floating)
            for (uint32_t out : floating)
                for (int64_t q_len : {1, 17})
                    add(std::string("q_") + text(q) + "_out_" + text(out) + "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.q_type = q;
                            c.out_type = out;
                            c.q_len = q_len;
                        });
    }

    void layouts() {
        const Layout all[] = {Layout::permuted, Layout::tokens_outer, Layout::padded, Layout::permuted_padded};
        const char* const names[] = {"permuted", "tokens_outer", "padded", "permuted_padded"};
        for (int which = 0; which < 4; ++which)
            for (int64_t q_len : {3, 20})
                add(std::string("layout_") + names[which] + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.batch = c.kv_batch = 2;
                    c.q_len = q_len;
                    c.q_layout = c.k_layout = c.v_layout = c.out_layout = c.mask_layout = all[which];
                    c.mask_shape = MaskShape::per_batch;
                });
        for (Layout layout : {Layout::one_head, Layout::one_batch})
            add(layout == Layout::one_head ? "layout_one_head" : "layout_one_batch", [&](SdpaCase& c) {
                c.batch = c.kv_batch = 2;
                c.k_layout = c.v_layout = c.q_layout = c.mask_layout = layout;
                c.mask_shape = MaskShape::full;
                c.q_len = 2;
            });
        const Memory places[] = {Memory::host, Memory::allocated, Memory::imported};
        const char* const place_names[] = {"host", "allocated", "imported"};
        for (int place = 0; place < 3; ++place)
            for (int64_t q_len : {1, 12})
                add(std::string("memory_") + place_names[place] + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.memory = places[place];
                    c.q_len = q_len;
                    c.q_layout = c.k_layout = c.v_layout = c.out_layout = c.mask_layout = Layout::padded;
                    c.q_type = c.out_type = WINNOW_TYPE_F16;
                    c.mask_shape = MaskShape::shared;
                    c.scores_mode = WINNOW_SCORES_BIASED;
                    c.row_stats = true;
                    c.sink = Sink::random;
                });
    }

    void masks() {
        const MaskShape shapes[] = {
            MaskShape::full,    MaskShape::per_batch, MaskShape::per_head,  MaskShape::shared, MaskShape::half_heads,
            MaskShape::one_row, MaskShape::one_key,   MaskShape::one_value, MaskShape::larger, MaskShape::half_batch};
        const char* const shape_names[] = {"full",    "per_batch", "per_head",  "shared", "half_heads",
                                           "one_row", "one_key",   "one_value", "larger", "half_batch"};
        const uint32_t types[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BOOL};
        const char* const type_names[] = {"f32", "f16", "bool"};
        for (int shape = 0; shape < 10; ++shape)
            for (int type = 0; type < 3; ++type)
                for (int64_t q_len : {3, 18})
                    add(std::string("mask_") + type_names[type] + "_" + shape_names[shape] + "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.batch = c.kv_batch = 2;
                            c.q_len = q_len;
                            c.mask_shape = shapes[shape];
                            c.mask_type = types[type];
                            c.row_stats = true;
                        });
        const MaskContent contents[] = {MaskContent::minus_infinity,  MaskContent::huge_finite,
                                        MaskContent::all_huge_finite, MaskContent::some_rows,
                                        MaskContent::everything,      MaskContent::not_a_number};
        const char* const content_names[] = {"minus_infinity", "huge_finite", "all_huge_finite",
                                             "some_rows",      "everything",  "not_a_number"};
        for (int content = 0; content < 6; ++content)
            for (int type = 0; type < 3; ++type)
                for (int64_t q_len : {1, 4, 18}) {
                    const bool is_number_only = content == 1 || content == 2 || content == 5;
                    if (types[type] == WINNOW_TYPE_BOOL && is_number_only) continue;
                    add(std::string("mask_") + type_names[type] + "_" + content_names[content] + "_q_len_" +
                            number(q_len),
                        [&](SdpaCase& c) {
                            c.q_len = q_len;
                            c.kv_len = 100;
                            c.mask_shape = MaskShape::shared;
                            c.mask_type = types[type];
                            c.mask_content = contents[content];
                            c.sink = content % 2 ? Sink::random : Sink::none;
                            c.row_stats = true;
                            c.scores_mode = WINNOW_SCORES_PROBS;
                        });
                }
        for (uint32_t type : {WINNOW_TYPE_F32, WINNOW_TYPE_F16})
            for (int64_t q_len : {1, 18})
                add(std::string("mask_slopes_") + (type == WINNOW_TYPE_F32 ? "f32" : "f16") + "_q_len_" + number(q_len),
                    [&](SdpaCase& c) {
                        c.q_len = q_len;
                        c.mask_shape = MaskShape::shared;
                        c.mask_type = type;
                        c.mask_content = MaskContent::minus_infinity;
                        c.mask_slopes = true;
                        c.scores_mode = WINNOW_SCORES_BIASED;
                    });
    }

    void positions() {
        for (int64_t offset : {-200, -7, -1, 0, 5, 64, 400})
            for (int64_t q_len : {1, 8, 40})
                add("causal_offset_" + number(offset) + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.is_causal = true;
                    c.q_offset = offset;
                    c.q_len = q_len;
                    c.row_stats = true;
                    c.sink = offset == -7 ? Sink::random : Sink::none;
                });
        const int64_t windows[][2] = {{1, 0}, {7, 0}, {1000, 0}, {0, 3}, {5, 2}, {1, 1}, {64, 64}};
        for (const auto& window : windows)
            for (bool causal : {false, true})
                for (int64_t q_len : {1, 6, 40})
                    add("window_" + number(window[0]) + "_" + number(window[1]) + (causal ? "_causal" : "") +
                            "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.is_causal = causal;
                            c.window_left = window[0];
                            c.window_right = window[1];
                            c.q_offset = 30;
                            c.q_len = q_len;
                            c.scores_mode = WINNOW_SCORES_BIASED;
                        });
        for (int64_t offset : {-50, 300})
            add("window_beyond_the_keys_offset_" + number(offset), [&](SdpaCase& c) {
                c.window_left = 4;
                c.window_right = 4;
                c.q_offset = offset;
                c.q_len = 3;
                c.row_stats = true;
            });
        for (int64_t q_len : {1, 20})
            add("window_of_a_long_context_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.is_causal = true;
                c.window_left = 100;
                c.kv_len = 3000;
                c.q_offset = 3000 - q_len;
                c.q_len = q_len;
                c.sink = Sink::random;
            });
    }

    void logits() {
        const Sink sinks[] = {Sink::random, Sink::equal, Sink::huge, Sink::minus_infinity};
        const char* const sink_names[] = {"random", "equal", "huge", "minus_infinity"};
        for (int sink = 0; sink < 4; ++sink)
            for (int64_t q_len : {1, 18})
                for (int64_t kv_len : {1, 70, 2500})
                    add(std::string("sink_") + sink_names[sink] + "_q_len_" + number(q_len) + "_kv_len_" +
                            number(kv_len),
                        [&](SdpaCase& c) {
                            c.sink = sinks[sink];
                            c.q_len = q_len;
                            c.kv_len = kv_len;
                            c.row_stats = true;
                            c.scores_mode = WINNOW_SCORES_PROBS;
                        });
        // The first query sees nothing: zeros, whatever the sink is.
        for (int64_t q_len : {1, 18})
            for (int64_t q_offset : {-1, 60})
                add("sink_nan_q_len_" + number(q_len) + (q_offset < 0 ? "_hidden" : ""), [&](SdpaCase& c) {
                    c.sink = Sink::nan;
                    c.q_len = q_len;
                    c.kv_len = 70;
                    c.is_causal = true;
                    c.q_offset = q_offset;
                    c.row_stats = true;
                    c.scores_mode = WINNOW_SCORES_PROBS;
                });
        for (uint32_t mode : {WINNOW_SCORES_RAW, WINNOW_SCORES_SOFTCAPPED, WINNOW_SCORES_BIASED, WINNOW_SCORES_PROBS})
            for (int64_t q_len : {1, 4, 21})
                for (int64_t kv_len : {33, 1500})
                    add("scores_" + number(mode) + "_q_len_" + number(q_len) + "_kv_len_" + number(kv_len),
                        [&](SdpaCase& c) {
                            c.scores_mode = mode;
                            c.q_len = q_len;
                            c.kv_len = kv_len;
                            c.softcap = 15;
                            c.sink = Sink::random;
                            c.alibi = true;
                            c.is_causal = true;
                            c.q_offset = kv_len - q_len - 3;
                            c.mask_shape = MaskShape::shared;
                            c.mask_content = MaskContent::minus_infinity;
                            c.row_stats = true;
                            c.out_layout = Layout::permuted;
                        });
        for (float softcap : {0.5f, 30.0f, 1000.0f})
            for (int64_t q_len : {1, 18})
                add("softcap_" + number(static_cast<int64_t>(softcap * 10)) + "_q_len_" + number(q_len),
                    [&](SdpaCase& c) {
                        c.softcap = softcap;
                        c.q_len = q_len;
                        c.scores_mode = WINNOW_SCORES_SOFTCAPPED;
                    });
        for (int64_t q_len : {1, 18}) {
            add("alibi_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.alibi = true;
                c.q_len = q_len;
                c.q_offset = 50;
            });
            add("scale_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.scale = 0.37f;
                c.q_len = q_len;
            });
            add("negative_scale_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.scale = -0.25f;
                c.q_len = q_len;
            });
        }
        for (int64_t kv_len : {1, 64, 900})
            for (int64_t q_len : {1, 18})
                add("huge_logits_q_len_" + number(q_len) + "_kv_len_" + number(kv_len), [&](SdpaCase& c) {
                    c.content = Content::huge_logits;
                    c.kv_len = kv_len;
                    c.q_len = q_len;
                    c.row_stats = true;
                });
    }

    void contents() {
        const Content contents[] = {Content::denormal, Content::nan_key, Content::nan_value, Content::nan_query,
                                    Content::inf_value};
        const char* const names[] = {"denormal", "nan_key", "nan_value", "nan_query", "inf_value"};
        for (int content = 0; content < 5; ++content)
            for (uint32_t type : {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16})
                for (int64_t q_len : {1, 18})
                    add(std::string(names[content]) + "_" +
                            (type == WINNOW_TYPE_F32   ? "f32"
                             : type == WINNOW_TYPE_F16 ? "f16"
                                                       : "bf16") +
                            "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.content = contents[content];
                            c.k_type = c.v_type = type;
                            c.q_len = q_len;
                            c.is_causal = content != 0; // so that some rows see the bad key and some do not
                            c.q_offset = 25;
                            c.row_stats = true;
                        });
        // What no row sees may be anything: it must not even reach a sum through a zero weight.
        for (int how = 0; how < 5; ++how)
            for (int64_t q_len : {1, 8, 33})
                add("garbage_unseen_" + number(how) + "_q_len_" + number(q_len), [&](SdpaCase& c) {
                    c.content = Content::garbage_unseen;
                    c.kv_len = 120; // garbage from key 60 on
                    c.q_len = q_len;
                    c.k_type = c.v_type = how == 4 ? WINNOW_TYPE_F32 : WINNOW_TYPE_F16;
                    c.row_stats = true;
                    c.scores_mode = WINNOW_SCORES_PROBS;
                    if (how == 0 || how == 4) {
                        c.is_causal = true;
                        c.q_offset = 59 - (q_len - 1);
                    }
                    if (how == 1) {
                        c.window_right = 1;
                        c.q_offset = 58 - (q_len - 1);
                    }
                    if (how == 2) {
                        c.mask_shape = MaskShape::shared;
                        c.mask_type = WINNOW_TYPE_BOOL;
                    }
                    if (how == 3) {
                        c.mask_shape = MaskShape::shared;
                        c.mask_type = WINNOW_TYPE_F16;
                        c.mask_content = MaskContent::minus_infinity;
                    }
                });
    }

    // Few query tokens, but more than 16 rows for a KV head: where a backend may take either of two ways.
    void many_rows() {
        const int64_t shapes[][2] = {{17, 1}, {6, 3}, {5, 7}, {9, 8}, {16, 8}};
        for (const auto& [group, q_len] : shapes)
            add("rows_" + number(group * q_len) + "_q_len_" + number(q_len),
                [group = group, q_len = q_len](SdpaCase& c) {
                    c.kv_heads = 2;
                    c.q_heads = 2 * group;
                    c.q_len = q_len;
                    c.kv_len = 300;
                    c.is_causal = true;
                    c.q_offset = 280;
                    c.sink = Sink::random;
                    c.row_stats = true;
                    c.scores_mode = WINNOW_SCORES_PROBS;
                });
    }

    // Where fused kernels of other projects went wrong, by their users' reports.
    void reported() {
        for (int64_t q_len : {1, 9})
            add("bf16_kv_len_133120_q_len_" + number(q_len), [&](SdpaCase& c) {
                c.q_heads = 2;
                c.kv_heads = 1;
                c.k_type = c.v_type = WINNOW_TYPE_BF16;
                c.kv_len = 133120;
                c.q_len = q_len;
                c.row_stats = true;
            });
        for (uint32_t type : {WINNOW_TYPE_F32, WINNOW_TYPE_F16})
            for (int64_t q_len : {1, 18})
                for (Sink sink : {Sink::none, Sink::random, Sink::minus_infinity})
                    add(std::string("logits_far_down_") + (type == WINNOW_TYPE_F32 ? "f32" : "f16") + "_sink_" +
                            number(static_cast<int64_t>(sink)) + "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.mask_shape = MaskShape::shared;
                            c.mask_type = type;
                            c.mask_content = MaskContent::far_down;
                            c.sink = sink;
                            c.q_len = q_len;
                            c.kv_len = 300;
                            c.row_stats = true;
                            c.scores_mode = WINNOW_SCORES_PROBS;
                        });
        for (MaskContent content : {MaskContent::some_rows, MaskContent::everything})
            for (int64_t q_len : {2, 18})
                for (Sink sink : {Sink::random, Sink::equal, Sink::huge, Sink::minus_infinity})
                    add(std::string(content == MaskContent::everything ? "all" : "some") + "_rows_hidden_sink_" +
                            number(static_cast<int64_t>(sink)) + "_q_len_" + number(q_len),
                        [&](SdpaCase& c) {
                            c.mask_shape = MaskShape::per_head;
                            c.mask_content = content;
                            c.sink = sink;
                            c.q_len = q_len;
                            c.row_stats = true;
                            c.scores_mode = WINNOW_SCORES_PROBS;
                        });
        const std::pair<Layout, Layout> unlike[] = {{Layout::permuted, Layout::packed},
                                                    {Layout::tokens_outer, Layout::padded},
                                                    {Layout::one_head, Layout::permuted_padded},
                                                    {Layout::padded, Layout::one_batch}};
        for (const auto& [k_layout, v_layout] : unlike)
            for (int64_t q_len : {3, 20})
                add("strides_of_k_" + number(static_cast<int64_t>(k_layout)) + "_and_v_" +
                        number(static_cast<int64_t>(v_layout)) + "_q_len_" + number(q_len),
                    [&, k_layout = k_layout, v_layout = v_layout](SdpaCase& c) {
                        c.batch = c.kv_batch = 2;
                        c.k_layout = k_layout;
                        c.v_layout = v_layout;
                        c.q_len = q_len;
                        c.is_causal = true;
                        c.q_offset = 40;
                    });
    }

    std::vector<SdpaCase> rows_;
};

inline std::vector<SdpaCase> sdpa_cases() {
    std::vector<SdpaCase> rows = SdpaTable::build();
    for (SdpaCase& row : sdpa_slots_cases()) rows.push_back(std::move(row));
    for (SdpaCase& row : sdpa_lengths_cases()) rows.push_back(std::move(row));
    return rows;
}

} // namespace winnow::conformance
