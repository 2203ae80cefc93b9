/* kv_append: stores dense rows of K and V into a cache at given row indices, converting to the cache's formats; both
 * in one launch. "cpu" shape: one work-item per work-group, which takes some rows one after another.
 *
 * Layouts and -D: kv_append_rows.h.
 */
#include "one_work_item.h"
#include "kv_append_rows.h"
