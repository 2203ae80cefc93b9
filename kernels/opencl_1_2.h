/* Built-in functions that came after OpenCL C 1.2, as kernels call them: the built-in where the language has it. */

/* The zero bits below the lowest set one; 32 of 0. ctz came with OpenCL C 2.0. */
static inline uint trailing_zeros(uint x) {
#if __OPENCL_C_VERSION__ >= 200
    return ctz(x);
#else
    return popcount(~x & (x - 1));
#endif
}
