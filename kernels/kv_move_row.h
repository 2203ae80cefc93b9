/* move_row: one row from SRC_FORMAT to DST_FORMAT. With MAY_BE_IN_PLACE dst may begin where src begins, and is not
 * longer then. Needs before it: the formats, format_any.h, rotation.h, kv_rows.h, MAY_BE_IN_PLACE (0 or 1), and SIZE,
 * the row's elements, where the row is moved as a whole. */
#pragma winnow repeatable

#ifndef MAY_BE_IN_PLACE
#error "kv_move_row.h needs MAY_BE_IN_PLACE"
#endif

/* A rotation takes whole rows; and in place a part must not be written over what a later one needs. */
#define IS_ROTATED (JOIN(FORMAT_ROTATED_, SRC_FORMAT) || JOIN(FORMAT_ROTATED_, DST_FORMAT))
#define IS_IN_ORDER (JOIN(FORMAT_IN_ORDER_, SRC_FORMAT) && JOIN(FORMAT_IN_ORDER_, DST_FORMAT))

#if IS_ROTATED || (MAY_BE_IN_PLACE && !IS_IN_ORDER)

#ifndef SIZE
#error "these formats need -D SIZE"
#endif

/* Between two rotated formats a row stays rotated. */
OUT_OF_LINE static void move_row(__global uchar* to, const __global uchar* from, uint size, uint norm) {
    float16 x[SIZE / 16];
    for (uint c = 0; c < SIZE / 16; ++c) x[c] = JOIN(load16_, SRC_FORMAT)(from, c * 16, SIZE);
#if JOIN(FORMAT_ROW_SCALED_, SRC_FORMAT)
    const float scale = JOIN(row_scale_, SRC_FORMAT)(from, SIZE);
    for (uint c = 0; c < SIZE / 16; ++c) x[c] *= scale;
#endif
#if JOIN(FORMAT_ROTATED_, DST_FORMAT) && !JOIN(FORMAT_ROTATED_, SRC_FORMAT)
    rotate_to_segment(x, SIZE);
#elif JOIN(FORMAT_ROTATED_, SRC_FORMAT) && !JOIN(FORMAT_ROTATED_, DST_FORMAT)
    rotate_back(x, SIZE);
#endif
#if JOIN(FORMAT_PACKED_, DST_FORMAT)
    JOIN(store_part_, DST_FORMAT)(to, x, 0, SIZE, SIZE, norm);
#else
    for (uint c = 0; c < SIZE / 16; ++c) JOIN(store16_, DST_FORMAT)(to, c * 16, x[c]);
#endif
}

#elif JOIN(FORMAT_PACKED_, DST_FORMAT)

OUT_OF_LINE static void move_row(__global uchar* to, const __global uchar* from, uint size, uint norm) {
    float16 x[PART / 16];
    for (uint first = 0; first < size; first += PART) {
        const uint count = min(size - first, (uint)PART);
        for (uint c = 0; c < count / 16; ++c) x[c] = JOIN(load16_, SRC_FORMAT)(from, first + c * 16, size);
        JOIN(store_part_, DST_FORMAT)(to, x, first, count, size, norm);
    }
}

#else

/* Packed rows are loaded 16 elements at a time, too: the dense row is longer than they are, and lies elsewhere. */
static inline void move_row(__global uchar* to, const __global uchar* from, uint size, uint norm) {
    uint i = 0;
    for (; i + 16 <= size; i += 16) JOIN(store16_, DST_FORMAT)(to, i, JOIN(load16_, SRC_FORMAT)(from, i, size));
#if !JOIN(FORMAT_PACKED_, SRC_FORMAT)
    for (; i < size; ++i) JOIN(store_, DST_FORMAT)(to, i, JOIN(load_, SRC_FORMAT)(from, i));
#endif
}

#endif
