// What an attention kernel is tried with: the axes of a case. Needs nothing but winnow.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "winnow.h"

namespace winnow::conformance {

// How a tensor lies in memory. Axes b, h, t, d as in winnow.h.
enum class Layout {
    packed,          // [b][h][t][d]
    permuted,        // [b][t][h][d], as a host that splits heads late has it
    tokens_outer,    // [t][b][h][d]
    padded,          // packed with a gap after every row and an odd number of elements before the first
    permuted_padded, // both
    one_head,        // stride 0 over the heads: inputs only
    one_batch,       // stride 0 over the batch: inputs only
};

// Where its memory is.
enum class Memory { host, allocated, imported };

enum class MaskShape {
    none,
    full,       // [batch, heads, q_len, kv_len]
    per_batch,  // [batch, 1, q_len, kv_len]
    per_head,   // [1, heads, q_len, kv_len]
    shared,     // [1, 1, q_len, kv_len]
    half_heads, // [batch, heads / 2, q_len, kv_len], by modulo
    one_row,    // [1, 1, 1, kv_len]
    one_key,    // [1, 1, q_len, 1]
    one_value,  // [1, 1, 1, 1]
    larger,     // [1, 1, q_len + 3, kv_len + 5]: the rest is ignored
    half_batch, // [batch / 2, 1, q_len, kv_len], by modulo
    shorter,    // [1, 1, q_len, kv_len / 2], 1 at least: with slot positions only, what has no column is hidden
};

enum class MaskContent {
    random,          // numbers around 0, or half of the keys
    minus_infinity,  // numbers, and -inf for a third of the keys
    huge_finite,     // -1e30 (f16: -65504) for half of the keys
    all_huge_finite, // -1e30 (f16: -65504) for every key
    far_down,        // numbers around -2.5e5 (f16: -6e4), and -inf for a third of the keys
    some_rows,       // every second row hides everything
    everything,      // every row hides everything
    not_a_number,    // numbers, and NaN in the first row's last element
};

enum class Content {
    normal,
    huge_logits,    // |s| around 1e4
    denormal,       // q ordinary, k and v denormal in their type
    nan_key,        // NaN in one key
    nan_value,      // NaN in one value
    nan_query,      // NaN in one query row
    inf_value,      // +inf in one value
    garbage_unseen, // NaN and inf in every key and value from `kv_len / 2` on, and with a shared mask in each seventh
                    // before; to be used where those are hidden
    one_huge,       // one element of each key and value is 3000 times the others
    zeros,          // every key and value is 0 or -0
    beyond_half,    // one key's numbers are finite, and too large for half precision
};

// The positions of the keys, for each head (and batch entry) drawn anew.
enum class Slots {
    none,        // no slot_positions: key j has position j
    in_order,    // 0, 1, 2, ...
    permuted,    // 0 to kv_len - 1
    gapped,      // ascending, with gaps: beyond 2 * kv_len at the end
    with_free,   // permuted, with gaps, and about a third of the slots free
    second_half, // those from `kv_len / 2` on are free, the others permuted: where garbage_unseen is
    all_free,
};

enum class SlotsShape {
    full,     // [kv_batch, kv_heads, 1, kv_len]
    per_head, // [1, kv_heads, 1, kv_len]
    per_batch,
    shared,
};

enum class Sink { none, random, equal, huge, minus_infinity, nan };

struct SdpaCase {
    std::string name;
    int64_t batch = 1, kv_batch = 1;
    int64_t q_heads = 4, kv_heads = 2;
    int64_t q_len = 1, kv_len = 65;
    int64_t head_size = 64, v_head_size = 64;
    uint32_t q_type = WINNOW_TYPE_F32, k_type = WINNOW_TYPE_F16, v_type = WINNOW_TYPE_F16, out_type = WINNOW_TYPE_F32;
    Layout q_layout = Layout::packed, k_layout = Layout::packed, v_layout = Layout::packed, out_layout = Layout::packed;
    Memory memory = Memory::host;
    Content content = Content::normal;

    MaskShape mask_shape = MaskShape::none;
    uint32_t mask_type = WINNOW_TYPE_F16;
    MaskContent mask_content = MaskContent::random;
    Layout mask_layout = Layout::packed;

    Slots slots = Slots::none;
    SlotsShape slots_shape = SlotsShape::full;
    Layout slots_layout = Layout::packed;

    // Of each batch entry, as the call gets them; empty: none. Rows past every length that is theirs are garbage.
    std::vector<int64_t> kv_lengths, q_offsets;
    uint32_t lengths_type = WINNOW_TYPE_I32; // of both

    bool is_causal = false;
    int64_t q_offset = 0, window_left = 0, window_right = 0;
    Sink sink = Sink::none;
    float scale = 0, softcap = 0;
    bool alibi = false, mask_slopes = false;
    uint32_t scores_mode = WINNOW_SCORES_NONE;
    bool row_stats = false;
    uint32_t norm = WINNOW_NORM_DEFAULT; // of packed keys and values, where their format has one
    float v_threshold = 0;
    bool count_skipped = false; // v_rows_skipped is given

    // What the description promises of a batch entry.
    int64_t length_of(int64_t entry) const {
        if (kv_lengths.empty()) return kv_len;
        return std::clamp<int64_t>(kv_lengths[static_cast<size_t>(entry)], 0, kv_len);
    }
    int64_t offset_of(int64_t entry) const {
        constexpr int64_t limit = int64_t{1} << 48;
        return q_offsets.empty() ? q_offset : std::clamp(q_offsets[static_cast<size_t>(entry)], -limit, limit);
    }
};

} // namespace winnow::conformance
