/* kv_append, "workgroup" shape: a work-item takes a row, or where the cache's format is dense 16 elements of one, side
 * by side with the others of its group.
 *
 * Layouts and -D: kv_append_rows.h.
 */
#define GROUP_SIZE ROW_GROUP_SIZE
#include "slot_group.h"
#include "kv_append_rows.h"
