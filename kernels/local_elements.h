/* 16 elements of a dense row in local memory. Needs before it: the formats and local_rows.h. */

static inline float16 local16_f32(const __local uchar* row, uint chunk) {
    const __local float4* parts = (const __local float4*)row + chunk * 4;
    return (float16)(parts[0], parts[1], parts[2], parts[3]);
}

static inline ushort16 local_halves(const __local uchar* row, uint chunk) {
    const __local uint4* parts = (const __local uint4*)row + chunk * 2;
    return as_ushort16((uint8)(parts[0], parts[1]));
}

static inline float16 local16_f16(const __local uchar* row, uint chunk) {
    return halves_as_floats(local_halves(row, chunk));
}

static inline float16 local16_bf16(const __local uchar* row, uint chunk) {
    return as_float16(convert_uint16(local_halves(row, chunk)) << 16);
}

static inline float local_half(const __local uchar* at) { return vload_half(0, (const __local half*)at); }
