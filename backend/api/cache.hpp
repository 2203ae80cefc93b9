// The table of winnow_cache.h, which says what each of its functions does.
#pragma once

#include "winnow_cache.h"

namespace winnow::api {

extern const winnow_cache_api cache_table;

} // namespace winnow::api
