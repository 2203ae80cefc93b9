// slots[head][t] or first + (offset + t) % count: row t, its token id, importance 0. The token id's position is noted
// too.
#include "reference/operations.hpp"

#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

int32_t token_id(const SlotAppend& args, int64_t t) {
    return args.token_ids ? entry(args.token_ids, 0, t) : static_cast<int32_t>(args.token_id + t);
}

} // namespace

void slot_append(const SlotAppend& args) {
    const Segment& segment = args.segment;
    const int64_t tokens = args.k.shape[2];
    for (int64_t t = 0; args.positions && t < tokens; ++t)
        set_entry(args.positions, 0, token_id(args, t), static_cast<int32_t>(args.position + t));
    for (int64_t head = 0; head < segment.kv_heads(); ++head)
        for (int64_t t = 0; t < tokens; ++t) {
            const int64_t slot = args.slots ? entry(args.slots, head, t) : args.first + (args.offset + t) % args.count;
            if (slot < 0) continue;
            set_slot_row(segment.k, segment.k_mean, head, slot, slot_row(args.k, {}, head, t), args.k_norm);
            set_slot_row(segment.v, segment.v_mean, head, slot, slot_row(args.v, {}, head, t), args.v_norm);
            set_entry(segment.tokens, head, slot, token_id(args, t));
            set_importance(segment, head, slot, 0);
        }
}

} // namespace winnow::reference
