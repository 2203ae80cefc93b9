// Attention over the tokens of several segments: the executable definition of SlotAttention.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

std::string validate_slot_attention(const SlotAttention& args); // the variant's name, or throws Error(UNSUPPORTED)
void slot_attention(const SlotAttention& args);

} // namespace winnow::reference
