/* Inner products of sdpa_vector in whole numbers, for a segment of which the host says K_BYTES_<segment>: rows of Q are
 * rounded to 8 bits, each by its largest element, and meet the codes of keys as bytes (format_bytes.h). Needs before
 * it: what sdpa_vector_segment.h has before it, integer_dot.h and format_bytes.h. */
#pragma winnow repeatable

#define K_BYTE_PARTS (HEAD_SIZE / 64)

/* A row of Q in 8 bits, in the order of the keys' bytes. */
typedef struct byte_query {
    uint16 codes[K_BYTE_PARTS];
    int16 begin;  /* less what the bytes that stand for 0 add, lane by lane */
    float factor; /* of sums of products */
    int is_finite;
} byte_query;

/* Returns the sum of the elements as they were rounded: what a bias meets, so that no error of Q's does. */
static inline float round_query(const float16* q, byte_query* result) {
    float16 largest = (float16)(0.0f);
    int16 special = (int16)(0);
    for (uint c = 0; c < K_CHUNKS; ++c) {
        largest = larger(fabs(q[c]), largest);
        special |= lanes_not_finite(q[c]);
    }
    result->is_finite = !any_lane(special);
    const float magnitude = result->is_finite ? maximum_of_lanes(largest) : 0.0f;
    const float inverse = magnitude > 0x1p-120f ? 127.0f / magnitude : 0.0f; /* else infinite */
    char in_order[HEAD_SIZE];
    for (uint c = 0; c < K_CHUNKS; ++c)
        vstore16(convert_char16(result->is_finite ? rint(q[c] * inverse) : (float16)(0.0f)), c, in_order);
    char* codes = (char*)result->codes;
    for (uint i = 0; i < HEAD_SIZE; ++i) codes[i] = in_order[i / 64 * 64 + JOIN(byte_element_, K_FORMAT)(i % 64)];
    int16 lanes = (int16)(0); /* sums of the codes */
    for (uint part = 0; part < K_BYTE_PARTS; ++part)
        lanes = dot_bytes(lanes, (uint16)(0x01010101u), result->codes[part]);
    result->begin = lanes * -JOIN(FORMAT_BYTE_ZERO_, K_FORMAT);
    result->factor = magnitude * (JOIN(FORMAT_BYTE_STEP_, K_FORMAT) / 127.0f);
    return sum_of_lanes(convert_float16(lanes)) * result->factor;
}

/* The inner products of ROWS_AT_ONCE rows with four keys, lane by lane. sum: [ROWS_AT_ONCE][4]. */
static inline void dot_bytes_of_four(const byte_query* q, const __global uchar* const* k, float16 (*sum)[4]) {
#pragma unroll
    for (uint j = 0; j < 4; ++j) {
        int16 whole[ROWS_AT_ONCE];
#pragma unroll
        for (uint r = 0; r < ROWS_AT_ONCE; ++r) whole[r] = q[r].begin;
#pragma unroll
        for (uint part = 0; part < K_BYTE_PARTS; ++part) {
            const uint16 codes = JOIN(byte_codes_, K_FORMAT)(k[j], part * 64, HEAD_SIZE);
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r) whole[r] = dot_bytes(whole[r], codes, q[r].codes[part]);
        }
#pragma unroll
        for (uint r = 0; r < ROWS_AT_ONCE; ++r) sum[r][j] = convert_float16(whole[r]);
    }
}
