/* slot_edit, "workgroup" shape: a group for each KV head and part of its slots, a work-item for each slot. What it does
 * is said in slot_edit.cl. Layouts: slot_edit_params.h. Needs no -D.
 */
#include "slot_group.h"
#include "slot_edit_params.h"
#include "slot_parts.h"

ONE_GROUP __kernel void slot_edit(PARAMS(slot_edit_params), __global uchar* tokens, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_edit_params);
    const uint group = (uint)get_group_id(0) + group_base;
    __global int* map = (__global int*)of_head(tokens, &p.tokens, group / p.parts);
    for (uint slot = group % p.parts * GROUP_SIZE + LANE; slot < p.slots; slot += p.parts * GROUP_SIZE) {
        const int entry = map[slot], token_id = entry & (ANCHOR_FLAG - 1);
        if (entry < 0 || token_id < p.begin || token_id >= p.end) continue;
        map[slot] = p.action == SLOT_EDIT_FREE    ? FREE_SLOT
                    : p.action == SLOT_EDIT_SHIFT ? entry + p.delta
                                                  : entry | ANCHOR_FLAG;
    }
}
