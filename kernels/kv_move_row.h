/* move_row: one row from SRC_FORMAT to DST_FORMAT, which may begin where it begins and is not longer then. Needs before
 * it: the formats, format_any.h, rotation.h, and SIZE, the row's elements, where one of the formats is packed. */

#if JOIN(FORMAT_PACKED_, SRC_FORMAT) || JOIN(FORMAT_PACKED_, DST_FORMAT)

#ifndef SIZE
#error "a packed format needs -D SIZE"
#endif

/* The row lies in private memory before any of it is written. Between two rotated formats it stays rotated. */
__attribute__((noinline)) static void move_row(__global uchar* to, const __global uchar* from, uint size, uint norm) {
    float16 x[SIZE / 16];
    for (uint c = 0; c < SIZE / 16; ++c) x[c] = JOIN(load16_, SRC_FORMAT)(from, c * 16, SIZE);
#if JOIN(FORMAT_ROW_SCALED_, SRC_FORMAT)
    const float scale = JOIN(row_scale_, SRC_FORMAT)(from, SIZE);
    for (uint c = 0; c < SIZE / 16; ++c) x[c] *= scale;
#endif
#if JOIN(FORMAT_ROTATED_, DST_FORMAT) && !JOIN(FORMAT_ROTATED_, SRC_FORMAT)
    rotate_to_store(x, SIZE);
#elif JOIN(FORMAT_ROTATED_, SRC_FORMAT) && !JOIN(FORMAT_ROTATED_, DST_FORMAT)
    rotate_back(x, SIZE);
#endif
#if JOIN(FORMAT_PACKED_, DST_FORMAT)
    JOIN(store_row_, DST_FORMAT)(to, x, SIZE, norm);
#else
    for (uint c = 0; c < SIZE / 16; ++c) JOIN(store16_, DST_FORMAT)(to, c * 16, x[c]);
#endif
}

#else

/* Elements are read no later than they are overwritten, because those of dst are not larger where it lies on src. */
static inline void move_row(__global uchar* to, const __global uchar* from, uint size, uint norm) {
    uint i = 0;
    for (; i + 16 <= size; i += 16)
        JOIN(store16_, DST_FORMAT)(to, i, JOIN(load16_, SRC_FORMAT)(from, i, size));
    for (; i < size; ++i) JOIN(store_, DST_FORMAT)(to, i, JOIN(load_, SRC_FORMAT)(from, i));
}

#endif
