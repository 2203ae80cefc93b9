/* slot_select.h for a group of many work-items: the k-th smallest key eight bits at a time, by counting how many keys
 * have each digit. Every work-item calls these functions, and gets the same from them; what it is that they read was
 * stored before a barrier. Needs before it: slot_group.h, slot_keys.h. */
#define DIGITS 256
#if GROUP_SIZE != DIGITS
#error "a group has a work-item for each digit"
#endif

typedef struct select_state {
    group_sums sums;
    uint digits[DIGITS];
    uint digit, rest, equal; /* the one that was looked for, what it is the how manieth of, of how many */
    uint last;
    uint some_low, some_high, all_low, all_high;
} select_state;

/* FOR_EVERY_KEY(key, index) { ... }: of a work-item's share. */
#define FOR_EVERY_KEY(keys, key, index)                                                                                \
    for (uint r = 0; r < KEY_RUNS; ++r)                                                                                \
        for (uint i = LANE; i < (keys)->count[r]; i += GROUP_SIZE)                                                     \
            for (ulong key = (keys)->run[r][i], index = (keys)->index[r] + i, once = 1; once; once = 0)

ALWAYS_INLINE uint count_below(const slot_keys* keys, ulong bound, __local select_state* s) {
    uint below = 0;
    FOR_EVERY_KEY(keys, key, index) below += key < bound;
    return sum_of_group(&s->sums, below);
}

ALWAYS_INLINE uint count_within(const slot_keys* keys, slot_bound bound, __local select_state* s) {
    uint within = 0;
    FOR_EVERY_KEY(keys, key, index) within += is_within(bound, key, (uint)index);
    return sum_of_group(&s->sums, within);
}

/* The bits in which keys differ, and in *common those that all of them have; NO_KEY is none. */
ALWAYS_INLINE ulong differing_bits(const slot_keys* keys, ulong* common, __local select_state* s) {
    ulong some = 0, all = NO_KEY;
    FOR_EVERY_KEY(keys, key, index) {
        if (key == NO_KEY) continue;
        some |= key;
        all &= key;
    }
    if (LANE == 0) {
        s->some_low = s->some_high = 0;
        s->all_low = s->all_high = 0xffffffffu;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (all != NO_KEY) { /* a key may be 0 */
        atomic_or(&s->some_low, (uint)some);
        atomic_or(&s->some_high, (uint)(some >> 32));
        atomic_and(&s->all_low, (uint)all);
        atomic_and(&s->all_high, (uint)(all >> 32));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    *common = (ulong)s->all_high << 32 | s->all_low;
    some = (ulong)s->some_high << 32 | s->some_low;
    barrier(CLK_LOCAL_MEM_FENCE);
    return some & ~*common;
}

/* The digit at `shift` of the k-th smallest of the numbers that are `known` in the bits of `mask`: keys, or with
 * IS_INDEX the indices of the slots that have `of_key`. Equal digits one after another are counted at once, since many
 * counts of one digit would wait for each other. */
ALWAYS_INLINE uint find_digit(const slot_keys* keys, const int IS_INDEX, ulong of_key, ulong known, ulong mask,
                              uint shift, uint k, __local select_state* s) {
    s->digits[LANE] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint digit = 0, count = 0;
    FOR_EVERY_KEY(keys, key, index) {
        const ulong x = IS_INDEX ? index : key;
        if (((x ^ known) & mask) != 0 || (IS_INDEX ? key != of_key : key == NO_KEY)) continue;
        const uint next = (uint)(x >> shift) & (DIGITS - 1);
        if (next != digit && count > 0) {
            atomic_add(&s->digits[digit], count);
            count = 0;
        }
        digit = next;
        ++count;
    }
    if (count > 0) atomic_add(&s->digits[digit], count);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint of_all;
    const uint here = s->digits[LANE], before = sum_before(&s->sums, here, &of_all);
    if (before < k && k <= before + here) {
        s->digit = LANE;
        s->rest = k - before;
        s->equal = here;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return s->digit;
}

/* The k-th smallest key, from 1 on; at least k slots have one. *rest: the how manieth of those that have it, *equal. */
ALWAYS_INLINE ulong smallest_key(const slot_keys* keys, uint k, uint* rest, uint* equal, __local select_state* s) {
    ulong key;
    ulong differing = differing_bits(keys, &key, s);
    ulong mask = 0;
    *rest = k;
    *equal = 0; /* keys that do not differ are not counted */
    while (differing != 0) {
        const uint top = 63 - (uint)clz(differing), shift = max(top, 7u) - 7;
        key |= (ulong)find_digit(keys, 0, 0, key, mask, shift, *rest, s) << shift;
        *rest = s->rest;
        *equal = s->equal;
        mask |= (ulong)(DIGITS - 1) << shift;
        differing &= (1UL << shift) - 1;
    }
    return key;
}

/* The last slot that has a key. */
ALWAYS_INLINE uint last_with(const slot_keys* keys, ulong of_key, __local select_state* s) {
    if (LANE == 0) s->last = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_EVERY_KEY(keys, key, index) {
        if (key == of_key) atomic_max(&s->last, (uint)index);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint last = s->last;
    barrier(CLK_LOCAL_MEM_FENCE);
    return last;
}

/* The bound up to which there are k slots. */
ALWAYS_INLINE slot_bound smallest_slots(const slot_keys* keys, uint k, __local select_state* s) {
    slot_bound bound = {0, 0};
    if (k == 0) return bound;
    uint rest, equal, slots = 0;
    bound.key = smallest_key(keys, k, &rest, &equal, s);
    if (rest == equal) {
        bound.index = last_with(keys, bound.key, s);
        return bound;
    }
    for (uint r = 0; r < KEY_RUNS; ++r) slots = max(slots, keys->index[r] + keys->count[r]);
    ulong index = 0;
    for (uint bits = slots > 0xffff ? 32 : 16, mask = 0; bits > 0; bits -= 8) {
        const uint shift = bits - 8;
        index |= (ulong)find_digit(keys, 1, bound.key, index, mask, shift, rest, s) << shift;
        rest = s->rest;
        mask |= (uint)(DIGITS - 1) << shift;
    }
    bound.index = (uint)index;
    return bound;
}
