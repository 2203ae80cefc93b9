// Tokens into slots: the executable definition of SlotAppend.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_append(const SlotAppend& args);

} // namespace winnow::reference
