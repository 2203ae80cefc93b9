/* What slot_zero does with a range of a head's slots, of one side, in either shape. Needs before it:
 * slot_zero_ranges.h, zero_rows(at, tau, TYPE), and
 *
 *     ADD_UP(at, TYPE)    the sums of some rows
 *     ZERO_STATE          what a group has in local memory, as a parameter after a comma, or nothing
 *     IS_FIRST_LANE       of the group */

/* rows: K and V of each segment; maps: its slot map. */
static inline void zero_range(const slot_zero_params* p, __global uchar* const* rows, __global uchar* const* maps,
                              __global uchar* positions, __global uchar* sums, uint group ZERO_STATE) {
    const uint range = group % p->ranges, head = group / p->ranges % p->heads, side = group / p->ranges / p->heads;
    if (!(p->scales[side] > 0.0f)) return;
    __global range_sums* of_ranges = (__global range_sums*)sums + (group - range);
    range_sums all;
    all.unit = all.sum = all.squares = 0.0f;
    all.count = 0;
    float tau = 0.0f;
    if (p->action == SLOT_ZERO_ZERO) {
        all = join_sums(of_ranges, p->ranges);
        if (all.count == 0) return;
        tau = threshold_of(&all, p->scales[side]);
    }
    const uint first = (uint)((ulong)p->slots * range / p->ranges),
               end = (uint)((ulong)p->slots * (range + 1) / p->ranges);
    for (uint part = 0; part < p->part_count; ++part) {
        const slot_zero_part* segment = &p->parts[part];
        const uint type = segment->types[side];
        some_rows at;
        at.first = max(first, segment->first) - segment->first;
        at.end = min(max(end, segment->first) - segment->first, segment->slots);
        if (type == TYPE_NONE || at.first >= at.end) continue;
        at.rows = rows[2 * part + side] + row_offset(&segment->rows[side], 0, head, 0);
        at.stride = segment->rows[side].stride[2];
        at.tokens = (const __global int*)of_head(maps[part], &segment->tokens, head);
        at.positions = positions ? (const __global int*)(positions + p->positions) : 0;
        at.size = p->sizes[side];
        at.sink = p->sink;
        if (p->action == SLOT_ZERO_ADD_UP) {
            join_segment(&all, type == TYPE_F32   ? ADD_UP(&at, TYPE_F32)
                               : type == TYPE_F16 ? ADD_UP(&at, TYPE_F16)
                                                  : ADD_UP(&at, TYPE_BF16));
        } else if (type == TYPE_F32) {
            zero_rows(&at, tau, TYPE_F32);
        } else if (type == TYPE_F16) {
            zero_rows(&at, tau, TYPE_F16);
        } else {
            zero_rows(&at, tau, TYPE_BF16);
        }
    }
    if (p->action == SLOT_ZERO_ADD_UP && IS_FIRST_LANE) of_ranges[range] = all;
}
