/* What comes before the attention of one token in the same launch: it is stored in its slot of segment 0, whose rows
 * are dense. The one group that reads the slot writes it: none reads what another group of the launch wrote. Where
 * causality or a window hide the slot from all, the first or the last split does. The work-items of a group share the
 * work. Needs before it: sdpa_memory.h, sdpa_work_tile.h, STEP, APPEND and with either kv_rows.h; GROUP_SIZE and LANE.
 */

#if !(STEP || APPEND) || JOIN(FORMAT_PACKED_, K_FORMAT_0) || JOIN(FORMAT_PACKED_, V_FORMAT_0)
static inline void sdpa_append(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work) {}
#else
#define STORE_ROW(FORMAT, to, from, type, size)                                                                        \
    do {                                                                                                               \
        const uint whole = (size) / 16 * 16;                                                                           \
        for (uint i = LANE * 16; i < whole; i += GROUP_SIZE * 16)                                                      \
            JOIN(store16_, FORMAT)(to, i, load16_any(from, type, i));                                                  \
        for (uint i = whole + LANE; i < (size); i += GROUP_SIZE) JOIN(store_, FORMAT)(to, i, load_any(from, type, i)); \
    } while (0)

static inline void sdpa_append(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work) {
    const sdpa_step* step = &p->step;
    if (!step->appends_token) return;
    if (step->slot < work->key_begin && work->split > 0) return;
    if (step->slot >= work->key_end && work->split + 1 < p->splits) return;
    const sdpa_segment* segment = &p->segment[0];
    const uint head = work->kv_head;
    const long slot = step->slot;
    __global uchar* k = memory->segment[0].k + row_offset(&segment->k, 0, head, slot);
    __global uchar* v = memory->segment[0].v + row_offset(&segment->v, 0, head, slot);
    STORE_ROW(K_FORMAT_0, k, memory->new_k + row_offset(&step->k, 0, head, 0), step->k_type, (uint)HEAD_SIZE);
    STORE_ROW(V_FORMAT_0, v, memory->new_v + row_offset(&step->v, 0, head, 0), step->v_type, (uint)V_HEAD_SIZE);
#if STEP
    if (LANE != 0) return;
    __global uchar* token_ids = memory->segment[0].positions + row_offset(&segment->positions, 0, head, 0);
    ((__global int*)token_ids)[slot] = step->token_id;
    __global uchar* importance = memory->importance[0];
    if (importance)
        ((__global float*)(importance + segment->importance.offset + head * segment->importance.stride))[slot] = 0.0f;
    if (memory->token_positions && head == 0)
        ((__global int*)(memory->token_positions + step->token_positions))[step->token_id] = step->position;
#endif
}
#endif
