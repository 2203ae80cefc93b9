/* kv_dequantize, "workgroup" shape: a work-item takes a row.
 *
 * Layouts and -D: kv_dequantize_rows.h.
 */
#define GROUP_SIZE ROW_GROUP_SIZE
#include "slot_group.h"
#include "kv_dequantize_rows.h"
