/* What one query head's score of a slot adds to the statistic of the query group, of as many slots as a work-item has
 * at once. Needs before it: slot_statistic.h, float16_math.h, STATISTIC, and
 *
 *     FLOATS, INTS, AS_FLOATS, AS_INTS     float16, int16, as_float16, as_int16, or those of one number
 */

/* What a query head knows of its row: x = 2^((s - maximum) * RATE + shift), or of ABOVE_MEAN whether s - maximum is at
 * least `shift`. A row that sees nothing has the maximum -infinity; with 0 in its place, its x is 0. */
typedef struct row_facts {
    float maximum, shift;
} row_facts;

#define RATE (STATISTIC == PROBABILITY_SQUARED ? 2.0f * LOG2_E : LOG2_E)

/* stats: the row's maximum and sum. seen: how many slots it sees, of ABOVE_MEAN. */
static inline row_facts facts_of(const __global float* stats, float seen) {
    row_facts facts;
    facts.maximum = stats[0] == -INFINITY ? 0.0f : stats[0];
    if (STATISTIC == ABOVE_MEAN)
        facts.shift = log(stats[1] / seen);
    else if (STATISTIC == SCORE_MAGNITUDE || stats[1] == 0.0f)
        facts.shift = 0.0f;
    else
        facts.shift = (STATISTIC == PROBABILITY_SQUARED ? -2.0f : -1.0f) * log2(stats[1]);
    return facts;
}

/* x + 2^y to 1e-6: a power of 2 by its bits, times a polynomial for the rest of y, at most a half. What is below 2^-126
 * becomes that; NaN stays. */
static inline FLOATS add_power_of_2(FLOATS x, FLOATS y) {
    const FLOATS bounded = select(y, (FLOATS)(-126.0f), (FLOATS)(-126.0f) > y);
    /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
    const FLOATS shifted = bounded + 12582912.0f;
    const FLOATS r = bounded - (shifted - 12582912.0f);
    FLOATS z = fma(r, (FLOATS)(0.00111255073f), (FLOATS)(0.009666282684f));
    z = fma(z, r, (FLOATS)(0.05557400361f));
    z = fma(z, r, (FLOATS)(0.2402235121f));
    z = fma(z, r, (FLOATS)(0.6931428313f));
    z = fma(z, r, (FLOATS)(1.0f));
    const FLOATS power = AS_FLOATS((AS_INTS(shifted) - (0x4b400000 - 127)) << 23);
    return fma(z, power, x);
}

/* One head's scores joined with what the heads before it gave; NaN stays. */
static inline FLOATS join_head(FLOATS x, FLOATS s, row_facts facts) {
#if STATISTIC == SCORE_MAGNITUDE
    return x + select(s, (FLOATS)(0.0f), s == -INFINITY);
#elif STATISTIC == ABOVE_MEAN
    return x + select((FLOATS)(0.0f), (FLOATS)(1.0f), s - facts.maximum >= facts.shift);
#else
    const FLOATS y = fma(s - facts.maximum, (FLOATS)(RATE), (FLOATS)(facts.shift));
    const INTS is_seen = s != -INFINITY; /* a row whose sum is NaN says nothing of what it does not see */
    return select(x, add_power_of_2(x, y), is_seen);
#endif
}

/* The importance of a slot that a query sees. Where nothing is kept of the one before, that may be NaN, too. */
static inline FLOATS accumulated(FLOATS importance, FLOATS x, float keep, float gain) {
    const FLOATS y = (STATISTIC == SCORE_MAGNITUDE ? fabs(x) : x) * gain;
    return fma(keep == 0.0f ? (FLOATS)(0.0f) : importance, (FLOATS)(keep), y);
}
