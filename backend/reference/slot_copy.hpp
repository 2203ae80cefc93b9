// A segment into a larger one: the executable definition of SlotCopy.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_copy(const SlotCopy& args);

} // namespace winnow::reference
