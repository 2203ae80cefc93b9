// The frozen layout, held by a C++ compiler.
#include <type_traits>

#include "winnow.h"
#include "winnow_cache.h"
#include "winnow_opencl.h"

#define LAYOUT_SIZE(type, bytes)                                                                                       \
    static_assert(sizeof(type) == (bytes) && alignof(type) <= 8);                                                      \
    static_assert(std::is_standard_layout_v<type> && std::is_trivially_copyable_v<type>);
#define LAYOUT_AT(type, field, bytes) static_assert(offsetof(type, field) == (bytes));

#include "layout.h"
