// Changes of slot maps: the executable definition of SlotEdit.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_edit(const SlotEdit& args);

} // namespace winnow::reference
