/* Inner products of bytes, four to a lane: unsigned codes times signed ones, added to whole numbers. One instruction
 * where the host says INTEGER_DOT_VNNI or the compiler has the extension; elsewhere the same result of several. */

/* sum + the products of the 64 bytes of `codes`, unsigned, with those of `q`, signed; lane i has bytes 4i .. 4i + 3. */
static inline int16 dot_bytes(int16 sum, uint16 codes, uint16 q) {
#if defined(INTEGER_DOT_VNNI) && defined(__AVX512F__) /* LLVM may know less of a processor than it has */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(q));
    return sum;
#elif defined(INTEGER_DOT_EXTENSION)
#define DOT_LANE(i) dot_4x8packed_us_int(codes.s##i, q.s##i)
    return sum + (int16)(DOT_LANE(0), DOT_LANE(1), DOT_LANE(2), DOT_LANE(3), DOT_LANE(4), DOT_LANE(5), DOT_LANE(6),
                         DOT_LANE(7), DOT_LANE(8), DOT_LANE(9), DOT_LANE(a), DOT_LANE(b), DOT_LANE(c), DOT_LANE(d),
                         DOT_LANE(e), DOT_LANE(f));
#else
    for (uint shift = 0; shift < 32; shift += 8)
        sum += as_int16((codes >> shift) & 255) * (as_int16(q << (24 - shift)) >> 24);
    return sum;
#endif
}
