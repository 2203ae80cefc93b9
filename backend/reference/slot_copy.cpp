// Slot for slot as it is, the means with them, since rows are stored less those.
#include "reference/operations.hpp"

#include <cstring>

#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

void copy_mean(const Tensor& from, const Tensor& to, int64_t head) {
    if (to)
        std::memmove(row_address(to, 0, head, 0), row_address(from, 0, head, 0), row_bytes(from.type, from.shape[3]));
}

} // namespace

void slot_copy(const SlotCopy& args) {
    const auto& [from, to] = args;
    for (int64_t head = 0; head < from.kv_heads(); ++head) {
        for (int64_t slot = 0; slot < from.slots(); ++slot) copy_slot(from, slot, to, slot, head);
        for (int64_t slot = from.slots(); slot < to.slots(); ++slot) set_entry(to.tokens, head, slot, free_slot);
        copy_mean(from.k_mean, to.k_mean, head);
        copy_mean(from.v_mean, to.v_mean, head);
    }
}

} // namespace winnow::reference
