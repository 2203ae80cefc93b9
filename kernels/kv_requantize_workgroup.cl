/* kv_requantize, "workgroup" shape: a work-item takes a row.
 *
 * Layouts and -D: kv_requantize_rows.h.
 */
#define GROUP_SIZE ROW_GROUP_SIZE
#include "slot_group.h"
#include "kv_requantize_rows.h"
