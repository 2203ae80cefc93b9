/* The built-in functions that kernels call, for OWN_BUILTINS: PoCL reads a header of 18,000 lines with all functions of
 * OpenCL C twice for each program, and both times together take .1 s. That header is left out then, and this stands for
 * it. A function is declared as there, for every type, so that a call means the same with either: of a scalar that is
 * missing the compiler would take another one. */
#ifdef OWN_BUILTINS
#define BUILTIN __attribute__((overloadable))
#define CONST_BUILTIN __attribute__((overloadable, const))
#define PURE_BUILTIN __attribute__((overloadable, pure))

/* f(type, vector's width, function) for each type and width. */
#define EACH_VECTOR(f, type, name)                                                                                     \
    f(type, 2, name) f(type, 3, name) f(type, 4, name) f(type, 8, name) f(type, 16, name)
#define EACH_WIDTH(f, type, name) f(type, , name) EACH_VECTOR(f, type, name)
#define EACH_INTEGER(each, f, name)                                                                                    \
    each(f, char, name) each(f, uchar, name) each(f, short, name) each(f, ushort, name) each(f, int, name)             \
        each(f, uint, name) each(f, long, name) each(f, ulong, name)
#define EACH_TYPE(each, f, name) EACH_INTEGER(each, f, name) each(f, float, name)

#define OF_1(type, n, name) CONST_BUILTIN type##n name(type##n);
#define OF_2(type, n, name) CONST_BUILTIN type##n name(type##n, type##n);
#define OF_3(type, n, name) CONST_BUILTIN type##n name(type##n, type##n, type##n);
#define OF_SCALAR(type, n, name) CONST_BUILTIN type##n name(type##n, type);
#define OF_2_SCALARS(type, n, name) CONST_BUILTIN type##n name(type##n, type, type);
#define IS(type, n, name) CONST_BUILTIN int##n name(type##n);

EACH_WIDTH(OF_1, float, fabs)
EACH_WIDTH(OF_1, float, sqrt)
EACH_WIDTH(OF_1, float, rint)
EACH_WIDTH(OF_1, float, ceil)
EACH_WIDTH(OF_1, float, exp)
EACH_WIDTH(OF_1, float, log)
EACH_WIDTH(OF_1, float, log2)
EACH_WIDTH(OF_2, float, copysign)
EACH_WIDTH(OF_2, float, fmin)
EACH_WIDTH(OF_2, float, fmax)
EACH_VECTOR(OF_SCALAR, float, fmin)
EACH_VECTOR(OF_SCALAR, float, fmax)
EACH_WIDTH(OF_3, float, fma)
EACH_WIDTH(IS, float, isnan)
EACH_WIDTH(IS, float, isfinite)

EACH_TYPE(EACH_WIDTH, OF_2, min)
EACH_TYPE(EACH_WIDTH, OF_2, max)
EACH_TYPE(EACH_VECTOR, OF_SCALAR, min)
EACH_TYPE(EACH_VECTOR, OF_SCALAR, max)
EACH_TYPE(EACH_WIDTH, OF_3, clamp)
EACH_TYPE(EACH_VECTOR, OF_2_SCALARS, clamp)
EACH_INTEGER(EACH_WIDTH, OF_1, popcount)
EACH_INTEGER(EACH_WIDTH, OF_1, clz)
EACH_INTEGER(EACH_WIDTH, OF_1, ctz)
EACH_INTEGER(EACH_WIDTH, OF_2, rotate)
EACH_INTEGER(EACH_WIDTH, OF_2, mul_hi)

#define SELECT(type, n, mask) CONST_BUILTIN type##n select(type##n, type##n, mask##n);
#define SELECTS(mask, type) EACH_WIDTH(SELECT, type, mask) EACH_WIDTH(SELECT, type, u##mask)
SELECTS(char, char)
SELECTS(char, uchar)
SELECTS(short, short)
SELECTS(short, ushort)
SELECTS(int, int)
SELECTS(int, uint)
SELECTS(int, float)
SELECTS(long, long)
SELECTS(long, ulong)

#define SHUFFLE2(n) CONST_BUILTIN float16 shuffle2(float##n, float##n, uint16);
SHUFFLE2(2) SHUFFLE2(4) SHUFFLE2(8) SHUFFLE2(16)

#define CONVERT(type, n, to) CONST_BUILTIN to##n convert_##to##n(type##n);
#define CONVERTS(type, to) EACH_WIDTH(CONVERT, type, to)
#define EACH_CONVERSION(to)                                                                                            \
    CONVERTS(char, to) CONVERTS(uchar, to) CONVERTS(short, to) CONVERTS(ushort, to) CONVERTS(int, to)                  \
        CONVERTS(uint, to) CONVERTS(long, to) CONVERTS(ulong, to) CONVERTS(float, to)
EACH_CONVERSION(char)
EACH_CONVERSION(uchar)
EACH_CONVERSION(ushort)
EACH_CONVERSION(int)
EACH_CONVERSION(uint)
EACH_CONVERSION(long)
EACH_CONVERSION(ulong)
EACH_CONVERSION(float)

/* Memory, by the address spaces that the language has. */
#define LOAD(type, n, space) PURE_BUILTIN type##n vload##n(size_t, const space type*);
#define STORE(type, n, space) BUILTIN void vstore##n(type##n, size_t, space type*);
#define LOADS_AND_STORES(space)                                                                                        \
    EACH_TYPE(EACH_VECTOR, LOAD, space) EACH_TYPE(EACH_VECTOR, STORE, space)                                           \
    PURE_BUILTIN float vload_half(size_t, const space half*);                                                          \
    PURE_BUILTIN float16 vload_half16(size_t, const space half*);                                                      \
    BUILTIN void vstore_half_rte(float, size_t, space half*);
#ifdef __opencl_c_generic_address_space
LOADS_AND_STORES()
#endif
#ifdef __opencl_c_named_address_space_builtins
LOADS_AND_STORES(__global)
LOADS_AND_STORES(__private)
#endif

CONST_BUILTIN size_t get_group_id(uint);

#if __OPENCL_C_VERSION__ >= 200
BUILTIN void atomic_work_item_fence(cl_mem_fence_flags, memory_order, memory_scope);
#define ATOMICS(space)                                                                                                 \
    BUILTIN uint atomic_fetch_add_explicit(volatile space atomic_uint*, uint, memory_order, memory_scope);             \
    BUILTIN void atomic_store_explicit(volatile space atomic_uint*, uint, memory_order, memory_scope);
#ifdef __opencl_c_generic_address_space
ATOMICS()
#endif
#if __OPENCL_C_VERSION__ >= 300
ATOMICS(__global)
#endif
#endif
#endif
