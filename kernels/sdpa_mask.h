/* attn_mask: what it adds to the logits of 16 keys at a time, and -INFINITY where it hides them or there is no key.
 * Without slots a key's column is its index, with slots its position. Needs before it: the formats, vector_lanes.h,
 * sdpa_params.h and SLOTS. */

/* Whether 16 positions are columns of the mask side by side, so that the mask's elements are, too. */
static inline int has_columns_side_by_side(const sdpa_params* p, int16 position) {
    return SLOTS && p->mask_type == TYPE_F16 && !p->mask_key_broadcast && position.s0 >= 0 &&
           (uint)position.s0 + 16 <= p->mask_columns && !any_lane(position - position.s0 != LANE_INDEX);
}

#if SLOTS
/* By position, of which -INFINITY comes where the mask has no column: of a negative one, too. */
static inline float16 mask16(const sdpa_params* p, const __global uchar* row, uint key, uint count, int16 position) {
    const uint16 column = as_uint16(p->mask_key_broadcast ? min(position, (int16)(0)) : position);
    uint at[16];
    vstore16(min(column, (uint16)(p->mask_columns - 1)), 0, at);
    float16 x;
    if (p->mask_type == TYPE_F16) { /* one conversion for all */
        ushort bits[16];
        for (uint lane = 0; lane < 16; ++lane) bits[lane] = ((const __global ushort*)row)[at[lane]];
        x = halves_as_floats(vload16(0, bits));
    } else {
        float lanes[16];
        for (uint lane = 0; lane < 16; ++lane) lanes[lane] = mask_element(row, p->mask_type, at[lane]);
        x = vload16(0, lanes);
    }
    return select(x, (float16)(-INFINITY), column >= p->mask_columns);
}
#else
/* For keys from `key`, of which `count` exist; a boolean mask becomes 0 and -INFINITY. */
static inline float16 mask16(const sdpa_params* p, const __global uchar* row, uint key, uint count, int16 position) {
    const uint type = p->mask_type;
    if (p->mask_key_broadcast || count < 16) {
        float lanes[16];
        for (uint lane = 0; lane < 16; ++lane)
            lanes[lane] = lane < count ? mask_element(row, type, p->mask_key_broadcast ? 0 : key + lane) : -INFINITY;
        return vload16(0, lanes);
    }
    if (type == TYPE_BOOL)
        return select((float16)(-INFINITY), (float16)(0.0f), convert_int16(vload16(0, row + key)) != 0);
    return type == TYPE_F32 ? load16_f32(row, key, count) : load16_f16(row, key, count);
}
#endif
