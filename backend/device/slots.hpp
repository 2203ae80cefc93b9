// Slots: the rows of a cache that forgets. A segment (device.hpp) holds rows of one KV head after another, and a slot
// map beside them says which token's each is; heads keep different tokens. These are the operations on slots that a
// device offers below the cache (backend/cache), all enqueued in order. Shapes agree and memory is present when they
// arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/description.hpp"
#include "device/device.hpp"

namespace winnow {

// Writes tokens into slots: converts the rows, enters the token ids, puts the importance to 0.
struct SlotAppend {
    Tensor k, v;     // dense [1, kv_heads, tokens, size]: F32, F16 or BF16
    Segment segment; // its means are subtracted
    // Where token t goes: slots[head][t], skipped where that is negative, or else, without slots,
    // first + (offset + t) % count for every head.
    Tensor slots; // I32 [1, kv_heads, 1, tokens], or absent
    int64_t first = 0, count = 1, offset = 0;
    int64_t token_id = 0; // of token 0; the others follow it
    Tensor token_ids;     // I32 [1, 1, 1, tokens], or absent: used in the place of `token_id`
    // I32 [1, 1, 1, token ids], or absent: token id to position. Token t's entry becomes position + t.
    Tensor positions;
    int64_t position = 0;
    Norm k_norm = Norm::corrected, v_norm = Norm::corrected;
};

// Accumulates what the last attention showed into the importance of every slot.
struct SlotAccumulate {
    std::vector<Segment> segments;
    Tensor scores;               // F32 [1, q_heads, q_len, slots of all segments], biased
    Tensor row_stats;            // F32 [1, q_heads, q_len, 2]
    int64_t counted_queries = 0; // the first so many of the q_len queries count
    Importance importance;
    // Both or neither: the attention's output, [1, q_heads, q_len, v_head_size], is added up over the query group and
    // the counted queries.
    Tensor out;
    Tensor output_sum; // F32 [1, kv_heads, 1, v_head_size]
};

// Fused attention of a layer: tokens come in, their queries attend, and what that showed is accumulated; the same as
// the launches of SlotAppend, Sdpa and SlotAccumulate one after the other. The attention's scores_out and row_stats are
// memory for it, there where queries count, and hold nothing afterwards that anybody may read; so are the weights,
// which a device has instead of them where one launch is all. They may lie in the same memory.
struct SlotAttend {
    std::optional<SlotAppend> append;
    Sdpa attention;              // scores_mode is none where no query counts
    int64_t counted_queries = 0; // these three as in SlotAccumulate
    Importance importance;
    Tensor output_sum;
    // F32 [1, 1, 1, fused_weight_floats at least], at a multiple of 64 bytes; there where one query counts.
    Tensor weights;
};
// How many weights there are for segments whose slots, each rounded up to a multiple of fused_weight_slots, add up to
// `slots`.
inline constexpr int64_t fused_weight_slots = 64;
inline constexpr int64_t whole_weight_slots(int64_t slots) { // that multiple
    return (slots + fused_weight_slots - 1) / fused_weight_slots * fused_weight_slots;
}
int64_t fused_weight_floats(int64_t q_heads, int64_t kv_heads, int64_t slots);
SlotAccumulate accumulate_of(const SlotAttend& args);

// Scores by slot become scores by token id: out[h][i][id] is the score of the slot with that token id, -infinity where
// no slot of the KV head has it. Token ids beyond out's columns are left out.
struct SlotScores {
    std::vector<Segment> segments;
    Tensor scores; // F32 [1, q_heads, q_len, slots of all segments]
    Tensor out;    // F32 [1, q_heads, q_len, columns], any strides; every element is written, unless keeps_others
    bool keeps_others = false; // out has the scores of other segments: where no slot here has a token id, it stays
};

// What a KV head tells about itself; counts of tokens.
struct HeadState {
    int32_t live = 0;      // after the last eviction pass or compaction
    int32_t evicted = 0;   // so far
    int32_t shortfall = 0; // at the last eviction pass: how many more were required than could be evicted
    int32_t reserved = 0;
};

// An eviction pass, which also packs the residual window's oldest rows. For each KV head:
//  1. `select` (select.hpp) takes victims from the slots in use of segments 0 (dense: sinks, then the residual window)
//     and 1 (the packed segment; and the lower ones), by demand(description, live, seen, incoming); but at least as
//     many as give the leaving rows room in the packed segments and leave wanted_free slots there. position = the token
//     id (or positions[id]); queries_seen = seen - position; value distances are over the values that the
//     segments stand for, o = output_sum / outputs.
//  2. Victims' slots become free.
//  3. Rows go down: `needed` rows are those that leave and are no victims, and the larger of wanted_free and
//     wanted_first. Of a packed segment as many rows go down as `needed` is more than it has free slots, which is
//     `needed` of the segment below; but no more than find a free slot there in the end. select_to_move says which; of
//     the first segment those that leave are among them. The lowest segment's rows go first. They come to free slots
//     in the order of indices, those that leave before the others, each in the order of its slots, with token id, flag
//     and importance, requantized from what they stood for; their own slots become free.
//  4. The other residual rows that leave go to the packed segment's free slots in the same way.
//  5. free_slots lists the packed segment's first free slots, then free_slot.
//  6. output_sum becomes 0.
struct SlotEvict {
    Description description;
    int64_t first_head = 0; // the first of these is the layer's head of this number, for ranks that heads draw
    Segment dense, packed;  // dense is absent where there are neither sinks nor a residual window
    // Packed segments below it, each in formats of its own: 0 to 2, the nearest first. Their means are its means.
    std::vector<Segment> lower;
    int64_t seen = 0;
    int64_t incoming = 0;
    int64_t wanted_free = 0; // slots of the packed segment
    // Slots of the first packed segment that are wanted free as far as its rows find room in lower ones.
    int64_t wanted_first = 0;
    // The residual window is dense slots [residual_first, residual_first + residual_count).
    int64_t residual_first = 0, residual_count = 1;
    int64_t leaving_offset = 0, leaving_count = 0; // slots residual_first + (leaving_offset + i) % residual_count leave
    Norm k_norm = Norm::corrected, v_norm = Norm::corrected;
    // Before that: the packed segment's means become those of the residual window's live rows.
    bool set_means = false;
    Tensor output_sum; // F32 [1, kv_heads, 1, v_head_size], or absent where the layout has none
    int64_t outputs = 0;
    // F32 [1, kv_heads, 1, network_numbers], or absent where the ranking asks for no prediction: HiddenUnits.
    Tensor network;
    Tensor positions;  // I32 [1, 1, 1, token ids], or absent: token id to position
    Tensor free_slots; // I32 [1, kv_heads, 1, any], or absent
    Tensor head_state; // I32 [1, kv_heads, 1, 4]: HeadState
};

// Changes slot maps: the entries whose token id is in [begin, end).
struct SlotEdit {
    enum class Action : uint32_t { free, shift, anchor };
    Action action = Action::free;
    std::vector<Segment> segments;
    int64_t begin = 0, end = 0;
    int64_t delta = 0; // of shift; no token id becomes negative or meets another
};

// Moves live slots into free ones before them, so that each head's live slots come first. Sets head_state.live to how
// many there are in this segment.
struct SlotCompact {
    Segment segment;
    Tensor head_state;        // I32 [1, kv_heads, 1, 4]: HeadState
    bool keeps_order = false; // of the live slots: all of those behind the first free one move
};

// Makes small elements zero, in place: for each KV head, K and V apart, of the live rows whose token has at least the
// position `sink`,
//     tau = scale * max(sigma / 2, mu)        mu, sigma: mean and standard deviation of |x| over all their elements
// and x becomes 0 where |x| < tau. What is not finite counts nowhere and stays. Rows of packed formats, and those of a
// side whose scale is 0, do not take part. The segments have no means beside rows that are not packed.
struct SlotZero {
    std::vector<Segment> segments; // 1 to 4
    double k_scale = 0, v_scale = 0;
    int64_t sink = 0;
    Tensor positions; // I32 [1, 1, 1, token ids], or absent: token id to position
};

// Copies slots [0, slots of `from`) of every KV head into the first slots of `to`, which has the same formats and at
// least as many; its other slots become free.
struct SlotCopy {
    Segment from, to;
};

} // namespace winnow
