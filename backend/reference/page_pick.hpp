// The operation on pages PagePick in plain loops.
#pragma once

#include "device/pages.hpp"

namespace winnow::reference {

void page_pick(const PagePick& args);

} // namespace winnow::reference
