// The table of attention cases with rows in any order: what a query sees follows from slot_positions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sdpa_case.hpp"

namespace winnow::conformance {

inline std::vector<SdpaCase> sdpa_slots_cases() {
    std::vector<SdpaCase> rows;
    auto add = [&](std::string name, const auto& change) {
        SdpaCase row;
        row.name = std::move(name);
        change(row);
        rows.push_back(std::move(row));
    };
    const Slots all[] = {Slots::in_order,  Slots::permuted,    Slots::gapped,
                         Slots::with_free, Slots::second_half, Slots::all_free};
    const char* const names[] = {"in_order", "permuted", "gapped", "with_free", "second_half", "all_free"};
    for (int which = 0; which < 6; ++which)
        for (int64_t q_len : {1, 4, 18}) {
            auto add_slots = [&](const char* what, const auto& change) {
                add(std::string("slots_") + names[which] + what + "_q_len_" + std::to_string(q_len), [&](SdpaCase& c) {
                    c.slots = all[which];
                    c.q_len = q_len;
                    c.kv_len = 100;
                    c.row_stats = true;
                    c.scores_mode = WINNOW_SCORES_BIASED;
                    change(c);
                });
            };
            add_slots("", [](SdpaCase&) {});
            add_slots("_causal", [](SdpaCase& c) {
                c.is_causal = true;
                c.q_offset = 60;
                c.sink = Sink::random;
            });
            add_slots("_window", [](SdpaCase& c) {
                c.window_left = 30;
                c.window_right = 3;
                c.q_offset = 50;
            });
            add_slots("_alibi", [](SdpaCase& c) {
                c.alibi = true;
                c.q_offset = 90;
            });
        }
    const SlotsShape shapes[] = {SlotsShape::full, SlotsShape::per_head, SlotsShape::per_batch, SlotsShape::shared};
    const char* const shape_names[] = {"full", "per_head", "per_batch", "shared"};
    for (int shape = 0; shape < 4; ++shape)
        for (int64_t q_len : {3, 18})
            add(std::string("slots_shape_") + shape_names[shape] + "_q_len_" + std::to_string(q_len), [&](SdpaCase& c) {
                c.batch = 6;
                c.kv_batch = 2;
                c.q_len = q_len;
                c.slots = Slots::with_free;
                c.slots_shape = shapes[shape];
                c.slots_layout = c.k_layout = c.mask_layout = shape % 2 ? Layout::padded : Layout::permuted_padded;
                c.memory = shape < 2 ? Memory::allocated : Memory::imported;
                c.mask_shape = MaskShape::per_batch;
                c.is_causal = true;
                c.q_offset = 70;
            });
    const MaskShape masks[] = {MaskShape::full,      MaskShape::shared, MaskShape::shorter, MaskShape::one_key,
                               MaskShape::one_value, MaskShape::larger, MaskShape::one_row};
    const char* const mask_names[] = {"full", "shared", "shorter", "one_key", "one_value", "larger", "one_row"};
    const uint32_t types[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BOOL};
    const char* const type_names[] = {"f32", "f16", "bool"};
    for (int mask = 0; mask < 7; ++mask)
        for (int type = 0; type < 3; ++type)
            for (int64_t q_len : {2, 18})
                add(std::string("slots_mask_") + type_names[type] + "_" + mask_names[mask] + "_q_len_" +
                        std::to_string(q_len),
                    [&](SdpaCase& c) {
                        c.q_len = q_len;
                        c.kv_len = 90;
                        c.slots = mask % 2 ? Slots::with_free : Slots::gapped;
                        c.mask_shape = masks[mask];
                        c.mask_type = types[type];
                        c.mask_content = MaskContent::minus_infinity;
                        c.mask_slopes = type == 0;
                        c.scores_mode = WINNOW_SCORES_PROBS;
                        c.row_stats = true;
                    });
    for (uint32_t mode : {WINNOW_SCORES_RAW, WINNOW_SCORES_SOFTCAPPED, WINNOW_SCORES_BIASED, WINNOW_SCORES_PROBS})
        for (int64_t group : {1, 3, 8, 16})
            for (int64_t q_len : {1, 20})
                add("slots_scores_" + std::to_string(mode) + "_group_" + std::to_string(group) + "_q_len_" +
                        std::to_string(q_len),
                    [&](SdpaCase& c) {
                        c.q_heads = 2 * group;
                        c.q_len = q_len;
                        c.kv_len = q_len == 1 ? 1500 : 170;
                        c.slots = Slots::with_free;
                        c.scores_mode = mode;
                        c.softcap = 15;
                        c.is_causal = true;
                        c.q_offset = c.kv_len;
                        c.window_left = c.kv_len / 2;
                        c.row_stats = true;
                    });
    // What lies in a free slot must not even reach a sum through a zero weight.
    for (uint32_t type : {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16})
        for (int64_t q_len : {1, 8, 33})
            add("slots_garbage_in_free_ones_" + std::to_string(type) + "_q_len_" + std::to_string(q_len),
                [&](SdpaCase& c) {
                    c.content = Content::garbage_unseen;
                    c.kv_len = 120;
                    c.q_len = q_len;
                    c.k_type = c.v_type = type;
                    c.slots = Slots::second_half;
                    c.row_stats = true;
                    c.scores_mode = WINNOW_SCORES_PROBS;
                });
    for (int64_t kv_len : {1, 2, 17, 4097})
        add("slots_kv_len_" + std::to_string(kv_len), [&](SdpaCase& c) {
            c.kv_len = kv_len;
            c.slots = Slots::permuted;
            c.is_causal = true;
            c.q_offset = kv_len / 2;
            c.v_threshold = kv_len == 4097 ? 1e-3f : 0;
            c.count_skipped = c.row_stats = true;
        });
    return rows;
}

} // namespace winnow::conformance
