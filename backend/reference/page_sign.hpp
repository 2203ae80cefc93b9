// The operation on pages PageSign in plain loops.
#pragma once

#include "device/pages.hpp"

namespace winnow::reference {

void page_sign(const PageSign& args);

} // namespace winnow::reference
