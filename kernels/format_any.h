/* Loads and stores of rows whose type is chosen while the kernel runs: of q, out, masks and what is appended, which
 * are too little of the work to specialise for. Also JOIN, which makes the name of a format's function. Needs before
 * it: tensor_view.h and the formats. */

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static inline float load_any(const __global uchar* row, uint type, uint index) {
    return type == TYPE_F32 ? load_f32(row, index) : type == TYPE_F16 ? load_f16(row, index) : load_bf16(row, index);
}

static inline float16 load16_any(const __global uchar* row, uint type, uint first) {
    return type == TYPE_F32   ? load16_f32(row, first, 16)
           : type == TYPE_F16 ? load16_f16(row, first, 16)
                              : load16_bf16(row, first, 16);
}

static inline void store_any(__global uchar* row, uint type, uint index, float x) {
    if (type == TYPE_F32)
        store_f32(row, index, x);
    else if (type == TYPE_F16)
        store_f16(row, index, x);
    else
        store_bf16(row, index, x);
}

static inline void store16_any(__global uchar* row, uint type, uint first, float16 x) {
    if (type == TYPE_F32)
        store16_f32(row, first, x);
    else if (type == TYPE_F16)
        store16_f16(row, first, x);
    else
        store16_bf16(row, first, x);
}
