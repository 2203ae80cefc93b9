// What attention shows of each slot: the executable definition of SlotAccumulate.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_accumulate(const SlotAccumulate& args);

} // namespace winnow::reference
