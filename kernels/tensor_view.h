/* A tensor as kernels see it: where its first element lies and how far apart its rows are. Read by host (C++) and
 * device (OpenCL C). All in bytes and 64 bits wide, because a cache may exceed 4 GB. */
#pragma once

#ifdef __OPENCL_VERSION__
typedef uchar winnow_u8;
typedef int winnow_i32;
typedef uint winnow_u32;
typedef long winnow_i64;
typedef ulong winnow_u64;
typedef float winnow_f32;
#else
#include <stdint.h>
typedef uint8_t winnow_u8;
typedef int32_t winnow_i32;
typedef uint32_t winnow_u32;
typedef int64_t winnow_i64;
typedef uint64_t winnow_u64;
typedef float winnow_f32;
#endif

/* Element types that are chosen while the kernel runs (q, out, mask, ...); the numbers of WINNOW_TYPE_*. */
#define TYPE_NONE 0
#define TYPE_F32 1
#define TYPE_F16 2
#define TYPE_BF16 3
#define TYPE_I32 4
#define TYPE_I64 5
#define TYPE_BOOL 6

/* Element [a][b][c][d] lies at offset + a*stride[0] + b*stride[1] + c*stride[2] + d*(element size). */
typedef struct tensor_view {
    winnow_u64 offset;
    winnow_i64 stride[3];
} tensor_view;
