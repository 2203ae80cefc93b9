// Attention over the tokens of several segments: the executable definition of SlotAttention.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void validate_slot_attention(const SlotAttention& args); // throws Error(UNSUPPORTED)
void slot_attention(const SlotAttention& args);

} // namespace winnow::reference
