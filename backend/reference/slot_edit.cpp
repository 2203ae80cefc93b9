// Each entry of each slot map whose token id is meant.
#include "reference/operations.hpp"

#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

int32_t edited(const SlotEdit& args, int32_t entry) {
    switch (args.action) {
    case SlotEdit::Action::free: return free_slot;
    case SlotEdit::Action::shift:
        return entry + static_cast<int32_t>(args.delta); // the flag stays, as token ids are below it
    case SlotEdit::Action::anchor: return entry | anchor_flag;
    }
    return entry;
}

} // namespace

void slot_edit(const SlotEdit& args) {
    auto is_meant = [&](int32_t token_id) { return token_id >= args.begin && token_id < args.end; };
    for (const Segment& segment : args.segments)
        for (int64_t head = 0; head < segment.kv_heads(); ++head)
            for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                const int32_t token = entry(segment.tokens, head, slot);
                if (is_live(token) && is_meant(token_id_of(token)))
                    set_entry(segment.tokens, head, slot, edited(args, token));
            }
}

} // namespace winnow::reference
