/* hadamard, "workgroup" shape: a work-item takes a row.
 *
 * Layouts and -D: hadamard_rows.h.
 */
#define GROUP_SIZE ROW_GROUP_SIZE
#include "slot_group.h"
#include "hadamard_rows.h"
