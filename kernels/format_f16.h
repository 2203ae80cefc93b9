/* Storage format f16: IEEE half precision, two bytes a value. Only loads and stores, so cl_khr_fp16 is not needed. A
 * format offers, for a row at any address that its elements may have: load16 (16 values from element `first`), load
 * (one value), and store16 / store, which round to nearest even. Packed formats join with the same functions
 * (format_packed.h); n, the elements of the row, matters to them alone. */
#define FORMAT_ELEMENT_BYTES_f16 2
#define FORMAT_PACKED_f16 0
#define FORMAT_ROTATED_f16 0
#define FORMAT_IN_ORDER_f16 1
#define FORMAT_ROW_SCALED_f16 0
#define FORMAT_BIASED_f16 0
#define FORMAT_GROUP_f16(n) (n)
#define FORMAT_ROW_BYTES_f16(n) ((n)*2)

/* vload_half16 may be two conversions of eight and an insertion, and a vstore_half16 of constants may be a store
 * that expects an aligned address; these are one instruction that expects nothing. */
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vcvtph2ps512_mask) && __has_builtin(__builtin_ia32_vcvtps2ph512_mask)
#define LOAD16_F16(address)                                                                                            \
    __builtin_ia32_vcvtph2ps512_mask(vload16(0, (const __global short*)(address)), (float16)(0.0f), (ushort)-1, 4)
#define STORE16_F16(x, address)                                                                                        \
    vstore16(__builtin_ia32_vcvtps2ph512_mask(x, 0, (short16)(0), (ushort)-1), 0, (__global short*)(address))
#endif
#endif
#ifndef LOAD16_F16
#define LOAD16_F16(address) vload_half16(0, address)
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define STORE16_F16(x, address) vstore16(convert_half16_rte(x), 0, address)
#else
static inline void store16_f16_by_lane(__global half* address, float16 x) {
    float lanes[16];
    vstore16(x, 0, lanes);
    for (uint lane = 0; lane < 16; ++lane) vstore_half_rte(lanes[lane], lane, address);
}
#define STORE16_F16(x, address) store16_f16_by_lane(address, x)
#endif
#endif

static inline float16 load16_f16(const __global uchar* row, uint first, const uint n) {
    return LOAD16_F16((const __global half*)row + first);
}

static inline float load_f16(const __global uchar* row, uint index) {
    return vload_half(index, (const __global half*)row);
}

static inline void store16_f16(__global uchar* row, uint first, float16 x) {
    STORE16_F16(x, (__global half*)row + first);
}

static inline void store_f16(__global uchar* row, uint index, float x) {
    vstore_half_rte(x, index, (__global half*)row);
}
