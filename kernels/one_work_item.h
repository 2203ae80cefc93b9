/* How a kernel of the "cpu" shape is declared: one work-item per work-group, explicit vectors. The hint tells compilers
 * that vectorize across work-items (Intel's) not to: what they would make is never run and takes four times as long. */
#define ONE_WORK_ITEM __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(float16)))

/* For what a group of many work-items takes, too (slot_group.h). */
#define ONE_GROUP ONE_WORK_ITEM
#define GROUP_SIZE 1u
#define LANE 0u

/* PoCL makes three functions of a kernel, each with all that is inlined into it. So what is large stands in a function
 * with this, and is compiled once. */
#define OUT_OF_LINE __attribute__((noinline))

#include "own_builtins.h"
#include "params_argument.h"
