/* Products of small matrices by a subgroup of 32 lanes, as NVIDIA's GPUs from compute capability 8.0 on make them in
 * one instruction, mma.m16n8k16: c += a b of halves, or of bf16, with sums in float. Lane 4 g + t has of
 *
 *     a [16][16]    rows g and g + 8, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: in x, y the first two of each row
 *     b [16][8]     rows 2 t, 2 t + 1 in x, 2 t + 8 and 2 t + 9 in y, of column g
 *     c [16][8]     row g in x, y and row g + 8 in z, w, columns 2 t and 2 t + 1
 *
 * Without SUBGROUP_PTX lanes exchange what they have and compute: for tests on other devices. Needs before it:
 * subgroup.h. */

#ifdef SUBGROUP_PTX
#define ADD_PRODUCT(name, type)                                                                                        \
    static inline float4 name(float4 c, uint4 a, uint2 b) {                                                            \
        __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "              \
                         "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                               \
                         : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)                                                  \
                         : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));                                \
        return c;                                                                                                      \
    }
ADD_PRODUCT(add_product, "f16")
ADD_PRODUCT(add_product_bf16, "bf16")

/* Two floats as halves, and back; the low half is x. */
static inline uint two_as_halves(float2 x) {
    uint halves;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(x.y), "f"(x.x));
    return halves;
}

static inline float2 halves_as_two(uint halves) {
    float2 x;
    __asm__("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
            : "=f"(x.x), "=f"(x.y)
            : "r"(halves));
    return x;
}

/* Of two pairs of halves the low ones, or the high ones. */
static inline uint low_halves(uint a, uint b) {
    uint halves;
    __asm__("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(halves) : "r"(a), "r"(b));
    return halves;
}

static inline uint high_halves(uint a, uint b) {
    uint halves;
    __asm__("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(halves) : "r"(a), "r"(b));
    return halves;
}

/* 4 bytes less `less`, as halves. A half of 1024 has them in its low bits. */
static inline uint2 bytes_as_halves(uint bytes, const uint less) {
    uint2 halves;
    __asm__("prmt.b32 %0, %1, %2, 0x4140;" : "=r"(halves.x) : "r"(bytes), "r"(0x64646464u));
    __asm__("prmt.b32 %0, %1, %2, 0x4342;" : "=r"(halves.y) : "r"(bytes), "r"(0x64646464u));
    __asm__("sub.rn.f16x2 %0, %1, %2;" : "=r"(halves.x) : "r"(halves.x), "r"(0x64006400u | less << 16 | less));
    __asm__("sub.rn.f16x2 %0, %1, %2;" : "=r"(halves.y) : "r"(halves.y), "r"(0x64006400u | less << 16 | less));
    return halves;
}

static inline float power_of_2(float x) {
    float y;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
static inline uint two_as_halves(float2 x) {
    uint halves;
    vstore_half2_rte(x, 0, (half*)&halves);
    return halves;
}

static inline float2 halves_as_two(uint halves) { return vload_half2(0, (const half*)&halves); }

static inline uint low_halves(uint a, uint b) { return (a & 0xffff) | b << 16; }
static inline uint high_halves(uint a, uint b) { return a >> 16 | (b & 0xffff0000u); }
static inline float power_of_2(float x) { return exp2(x); }

static inline uint2 bytes_as_halves(uint bytes, const uint less) {
    const float4 x = convert_float4(as_uchar4(bytes)) - (float)less;
    return (uint2)(two_as_halves(x.lo), two_as_halves(x.hi));
}

static inline float2 bf16_as_two(uint pair) { return (float2)(as_float(pair << 16), as_float(pair & 0xffff0000u)); }

#define ADD_PRODUCT(name, as_two)                                                                                      \
    static inline float name##_of_two(float c, uint a, uint b) {                                                       \
        const float2 x = as_two(a), y = as_two(b);                                                                     \
        return fma(x.y, y.y, fma(x.x, y.x, c));                                                                        \
    }                                                                                                                  \
    static float4 name(float4 c, uint4 a, uint2 b) {                                                                   \
        const uint lane = get_sub_group_local_id(), first = lane & ~3u, column = lane % 4 * 8;                         \
        for (uint t = 0; t < 4; ++t) {                                                                                 \
            const uint a_x = sub_group_shuffle(a.x, first + t), a_y = sub_group_shuffle(a.y, first + t);               \
            const uint a_z = sub_group_shuffle(a.z, first + t), a_w = sub_group_shuffle(a.w, first + t);               \
            const uint left_x = sub_group_shuffle(b.x, column + t), left_y = sub_group_shuffle(b.y, column + t);       \
            const uint right_x = sub_group_shuffle(b.x, column + 4 + t),                                               \
                       right_y = sub_group_shuffle(b.y, column + 4 + t);                                               \
            c.x = name##_of_two(name##_of_two(c.x, a_x, left_x), a_z, left_y);                                         \
            c.y = name##_of_two(name##_of_two(c.y, a_x, right_x), a_z, right_y);                                       \
            c.z = name##_of_two(name##_of_two(c.z, a_y, left_x), a_w, left_y);                                         \
            c.w = name##_of_two(name##_of_two(c.w, a_y, right_x), a_w, right_y);                                       \
        }                                                                                                              \
        return c;                                                                                                      \
    }
ADD_PRODUCT(add_product, halves_as_two)
ADD_PRODUCT(add_product_bf16, bf16_as_two)
#endif

/* 4 bytes less `less`, in bf16: each is whole there. 2^23 has a byte in its low bits. */
static inline uint2 bytes_as_bf16(uint bytes, const uint less) {
    uint x[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i)
        x[i] = as_uint(as_float(0x4b000000u | (bytes >> 8 * i & 0xffu)) - (float)(8388608u + less));
    return (uint2)(high_halves(x[0], x[1]), high_halves(x[2], x[3]));
}

/* Two floats as three pairs in bf16, whose sum they are: 8 bits in each, cut off and not rounded. */
static inline void two_as_bf16(float2 x, uint* pairs) {
#pragma unroll
    for (uint i = 0; i < 3; ++i) {
        const float2 cut = as_float2(as_uint2(x) & 0xffff0000u);
        pairs[i] = high_halves(as_uint(cut.x), as_uint(cut.y));
        x -= cut;
    }
}
