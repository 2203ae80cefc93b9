/* A kernel's first argument, its parameter struct: by value, or where the host says that a device takes no arguments of
 * this size, a pointer to it. PARAMS declares the argument, GET_PARAMS the struct `p`. */
#ifdef PARAMS_IN_MEMORY
#define PARAMS(type) const __global type* params_in_memory
#define GET_PARAMS(type) const type p = *params_in_memory
#else
#define PARAMS(type) const type p
#define GET_PARAMS(type)
#endif
