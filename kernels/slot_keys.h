/* What victims are selected by: the slots with the smallest keys are. A key is a slot's class, its rank and its
 * position in one number, so that comparing keys is what select.hpp asks for; slots with equal keys are ordered by
 * their index.
 *
 *     bit 63      1: protected, where there are several packed segments
 *     bit 62      0: preferred (eligible, and below the threshold); 1: evicted only if that is required
 *     bits 30-61  the rank, a float whose bits are ordered as numbers are
 *     bits 0-29   the position
 *
 * Free slots have NO_KEY, and so have protected ones where there is one packed segment. Needs before it:
 * slot_evict_params.h, KEY_RUNS. */
#include "slot_bound.h"

#define KEY_PROTECTED (1UL << 63)
#define KEY_CLASS (1UL << 62)
#define KEY_POSITION ((1UL << 30) - 1)

/* max(1, ceil(quantile * count)), where the product is rounded to 53 bits as doubles are: so the host would have it,
 * and a device need not know doubles. */
static inline uint quantile_rank(const slot_eviction* pass, uint count) {
    const ulong high = mul_hi(pass->quantile_bits, (ulong)count);
    const ulong low = pass->quantile_bits * count;
    if (high == 0 && low == 0) return 1;
    const uint bits = high ? 128 - (uint)clz(high) : 64 - (uint)clz(low);
    uint shift = pass->quantile_shift;
    ulong product = low;
    if (bits > 53) {
        const uint dropped = bits - 53; /* at most 32, because a count has that many bits */
        product = high ? high << (64 - dropped) | low >> dropped : low >> dropped;
        const ulong rest = low & ((1UL << dropped) - 1), half_of_it = 1UL << (dropped - 1);
        product += rest > half_of_it || (rest == half_of_it && (product & 1));
        shift -= dropped; /* it is at least 52 */
    }
    if (shift >= 64) return 1;
    const ulong whole = product >> shift;
    return max((uint)(whole + ((product & ((1UL << shift) - 1)) != 0)), 1u);
}

/* 24 bits from the seed, the head and the position: splitmix64's finaliser, once for each. */
static inline ulong mix_bits(ulong bits, ulong each) {
    bits = (bits ^ each) + 0x9e3779b97f4a7c15UL;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9UL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebUL;
    return bits ^ (bits >> 31);
}

static inline float random_rank(ulong seed, uint head, int position) {
    return (float)(mix_bits(mix_bits(mix_bits(seed, head), (ulong)position), 0) >> 40);
}

/* What an eviction pass has to free of a head's `occupied` slots, and up to how much it may. */
typedef struct slot_demand {
    long required, allowed;
} slot_demand;

static inline slot_demand demand_of(const slot_eviction* pass, long occupied) {
    const long full = occupied + pass->coming;
    slot_demand wanted;
    wanted.required = max(full - pass->budget, 0L);
    wanted.allowed = wanted.required;
    if (full * pass->trigger_whole <= pass->budget * pass->trigger_part) return wanted;
    long surplus = occupied - pass->target;
    if (pass->most > 0) surplus = min(surplus, pass->most);
    surplus = min(surplus, occupied * pass->share_part / pass->share_whole);
    wanted.allowed = max(wanted.required, surplus);
    return wanted;
}
