// A judgement, and the ring's oldest rows into the body: the executable definition of SlotFlush.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_flush(const SlotFlush& args);

} // namespace winnow::reference
