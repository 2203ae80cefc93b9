// Scores by slot become scores by token id: the executable definition of SlotScores.
#pragma once

#include "device/slots.hpp"

namespace winnow::reference {

void slot_scores(const SlotScores& args);

} // namespace winnow::reference
