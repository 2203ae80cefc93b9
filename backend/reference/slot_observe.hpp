// What attention shows of each slot: the executable definition of SlotObserve.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_observe(const SlotObserve& args);

} // namespace winnow::reference
