/* kv_requantize: rewrites rows of a cache in another format, apart or in place. "cpu" shape: one work-item per
 * work-group, which takes some rows one after another.
 *
 * Layouts and -D: kv_requantize_rows.h.
 */
#include "one_work_item.h"
#include "kv_requantize_rows.h"
