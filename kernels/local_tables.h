/* The tables of codes that many work-items share, in local memory (format_packed.h). Included before the formats. */

#define LOOKUP_PARAMETER , const __local float* lookup_tables
#define LOOKUP_TABLE , lookup_tables
#define LOOKUP(table, index) lookup_local(lookup_tables + LOOKUP_AT_##table, index)
/* Adding 2^23 to a small integer leaves it in the low bits. */
#define LOOKUP_INTEGERS(first, index) (as_float16((index)&15 | 0x4b000000) + (float)((first)-8388608))

#define LOOKUP_AT_TURBO_CENTROIDS_4 0
#define LOOKUP_AT_TURBO_CENTROIDS_3 16
#define LOOKUP_AT_TURBO_CENTROIDS_2 32
#define LOOKUP_AT_IQ4_NL_VALUES 48
#define LOOKUP_FLOATS 64

static inline float16 lookup_local(const __local float* table, int16 index) {
    const int16 i = index & 15;
    return (float16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6],
                     table[i.s7], table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd],
                     table[i.se], table[i.sf]);
}
