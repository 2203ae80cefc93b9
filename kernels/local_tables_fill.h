/* The tables of local_tables.h, filled for the formats that a program has. Needs before it: the formats and LANE. */

#if defined(USES_turbo4) || defined(USES_turbo3) || defined(USES_turbo2) || defined(USES_turbo3_5) ||                  \
    defined(USES_turbo2_5)
#define USES_CENTROIDS
#endif

/* A barrier has to follow. */
static inline void fill_lookup_tables(__local float* tables) {
    if (LANE != 0) return;
#ifdef USES_CENTROIDS
    vstore16(TURBO_CENTROIDS_4, 0, tables + LOOKUP_AT_TURBO_CENTROIDS_4);
    vstore16(TURBO_CENTROIDS_3, 0, tables + LOOKUP_AT_TURBO_CENTROIDS_3);
    vstore16(TURBO_CENTROIDS_2, 0, tables + LOOKUP_AT_TURBO_CENTROIDS_2);
#endif
#ifdef USES_iq4_nl
    vstore16(IQ4_NL_VALUES, 0, tables + LOOKUP_AT_IQ4_NL_VALUES);
#endif
}
