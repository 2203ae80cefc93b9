/* kv_dequantize: gives dense rows back from a cache, those at given row indices. "cpu" shape: one work-item per
 * work-group, which takes some rows one after another. A row whose index is outside the cache becomes zeros.
 *
 * Layouts and -D: kv_dequantize_rows.h.
 */
#include "one_work_item.h"
#include "kv_dequantize_rows.h"
