/* hadamard: the rotation of the turbo formats on its own, or its inverse; dst may be src. "cpu" shape: one work-item
 * per work-group, which takes some rows one after another, each as a whole in private memory.
 *
 * Layouts and -D: hadamard_rows.h.
 */
#include "one_work_item.h"
#include "hadamard_rows.h"
