/* Slots, or pages, in the order of their keys, and how far in that order some of them go. Needs before it: KEY_RUNS. */
#define NO_KEY 0xffffffffffffffffUL /* it is not in the order */

/* Keys of up to KEY_RUNS runs of slots, `count` of each, and the indices of their first slots. */
typedef struct slot_keys {
    const __global ulong* run[KEY_RUNS];
    uint count[KEY_RUNS];
    uint index[KEY_RUNS];
} slot_keys;

/* Slots up to this one. { 0, 0 }: none is, since no key in the order is 0. */
typedef struct slot_bound {
    ulong key;
    uint index; /* of slots that have the key, those up to this index */
} slot_bound;

static inline int is_within(slot_bound bound, ulong key, uint index) {
    return key < bound.key || (key == bound.key && index <= bound.index);
}

static inline slot_bound later_bound(slot_bound a, slot_bound b) { return is_within(a, b.key, b.index) ? a : b; }
