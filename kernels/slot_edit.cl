/* slot_edit: frees, shifts or flags the entries of a slot map whose token ids are in a range. "cpu" shape: one
 * work-item per work-group, a group for each KV head.
 *
 *     slot map  | -1 | 7 | 3 | 9 | ...      free those in [3, 8)  ->  | -1 | -1 | -1 | 9 | ...
 *
 * Layouts: slot_edit_params.h. Needs no -D.
 */
#include "one_work_item.h"
#include "slot_edit_params.h"
#include "slot_parts.h"

ONE_WORK_ITEM __kernel void slot_edit(PARAMS(slot_edit_params), __global uchar* tokens, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_edit_params);
    __global int* map = (__global int*)of_head(tokens, &p.tokens, (uint)get_group_id(0) + group_base);
    for (uint slot = 0; slot < p.slots; slot += 16) {
        const uint count = min(p.slots - slot, 16u);
        const int16 entries = load_ints(map + slot, count, FREE_SLOT);
        const int16 token_id = entries & (ANCHOR_FLAG - 1);
        const int16 is_meant = (token_id >= p.begin) & (token_id < p.end) & (entries >= 0);
        const int16 changed = p.action == SLOT_EDIT_FREE    ? (int16)(FREE_SLOT)
                              : p.action == SLOT_EDIT_SHIFT ? entries + p.delta
                                                            : entries | ANCHOR_FLAG;
        store_ints(map + slot, count, select(entries, changed, is_meant));
    }
}
