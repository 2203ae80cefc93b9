// The table of attention cases whose batch entries have lengths and query offsets of their own.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sdpa_case.hpp"

namespace winnow::conformance {

class SdpaLengthsTable {
public:
    static std::vector<SdpaCase> build() {
        SdpaLengthsTable table;
        for (const int64_t q_len : {1, 4, 18}) {
            table.lengths(q_len);
            table.offsets(q_len);
            table.together(q_len);
        }
        return std::move(table.rows_);
    }

private:
    template <typename Change>
    void add(const std::string& name, int64_t q_len, Change change) {
        SdpaCase row;
        row.name = "lengths_" + name + "_q_len_" + std::to_string(q_len);
        row.q_len = q_len;
        row.kv_len = 70;
        row.row_stats = true;
        change(row);
        rows_.push_back(std::move(row));
    }

    static void take(SdpaCase& c, std::vector<int64_t> lengths, int64_t kv_batch) {
        c.batch = static_cast<int64_t>(lengths.size());
        c.kv_batch = kv_batch;
        c.kv_lengths = std::move(lengths);
    }

    void lengths(int64_t q_len) {
        add("of_one", q_len, [](SdpaCase& c) { take(c, {37}, 1); });
        add("of_none", q_len, [](SdpaCase& c) {
            take(c, {0, 0}, 2);
            c.scores_mode = WINNOW_SCORES_PROBS;
            c.sink = Sink::nan;
        });
        add("unlike", q_len, [](SdpaCase& c) {
            take(c, {0, 1, 33, 70}, 4);
            c.scores_mode = WINNOW_SCORES_BIASED;
        });
        add("outside", q_len, [](SdpaCase& c) { take(c, {-1, 71, INT32_MAX, INT32_MIN}, 4); });
        add("i64", q_len, [](SdpaCase& c) {
            take(c, {int64_t{1} << 40, INT64_MIN, 64, (int64_t{1} << 32) + 5}, 4);
            c.lengths_type = WINNOW_TYPE_I64;
            c.scores_mode = WINNOW_SCORES_PROBS;
        });
        add("of_shared_keys", q_len, [](SdpaCase& c) { take(c, {50, 3, 0}, 1); });
        add("of_half_as_many_keys", q_len, [](SdpaCase& c) {
            take(c, {16, 65, 0, 2}, 2);
            c.scores_mode = WINNOW_SCORES_RAW;
        });
        add("of_many_keys", q_len, [](SdpaCase& c) { // several splits, some of them empty
            c.kv_len = 1500;
            take(c, {1100, 130, 1500}, 3);
            c.scores_mode = WINNOW_SCORES_PROBS;
        });
        add("sparse_v", q_len, [](SdpaCase& c) {
            take(c, {40, 7}, 2);
            c.v_threshold = 0.02f;
            c.count_skipped = true;
        });
    }

    void offsets(int64_t q_len) {
        add("causal_offsets", q_len, [](SdpaCase& c) {
            c.batch = c.kv_batch = 4;
            c.q_offsets = {0, 40, -3, 500};
            c.is_causal = true;
            c.sink = Sink::random;
        });
        add("window_offsets", q_len, [](SdpaCase& c) {
            c.batch = 3;
            c.q_offsets = {2, 60, -100};
            c.window_left = 9;
            c.window_right = 4;
        });
        add("offsets_outside", q_len, [](SdpaCase& c) {
            c.batch = c.kv_batch = 4;
            c.q_offsets = {INT64_MAX, INT64_MIN, (int64_t{1} << 48) - 1, (int64_t{1} << 32) + 20};
            c.lengths_type = WINNOW_TYPE_I64;
            c.is_causal = true;
            c.window_right = 30;
        });
        add("alibi_offsets", q_len, [](SdpaCase& c) {
            c.batch = c.kv_batch = 2;
            c.q_offsets = {69, 7};
            c.alibi = true;
            c.scores_mode = WINNOW_SCORES_BIASED;
        });
    }

    void together(int64_t q_len) {
        const Memory places[] = {Memory::host, Memory::allocated, Memory::imported, Memory::allocated};
        for (uint32_t mode = WINNOW_SCORES_RAW; mode <= WINNOW_SCORES_PROBS; ++mode)
            add("scores_" + std::to_string(mode), q_len, [&](SdpaCase& c) {
                take(c, {45, 0, 70}, 3);
                c.q_offsets = {45 - q_len, 10, 3};
                c.lengths_type = mode % 2 ? WINNOW_TYPE_I64 : WINNOW_TYPE_I32;
                c.is_causal = true;
                c.softcap = 15;
                c.alibi = true;
                c.sink = Sink::random;
                c.mask_shape = mode == WINNOW_SCORES_RAW ? MaskShape::shared : MaskShape::per_batch;
                c.mask_content = MaskContent::minus_infinity;
                c.scores_mode = mode;
                c.memory = places[mode - 1];
                c.q_layout = c.k_layout = c.v_layout = c.out_layout = mode % 2 ? Layout::padded : Layout::packed;
            });
        add("mask", q_len, [](SdpaCase& c) {
            take(c, {69, 20}, 2);
            c.mask_shape = MaskShape::full;
            c.mask_type = WINNOW_TYPE_BOOL;
        });
        if (q_len == 4) return; // with slots a program is another one
        for (const uint32_t mode : {WINNOW_SCORES_RAW, WINNOW_SCORES_PROBS})
            add("slots_scores_" + std::to_string(mode), q_len, [&](SdpaCase& c) {
                take(c, {45, 0, 70, 64}, 2);
                c.q_offsets = {40, 3, 80, 100};
                c.slots = Slots::with_free;
                c.slots_shape = mode == WINNOW_SCORES_RAW ? SlotsShape::full : SlotsShape::shared;
                c.is_causal = true;
                c.window_left = 50;
                c.alibi = true;
                c.mask_shape = MaskShape::shorter;
                c.scores_mode = mode;
            });
    }

    std::vector<SdpaCase> rows_;
};

inline std::vector<SdpaCase> sdpa_lengths_cases() { return SdpaLengthsTable::build(); }

} // namespace winnow::conformance
