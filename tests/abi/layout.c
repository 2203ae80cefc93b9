/* The frozen layout, held by a C compiler. C99 has no static assertion; an array of a negative size stands for one. */
#include "winnow.h"
#include "winnow_cache.h"
#include "winnow_opencl.h"

#define LAYOUT_NAME_OF(line) layout_of_line_##line
#define LAYOUT_NAME(line) LAYOUT_NAME_OF(line)
#define LAYOUT_ASSERT(condition) extern char LAYOUT_NAME(__LINE__)[(condition) ? 1 : -1];
#define LAYOUT_SIZE(type, bytes) LAYOUT_ASSERT(sizeof(type) == (bytes))
#define LAYOUT_AT(type, field, bytes) LAYOUT_ASSERT(offsetof(type, field) == (bytes))

#include "layout.h"
