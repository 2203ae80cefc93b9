/* What one work-group of the attention kernels works on: its rows, its keys, and the positions that causality and
 * window let them see. Needs before it: sdpa_params.h, sdpa_memory.h, SLOTS and ROWS. */

/* Rows as arrays for vectors of 16 have them. */
#define ROWS_OF_16 ((ROWS + 15) / 16 * 16)

typedef struct sdpa_work_tile {
    uint index, split, batch, kv_head, first_row;
    uint rows;               /* of this block, 1 .. ROWS; the rest repeats the last row and is not stored */
    uint key_begin, key_end; /* in the segment at hand */
    uint first_score;        /* of the segment at hand */
#if LENGTHS
    uint split_end; /* of the split's keys, those past the batch entry's length among them */
    long q_offset;  /* of the batch entry */
#endif
    uint head[ROWS], token[ROWS];
    int see_begin[ROWS], see_end[ROWS];         /* positions that causality and window let a row see */
    int any_begin, any_end, all_begin, all_end; /* seen by any, by all rows */
} sdpa_work_tile;

/* Stands for "no key yet" in a row's maximum. A key that is seen is told from one that is not by a lane of its own,
 * not by this value, so a finite mask of -FLT_MAX keeps its meaning. A logit of -infinity hides its key. */
#define NO_MAXIMUM (-FLT_MAX)

/* The limit under which a value is passed over is this much lower, so that rounding does not pass over a weight at the
 * threshold. */
#define BELOW_ROUNDING 0.99999f

/* Where a work tile lies: with each work-item, or once for the group. */
#ifndef WORK_SPACE
#define WORK_SPACE
#endif
#define WORK_TILE const WORK_SPACE sdpa_work_tile*

/* Where positions end: a key's position is its index, or what the slot map says, which is below 2^30. */
#if SLOTS
#define POSITIONS_END(p) (1u << 30)
#else
#define POSITIONS_END(p) ((p)->kv_len)
#endif

static inline int clamp_position(long position, uint end) {
    return position < 0 ? 0 : position > (long)end ? (int)end : (int)position;
}

/* The position of the first query token. */
#if LENGTHS
#define Q_OFFSET(p, work) ((work)->q_offset)

/* The work tile's batch entry's number among those of all. */
static inline long sdpa_of_entry(const __global uchar* numbers, uint type, WORK_TILE work) {
    return type == TYPE_I64 ? ((const __global long*)numbers)[work->batch]
                            : ((const __global int*)numbers)[work->batch];
}

/* Ends the keys at the length of the batch entry, and finds its query offset. The second of two launches needs neither,
 * and has no memory of them. */
static inline void sdpa_take_lengths(WORK_SPACE sdpa_work_tile* work, const sdpa_params* p, const sdpa_memory* memory) {
    work->split_end = work->key_end;
    work->q_offset = p->q_offset;
    if (memory->kv_lengths) {
        const long length = sdpa_of_entry(memory->kv_lengths + p->kv_lengths_offset, p->kv_lengths_type, work);
        work->key_end = (uint)clamp(length, (long)work->key_begin, (long)work->key_end);
    }
    if (memory->q_offsets) {
        const long offset = sdpa_of_entry(memory->q_offsets + p->q_offsets_offset, p->q_offsets_type, work);
        work->q_offset = clamp(offset, -(1L << 48), 1L << 48);
    }
}
#else
#define Q_OFFSET(p, work) ((p)->q_offset)
#endif

/* All but what it has of rows. */
static inline void sdpa_work_tile_begin(WORK_SPACE sdpa_work_tile* work, const sdpa_params* p,
                                        const sdpa_memory* memory, uint group_number, uint splits) {
    work->split = group_number % splits;
    work->index = group_number / splits;
    const uint row_block = work->index % p->row_blocks;
    const uint slice = work->index / p->row_blocks;
    work->kv_head = slice % p->kv_heads;
    work->batch = slice / p->kv_heads;
    work->first_row = row_block * ROWS;
    work->rows = min((uint)ROWS, p->group * p->q_len - work->first_row);
    work->key_begin = p->key_begin + work->split * p->split_keys;
    work->key_end = min(work->key_begin + p->split_keys, p->key_end);
    work->first_score = 0;
#if LENGTHS
    sdpa_take_lengths(work, p, memory);
#endif
}

/* What it has of row r. */
static inline void sdpa_work_tile_row(WORK_SPACE sdpa_work_tile* work, const sdpa_params* p, uint r) {
    const uint positions_end = POSITIONS_END(p);
    const uint row = work->first_row + min(r, work->rows - 1);
    work->head[r] = work->kv_head * p->group + row / p->q_len;
    work->token[r] = row % p->q_len;
    const long position = Q_OFFSET(p, work) + (long)work->token[r];
    long begin = p->window_left ? position - p->window_left + 1 : 0;
    long end = p->is_causal ? position + 1 : (long)positions_end;
    if (p->window_right) end = min(end, position + p->window_right + 1);
    work->see_begin[r] = clamp_position(begin, positions_end);
    work->see_end[r] = clamp_position(end, positions_end);
}

/* What all rows have in common, when each has been called for. */
static inline void sdpa_work_tile_common(WORK_SPACE sdpa_work_tile* work, const sdpa_params* p) {
    work->any_begin = work->all_end = (int)POSITIONS_END(p);
    work->any_end = work->all_begin = 0;
    for (uint r = 0; r < ROWS; ++r) {
        work->any_begin = min(work->any_begin, work->see_begin[r]);
        work->any_end = max(work->any_end, work->see_end[r]);
        work->all_begin = max(work->all_begin, work->see_begin[r]);
        work->all_end = min(work->all_end, work->see_end[r]);
    }
}

static inline void sdpa_work_tile_init(WORK_SPACE sdpa_work_tile* work, const sdpa_params* p, const sdpa_memory* memory,
                                       uint group_number, uint splits) {
    sdpa_work_tile_begin(work, p, memory, group_number, splits);
    for (uint r = 0; r < ROWS; ++r) sdpa_work_tile_row(work, p, r);
    sdpa_work_tile_common(work, p);
}

/* Whether a segment has rows of a KV head, and where those are among the rows of heads that it has. */
static inline int sdpa_has_head(const sdpa_segment* segment, uint head) {
    return segment->heads == 0 || (segment->heads >> head & 1) != 0;
}
static inline uint sdpa_rows_of_head(const sdpa_segment* segment, uint head) {
    return segment->heads == 0 ? head : (uint)popcount(segment->heads & ((1ul << head) - 1));
}

/* Whether some of the keys [begin, end) of all segments lie in this one, of the work tile's head. */
static inline int sdpa_has_keys_of(const sdpa_segment* segment, WORK_TILE work, uint begin, uint end) {
    return end > segment->first_key && begin < segment->first_key + segment->slots &&
           sdpa_has_head(segment, work->kv_head);
}

/* Turns to a segment, and those of the keys that lie in it. */
static inline void sdpa_turn_to(WORK_SPACE sdpa_work_tile* work, const sdpa_segment* segment, uint begin, uint end) {
    work->key_begin = max(begin, segment->first_key) - segment->first_key;
    work->key_end = min(end - segment->first_key, segment->slots);
    work->first_score = segment->first_score;
}
