// Small elements become zero: the executable definition of SlotZero.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_zero(const SlotZero& args);

} // namespace winnow::reference
