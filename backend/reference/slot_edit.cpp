// Each entry of each slot map whose number is meant.
#include "reference/slot_edit.hpp"

#include <algorithm>

#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

int32_t edited(const SlotEdit& args, int32_t entry) {
    switch (args.action) {
    case SlotEdit::Action::free: return free_slot;
    case SlotEdit::Action::shift: return entry + int32_t(args.delta); // the flag stays, as numbers are below it
    case SlotEdit::Action::anchor: return entry | anchor_flag;
    }
    return entry;
}

} // namespace

void slot_edit(const SlotEdit& args) {
    const std::vector<int32_t> numbers = args.numbers ? list_of(args.numbers) : std::vector<int32_t>();
    auto is_meant = [&](int32_t number) {
        if (args.numbers) return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
        return number >= args.begin && number < args.end;
    };
    for (const Store& store : args.stores)
        for (int64_t head = 0; head < store.kv_heads(); ++head)
            for (int64_t slot = 0; slot < store.slots(); ++slot) {
                const int32_t token = entry(store.tokens, head, slot);
                if (is_live(token) && is_meant(number_of(token)))
                    set_entry(store.tokens, head, slot, edited(args, token));
            }
}

} // namespace winnow::reference
