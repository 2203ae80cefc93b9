// With n live slots, the live ones from n on fill the free ones below n, in the order of both; or all keep their order.
#include "reference/operations.hpp"

#include "reference/slot_rows.hpp"

namespace winnow::reference {

void slot_compact(const SlotCompact& args) {
    const Segment& segment = args.segment;
    for (int64_t head = 0; head < segment.kv_heads(); ++head) {
        auto lives = [&](int64_t slot) { return is_live(entry(segment.tokens, head, slot)); };
        int64_t live = 0;
        for (int64_t slot = 0; slot < segment.slots(); ++slot) live += lives(slot) ? 1 : 0;
        int64_t to = 0;
        for (int64_t from = args.keeps_order ? 0 : live; from < segment.slots(); ++from) {
            if (!lives(from)) continue;
            while (to < from && lives(to)) ++to;
            if (to == from) continue;
            copy_slot(segment, from, segment, to, head);
            set_entry(segment.tokens, head, from, free_slot);
        }
        HeadState state = head_state(args.head_state, head);
        state.live = static_cast<int32_t>(live);
        set_head_state(args.head_state, head, state);
    }
}

} // namespace winnow::reference
