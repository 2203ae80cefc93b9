/* Selects victims without sorting: the slots with the smallest keys (slot_keys.h), whose bound it finds bit by bit.
 * Counts of keys are multiples of 8, as vectors are. Needs before it: slot_keys.h. */

static inline uint count_below(const slot_keys* keys, ulong key) {
    long8 below = (long8)(0);
    for (uint r = 0; r < KEY_RUNS; ++r)
        for (uint i = 0; i < keys->count[r]; i += 8) below -= vload8(0, keys->run[r] + i) < (ulong8)(key);
    const long4 below4 = below.lo + below.hi;
    return (uint)(below4.x + below4.y + below4.z + below4.w);
}

static inline uint count_within(const slot_keys* keys, slot_bound bound) {
    uint within = count_below(keys, bound.key);
    for (uint r = 0; r < KEY_RUNS; ++r)
        for (uint i = 0; i < keys->count[r]; ++i)
            within += keys->run[r][i] == bound.key && keys->index[r] + i <= bound.index;
    return within;
}

/* The k-th smallest key, from 1 on; at least k slots have one. From the highest bit down, where keys differ, the key's
 * bit is 1 if fewer than k keys are below that. */
static inline ulong smallest_key(const slot_keys* keys, uint k) {
    ulong8 some = (ulong8)(0), all = (ulong8)(NO_KEY);
    for (uint r = 0; r < KEY_RUNS; ++r)
        for (uint i = 0; i < keys->count[r]; i += 8) {
            const ulong8 key = vload8(0, keys->run[r] + i);
            some |= select(key, (ulong8)(0), key == (ulong8)(NO_KEY));
            all &= key;
        }
    const ulong4 some4 = some.lo | some.hi, all4 = all.lo & all.hi;
    ulong key = all4.x & all4.y & all4.z & all4.w;
    ulong differing = (some4.x | some4.y | some4.z | some4.w) & ~key;
    while (differing) {
        const ulong bit = 1UL << (63 - clz(differing));
        differing ^= bit;
        if (count_below(keys, key | bit) < k) key |= bit;
    }
    return key;
}

/* The bound up to which there are k slots. */
static inline slot_bound smallest_slots(const slot_keys* keys, uint k) {
    slot_bound bound = {0, 0};
    if (k == 0) return bound;
    bound.key = smallest_key(keys, k);
    uint equal = k - count_below(keys, bound.key);
    for (uint r = 0; r < KEY_RUNS; ++r)
        for (uint i = 0; i < keys->count[r]; ++i)
            if (keys->run[r][i] == bound.key && equal > 0) {
                bound.index = keys->index[r] + i;
                --equal;
            }
    return bound;
}
