// An eviction pass, and the residual window's oldest rows into the packed segment: the executable definition of
// SlotEvict.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_evict(const SlotEvict& args);

} // namespace winnow::reference
