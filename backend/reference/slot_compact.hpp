// Live slots before free ones: the executable definition of SlotCompact.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_compact(const SlotCompact& args);

} // namespace winnow::reference
