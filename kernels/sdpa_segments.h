/* A program of attention has code for each of its segments, because each has formats of its own: sdpa_segment.h,
 * sdpa_factors.h and sdpa_<kernel>_store.h are included once for every STORE. Here is what their functions are called
 * there, and the arguments of a kernel that come once a segment. Needs before it: format_any.h, STORES, SLOTS and a
 * K_FORMAT_<store> and V_FORMAT_<store> each. */

/* The formats of the segment that is being compiled. */
#define K_FORMAT JOIN(K_FORMAT_, STORE)
#define V_FORMAT JOIN(V_FORMAT_, STORE)

#define OF_SEGMENT(name) JOIN(name##_, STORE)
#define load_key_overlapping OF_SEGMENT(load_key_overlapping)
#define load_key OF_SEGMENT(load_key)
#define load_query OF_SEGMENT(load_query)
#define load_value OF_SEGMENT(load_value)
#define mean_scores OF_SEGMENT(mean_scores)
#define leave_segment OF_SEGMENT(leave_segment)
#define stage_halves OF_SEGMENT(stage_halves)
#define are_finite OF_SEGMENT(are_finite)
#define dot_elements OF_SEGMENT(dot_elements)
#define weigh_codes OF_SEGMENT(weigh_codes)
#define load_key_of_16 OF_SEGMENT(load_key_of_16)
#define load_value_codes OF_SEGMENT(load_value_codes)
#define dot16 OF_SEGMENT(dot16)
#define add_values OF_SEGMENT(add_values)
#define add_seen_values OF_SEGMENT(add_seen_values)
#define values_are_finite OF_SEGMENT(values_are_finite)
#define prefetch_read OF_SEGMENT(prefetch_read)
#define load_keys_transposed OF_SEGMENT(load_keys_transposed)
#define attend_segment OF_SEGMENT(attend_segment)

#if SLOTS
#if STEP
#define STORED __global uchar
#else
#define STORED const __global uchar
#endif
#define SEGMENT_ARGUMENTS(i)                                                                                           \
    STORED *k_memory_##i, STORED *v_memory_##i, STORED *slots_memory_##i, const __global uchar *k_mean_memory_##i,     \
        const __global uchar *v_mean_memory_##i
#define SEGMENT_MEMORY(i)                                                                                              \
    { k_memory_##i, v_memory_##i, slots_memory_##i, k_mean_memory_##i, v_mean_memory_##i }
#define SLOT_MAP(p, memory, unit)                                                                                      \
    ((const __global int*)plane((memory)->segment[STORE].positions, &(p)->segment[STORE].positions, p, unit))
#define MASK16(p, row, key, count, position) gather16_mask(p, row, position)
#else
#define SEGMENT_ARGUMENTS(i) const __global uchar *k_memory_##i, const __global uchar *v_memory_##i
#define SEGMENT_MEMORY(i)                                                                                              \
    { k_memory_##i, v_memory_##i }
#define SLOT_MAP(p, memory, unit) 0
#define MASK16(p, row, key, count, position) load16_mask(p, row, key, count)
#endif

#define IMPORTANCE_ARGUMENT(i) __global uchar* importance_memory_##i
#define IMPORTANCE_MEMORY(i) importance_memory_##i

#if STORES == 1
#define EVERY_SEGMENT(f) f(0)
#elif STORES == 2
#define EVERY_SEGMENT(f) f(0), f(1)
#elif STORES == 3
#define EVERY_SEGMENT(f) f(0), f(1), f(2)
#else
#define EVERY_SEGMENT(f) f(0), f(1), f(2), f(3)
#endif
