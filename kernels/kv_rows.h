/* Where the rows of a cache lie. Needs before it: tensor_view.h. */

/* Elements of a row that are in private memory at once, where it is taken in parts: whole groups of every format. */
#define PART 512

/* A row of an operation that takes all of [batch][heads][rows], by its number. */
typedef struct row_place {
    uint batch, head, row;
} row_place;

static inline row_place row_place_of(uint number, uint heads, uint rows) {
    const row_place at = {number / rows / heads, number / rows % heads, number % rows};
    return at;
}

/* What a tensor of row indices says of a row; without one (TYPE_NONE) row i is row i. */
static inline long row_index(const __global uchar* memory, const tensor_view* view, uint type, uint batch, uint head,
                             uint row) {
    if (type == TYPE_NONE) return row;
    const __global uchar* indices =
        memory + view->offset + (long)batch * view->stride[0] + (long)head * view->stride[1];
    return type == TYPE_I64 ? ((const __global long*)indices)[row] : ((const __global int*)indices)[row];
}

static inline ulong row_offset(const tensor_view* view, uint batch, uint head, long row) {
    return view->offset + batch * view->stride[0] + head * view->stride[1] + row * view->stride[2];
}
