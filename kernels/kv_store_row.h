/* store_k_row and store_v_row: one dense row into a cache, converted to K_FORMAT or V_FORMAT. A row for a packed format
 * is quantized in parts that fit into private memory: one is loaded, and from there scales, codes and bytes are made.
 * A rotation takes the whole row. Needs before it: the formats, format_any.h, rotation.h, kv_rows.h, the same -D as
 * kv_append_rows.h, and the hooks
 *
 *     ROW_PARAMETERS    what both functions take; among it to (the row in the cache), size (elements) and norm
 *     ROW_LOAD16(i)     elements i .. i + 15 of what is stored, by those parameters
 *     ROW_LOAD(i)       element i */
#pragma winnow repeatable

#define STORE_ROTATED_ROW(name, FORMAT, SIZE)                                                                          \
    OUT_OF_LINE static void name(ROW_PARAMETERS) {                                                                     \
        float16 x[SIZE / 16];                                                                                          \
        for (uint c = 0; c < SIZE / 16; ++c) x[c] = ROW_LOAD16(c * 16);                                                \
        rotate_to_segment(x, SIZE);                                                                                    \
        JOIN(store_part_, FORMAT)(to, x, 0, SIZE, SIZE, norm);                                                         \
    }

#define STORE_PACKED_ROW(name, FORMAT)                                                                                 \
    OUT_OF_LINE static void name(ROW_PARAMETERS) {                                                                     \
        float16 x[PART / 16];                                                                                          \
        for (uint first = 0; first < size; first += PART) {                                                            \
            const uint count = min(size - first, (uint)PART);                                                          \
            for (uint c = 0; c < count / 16; ++c) x[c] = ROW_LOAD16(first + c * 16);                                   \
            JOIN(store_part_, FORMAT)(to, x, first, count, size, norm);                                                \
        }                                                                                                              \
    }

#define STORE_DENSE_ROW(name, FORMAT)                                                                                  \
    static inline void name(ROW_PARAMETERS) {                                                                          \
        uint i = 0;                                                                                                    \
        for (; i + 16 <= size; i += 16) JOIN(store16_, FORMAT)(to, i, ROW_LOAD16(i));                                  \
        for (; i < size; ++i) JOIN(store_, FORMAT)(to, i, ROW_LOAD(i));                                                \
    }

#if JOIN(FORMAT_ROTATED_, K_FORMAT)
STORE_ROTATED_ROW(store_k_row, K_FORMAT, K_SIZE)
#elif JOIN(FORMAT_PACKED_, K_FORMAT)
STORE_PACKED_ROW(store_k_row, K_FORMAT)
#else
STORE_DENSE_ROW(store_k_row, K_FORMAT)
#endif

#if JOIN(FORMAT_ROTATED_, V_FORMAT)
STORE_ROTATED_ROW(store_v_row, V_FORMAT, V_SIZE)
#elif JOIN(FORMAT_PACKED_, V_FORMAT)
STORE_PACKED_ROW(store_v_row, V_FORMAT)
#else
STORE_DENSE_ROW(store_v_row, V_FORMAT)
#endif
