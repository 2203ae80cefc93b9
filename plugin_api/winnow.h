/* winnow.h - the core of the interface between a host and a Winnow backend.
 *
 * A host opens a backend's shared object and calls its only exported function, winnow_get_api. That returns a table of
 * functions. One of them, get_table, gives further tables: winnow_cache.h and winnow_opencl.h describe them. Everything
 * here is C99 with fixed-width types. docs/abi.md has the rules that keep it binary compatible.
 *
 * These conventions hold for every function unless its comment says otherwise:
 *   - Results. A function returns a status: WINNOW_OK (0) or one of WINNOW_ERROR_*. A call that fails has written no
 *     output and changed nothing. WINNOW_ERROR_DEVICE is the exception: the driver failed in the middle of the call,
 *     and what the call writes is undefined. After any failure nothing of the call still runs, and the host may free
 *     the memory that it passed. A NULL context, event, cache or description is WINNOW_ERROR_INVALID_ARGUMENT.
 *   - Messages. The text of a failure is the context's message, and goes to its log. Functions without a context write
 *     the text to the caller's buffer `message`, which may be NULL. A call that succeeds leaves both alone. The message
 *     of a refusal names the field or parameter as it is spelt here, or "desc" if the description itself is wrong.
 *   - Structs. Each begins with struct_size, which the host sets to sizeof the struct as it was compiled; it stays as
 *     it is. INVALID_ARGUMENT: a size above 65536, or one below the backend's own that no version has had. In a
 *     struct that a backend reads, a byte beyond the fields that it knows has to be 0, and so has a bit of `flags`
 *     that it does not know; else it returns WINNOW_ERROR_UNSUPPORTED. In a struct that a backend fills in, it sets
 *     the bytes beyond the fields that it knows to 0. A field of 0 means "absent" or "default".
 *   - Threads. Distinct contexts may be used by different threads at once. The host makes sure that no two calls on one
 *     context, or on what was made from it, overlap. Functions without a context may be called by any thread.
 *   - Forks. A child that cannot use what its parent used gets WINNOW_ERROR_UNSUPPORTED from every function that would
 *     need it. There, functions that destroy return WINNOW_OK and release nothing. If the parent had neither made a
 *     context nor asked for devices, the child can use everything.
 *   - A backend never prints, throws, aborts or exits.
 */
#ifndef WINNOW_H
#define WINNOW_H

#include <stddef.h>
#include <stdint.h>

#include "winnow_call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------------------------------------ */

/* Version 0.9 is the first one to be released, and what 1.0 is going to be if its users find no fault with it. From its
 * release on, structs and tables only grow, and a comment shows where each version of them ended. */

#define WINNOW_MAKE_VERSION(major, minor) ((((uint32_t)(major)) << 16) | (uint32_t)(minor))
#define WINNOW_VERSION_MAJOR(version) ((uint32_t)(version) >> 16)
#define WINNOW_VERSION_MINOR(version) ((uint32_t)(version)&0xffffu)
#define WINNOW_API_VERSION WINNOW_MAKE_VERSION(0, 9)

/* ---- Status ------------------------------------------------------------------------------------------- */

#define WINNOW_OK 0
#define WINNOW_ERROR_INVALID_ARGUMENT 1 /* an argument breaks its documented contract */
#define WINNOW_ERROR_UNSUPPORTED 2      /* a valid request that this backend or device cannot carry out */
#define WINNOW_ERROR_UNIMPLEMENTED 3    /* a function or table that this backend does not offer */
#define WINNOW_ERROR_VERSION 4          /* no version in common */
#define WINNOW_ERROR_NOT_FOUND 5        /* no such device, driver or file */
#define WINNOW_ERROR_OUT_OF_MEMORY 6    /* host or device memory is exhausted; the call may be repeated */
#define WINNOW_ERROR_DEVICE 7           /* the driver reported a failure; the message names its function and code */
#define WINNOW_ERROR_INTERNAL 8         /* a defect of the backend */
#define WINNOW_ERROR_IO 9               /* the system failed on a file (full disk, ...), or a callback for bytes did */
#define WINNOW_ERROR_WOULD_WAIT 10      /* a call with a flag against waiting would wait; nothing has changed */

/* Vendors' backends number failures of their own from here on; this project never gives out such a status. */
#define WINNOW_STATUS_VENDOR 0x40000000

/* ---- Element types and storage formats ---------------------------------------------------------------- */

#define WINNOW_TYPE_F32 1
#define WINNOW_TYPE_F16 2
#define WINNOW_TYPE_BF16 3
#define WINNOW_TYPE_I32 4
#define WINNOW_TYPE_I64 5
#define WINNOW_TYPE_BOOL 6 /* one byte, 0 is false, anything else is true */

/* Packed storage formats: of k and v of sdpa, of caches, and of kv_requantize and kv_dequantize. A row (one token of
 * one head) is one run of bytes. docs/formats.md has its layout, and row_bytes gives its size. The number of elements
 * of a row has to be a multiple of the number in brackets, else the call is INVALID_ARGUMENT. So is a type that the
 * backend does not know. Operations on turbo rows of more than 576 elements are UNSUPPORTED; row_bytes answers for any
 * number.
 */
#define WINNOW_TYPE_Q8_0 16 /* ggml's blocks of 32, bit for bit [32] */
#define WINNOW_TYPE_Q5_1 17
#define WINNOW_TYPE_Q5_0 18
#define WINNOW_TYPE_Q4_1 19
#define WINNOW_TYPE_Q4_0 20
#define WINNOW_TYPE_IQ4_NL 21
#define WINNOW_TYPE_AFFINE8_G32 24 /* groups with scale and bias, numbers as mx.quantize has them [the group] */
#define WINNOW_TYPE_AFFINE8_G64 25
#define WINNOW_TYPE_AFFINE8_G128 26
#define WINNOW_TYPE_AFFINE4_G32 27
#define WINNOW_TYPE_AFFINE4_G64 28
#define WINNOW_TYPE_AFFINE4_G128 29
#define WINNOW_TYPE_TURBO4 32 /* rotated Lloyd-Max codes of 4, 3 or 2 bits and one norm [16] */
#define WINNOW_TYPE_TURBO3 33
#define WINNOW_TYPE_TURBO2 34
#define WINNOW_TYPE_TURBO3_5 35 /* the first half of a row's chunks at one bit more */
#define WINNOW_TYPE_TURBO2_5 36
#define WINNOW_TYPE_SPARSE16 40 /* of each block of 32 the 21 largest elements in F16, the others are 0 [32] */
#define WINNOW_TYPE_SPARSE8 41  /* the 22 largest in 8 bits */

/* Vendors' backends number types and formats of their own from here on; this project never gives out such a type. */
#define WINNOW_TYPE_VENDOR 0x80000000u

/* Which factor a turbo format stores for a row x, y = x rotated, c = the codes' centroids (docs/formats.md). Where the
 * format has no norm it is ignored. */
#define WINNOW_NORM_DEFAULT 0    /* WINNOW_NORM_CORRECTED */
#define WINNOW_NORM_PLAIN 1      /* |x| / sqrt(n): the smallest squared error */
#define WINNOW_NORM_CORRECTED 2  /* |x| / |c|: the row keeps its norm */
#define WINNOW_NORM_UNIT_SLOPE 3 /* |x|^2 / (c . y): the inner product with x itself is kept */

/* ---- Devices ------------------------------------------------------------------------------------------ */

#define WINNOW_DEVICE_CPU 1
#define WINNOW_DEVICE_GPU 2
#define WINNOW_DEVICE_ACCELERATOR 3

#define WINNOW_CAPABILITY_UNIFIED_MEMORY 0x1u /* host memory is used where it lies, without a copy */
#define WINNOW_CAPABILITY_SINGLE_LAUNCH 0x2u  /* device-scope atomics: a split softmax combines in one launch */
#define WINNOW_CAPABILITY_SUBGROUPS 0x4u      /* for information: no kernel needs them, nor the two below */
#define WINNOW_CAPABILITY_FP16 0x8u           /* arithmetic in half precision; storage in f16 needs no capability */
#define WINNOW_CAPABILITY_FP64 0x10u

/* What device_info and context_info tell. Strings are zero terminated and cut to fit. */
typedef struct winnow_device_info {
    uint32_t struct_size;
    uint32_t type; /* WINNOW_DEVICE_* */
    char name[128];
    char vendor[128];
    char platform[128];
    char driver_version[128];
    char kernel_shape[32];        /* the family of kernel variants chosen for it: "cpu", "reference", ... */
    uint64_t memory_size;         /* bytes of device memory */
    uint64_t max_allocation_size; /* bytes */
    uint32_t compute_units;
    uint32_t capabilities; /* WINNOW_CAPABILITY_* */
} winnow_device_info;

/* ---- Extension records -------------------------------------------------------------------------------- */

/* Descriptions carry an optional chain of these. A type the backend does not know is skipped, or refused
 * with WINNOW_ERROR_UNSUPPORTED when WINNOW_EXTENSION_REQUIRED is set. A record begins with a winnow_extension, whose
 * struct_size is that of the whole record. No type comes twice in a chain. Vendors number records of their own from
 * WINNOW_EXTENSION_VENDOR on; this project never gives out such a type. */
#define WINNOW_EXTENSION_REQUIRED 0x1u
#define WINNOW_EXTENSION_VENDOR 0x80000000u

typedef struct winnow_extension {
    uint32_t struct_size;
    uint32_t type;
    uint32_t flags;    /* WINNOW_EXTENSION_REQUIRED or 0 */
    uint32_t reserved; /* 0 */
    const struct winnow_extension *next;
} winnow_extension;

/* ---- Callbacks ---------------------------------------------------------------------------------------- */

#define WINNOW_LOG_ERROR 1
#define WINNOW_LOG_WARNING 2
#define WINNOW_LOG_INFO 3
#define WINNOW_LOG_DEBUG 4

/* text is zero terminated, without a newline, and valid during the call only. */
typedef void(WINNOW_CALL *winnow_log_callback)(void *user_data, int32_t level, const char *text);

/* Runs task(task_data, i) once for every i in [0, count), on any threads, and returns when all are done. */
typedef void(WINNOW_CALL *winnow_task)(void *task_data, uint32_t index);
typedef void(WINNOW_CALL *winnow_parallel_for)(void *user_data, uint32_t count, winnow_task task, void *task_data);

/* A kernel that was launched once and is over. */
typedef struct winnow_launch {
    uint32_t struct_size;
    uint32_t reserved;  /* 0 */
    const char *kernel; /* its name, zero terminated and valid during the call only */
    uint64_t begin_ns;  /* when it began to run: nanoseconds of CLOCK_MONOTONIC, as near as the driver's clock tells */
    uint64_t end_ns;    /* when it was over */
    uint64_t bytes;     /* of the rows, scores, slot maps, importance and signatures that it was given to read and to
                         * write. It may pass over what no query sees and what is free; what moves because the device
                         * decides so is not counted, docs/abi.md. 0 where nothing is counted */
} winnow_launch;

typedef void(WINNOW_CALL *winnow_launch_callback)(void *user_data, const winnow_launch *launch);

/* ---- Context ------------------------------------------------------------------------------------------ */

typedef struct winnow_context winnow_context;
typedef struct winnow_buffer winnow_buffer;
typedef struct winnow_event winnow_event;

/* How a context is made. Extension records may bring what the context is to use instead of its own, as winnow_opencl.h
 * has them. */
typedef struct winnow_context_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    /* Which device, in one string (case ignored): "gpu", "cpu", "accelerator", a number as device_info counts, or a
     * part of a name, of the platform's first, then of the device's and the vendor's; "pocl", "rocm", "radeon" and
     * "mesa" stand for the names of their platforms. NULL or "": the environment variable WINNOW_DEVICE, which is about
     * devices of OpenCL alone, else the first GPU, else the first device. */
    const char *device;
    /* Forces kernel variants, for tests and measurements: a list of key=value separated by commas, "help" as
     * the value names the choices in the error. NULL: chosen by capability. docs/variants.md */
    const char *variants;
    winnow_log_callback log; /* may be NULL */
    void *log_user_data;
    int32_t log_level;    /* the most verbose level wanted; 0 is WINNOW_LOG_WARNING */
    uint32_t max_threads; /* for backends that compute on host threads; 0: as many as the device has */
    /* The host's threads, if it wishes them used on devices that compute in the calling thread; may be NULL. */
    winnow_parallel_for parallel_for;
    void *parallel_user_data;
    /* Told of each kernel launch in turn, from within the context's calls: of all that was launched by the time that
     * finish or context_destroy returns; may be NULL. A queue of the host's needs CL_QUEUE_PROFILING_ENABLE then.
     * As many as stats count. */
    winnow_launch_callback launched;
    void *launched_user_data;
} winnow_context_desc;

/* What a context did so far. Counts never decrease. */
typedef struct winnow_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t sdpa_calls;      /* calls of sdpa that returned WINNOW_OK */
    uint64_t kv_append_calls; /* calls of kv_append that returned WINNOW_OK */
    /* batch * tokens of each kv_append, whatever the number of heads, K and V once, skipped ones too */
    uint64_t tokens_appended;
    uint64_t kernel_launches;
    uint64_t programs_built;   /* compiled from source */
    uint64_t programs_loaded;  /* taken from the disk cache */
    uint64_t host_copies;      /* times that host memory was copied to a device that cannot reach it, or back: what a
                                * launch needs may go over in one copy */
    uint64_t rows_requantized; /* batch * kv_num_heads * rows of each kv_requantize, skipped ones too */
} winnow_stats;

/* ---- Buffers ------------------------------------------------------------------------------------------ */

#define WINNOW_BUFFER_ALLOCATE 1      /* memory of the device, zeroed */
#define WINNOW_BUFFER_IMPORT_HOST 2   /* host memory, borrowed until buffer_destroy; zero copy where possible */
#define WINNOW_BUFFER_IMPORT_DEVICE 3 /* memory of the device that an extension record names, as in winnow_opencl.h */

typedef struct winnow_buffer_desc {
    uint32_t struct_size;
    uint32_t kind; /* WINNOW_BUFFER_* */
    const winnow_extension *next;
    uint64_t size;   /* bytes, > 0 */
    void *host_data; /* IMPORT_HOST: first byte of `size` bytes; else NULL */
} winnow_buffer_desc;

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* A view of memory with up to four axes, outermost first: element [a][b][c][d] lies at byte
 * offset + a*stride[0] + b*stride[1] + c*stride[2] + d*stride[3]. Rows are contiguous: stride[3] is the element's size,
 * or 0 in a packed format, which has no single elements. The other strides may be in any order (permuted views). In an
 * input they may be 0 (broadcast views); rows of an output may not overlap each other. The address of the first
 * element and the strides are multiples of the element's size, or of 2 in a packed format.
 * The memory is either a buffer or host memory at `data`; the other one is NULL. Host memory, of inputs too, has to
 * stay until the operation is complete: some devices use it in place. No output overlaps an input or another output,
 * unless a description allows it. A backend refuses an overlap that is certain; views whose ranges cross without a
 * common byte are taken. */
typedef struct winnow_tensor {
    uint32_t struct_size;
    uint32_t type; /* WINNOW_TYPE_* */
    winnow_buffer *buffer;
    void *data;
    uint64_t offset;   /* bytes from the buffer's beginning, or from data */
    int64_t shape[4];  /* elements, each >= 1 */
    int64_t stride[4]; /* bytes, each >= 0 */
} winnow_tensor;

/* ---- Scaled dot product attention --------------------------------------------------------------------- */

/* Which stage of the logits scores_out receives. A later stage contains the earlier ones. */
#define WINNOW_SCORES_NONE 0
#define WINNOW_SCORES_RAW 1        /* scale * (q . k), of masked keys and free slots too */
#define WINNOW_SCORES_SOFTCAPPED 2 /* after softcap, masked keys too */
#define WINNOW_SCORES_BIASED 3     /* after mask, ALiBi, causality and window; what no query sees is -INFINITY */
#define WINNOW_SCORES_PROBS 4      /* after the softmax, head sink in the denominator */

/* Attention of one layer. With b a batch entry, h a query head, i a query token, j a key token, g = h / (q_num_heads /
 * kv_num_heads), and p = q_offset + i the query's position, or q_offsets[b] + i (key j has position j):
 *
 *   s[j] = scale * dot(q[b,h,i,:], k[b',g,j,:])
 *   s[j] = softcap * tanh(s[j] / softcap)                       if softcap != 0
 *   s[j] = s[j] + slope[h] * mask[b,h,i,j] + alibi[h] * (j - p)    slope is 1 without mask_slopes
 *   s[j] = -inf      where a boolean mask is false, j > p under is_causal, j <= p - window_left (window_left != 0),
 *                    j > p + window_right (window_right != 0), or j >= kv_lengths[b]
 *   out[b,h,i,:] = sum_j exp(s[j] - m) * v[b',g,j,:] / (sum_j exp(s[j] - m) + exp(head_sink[h] - m))
 *
 * where b' = b / (batch of q / batch of k): the batch of q is a multiple of k's and v's.
 *
 * A row in which every key is masked gives zeros, also with a head sink, and also where head_sink is NaN. NaN in q, k,
 * v, mask or head_sink comes out as NaN in the rows that see it. A key is hidden where attn_mask has -inf, whatever its
 * slope: it is not seen, whatever it holds, and scores_out has -inf for it in WINNOW_SCORES_BIASED. Sizes that a device
 * cannot serve (heads of more than 576 elements, for example) are UNSUPPORTED. */
typedef struct winnow_sdpa_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *q;   /* [batch, q_num_heads, q_len, head_size] F32, F16 or BF16 */
    const winnow_tensor *k;   /* [kv_batch, kv_num_heads, kv_len, head_size] any storage format */
    const winnow_tensor *v;   /* [kv_batch, kv_num_heads, kv_len, v_head_size] any storage format */
    const winnow_tensor *out; /* [batch, q_num_heads, q_len, v_head_size] F32, F16 or BF16; overlaps no input */
    /* Additive F32 or F16, BOOL (true: attend), or NULL. [mb, mh, mq, mk]: mq is 1 or at least q_len, and mk is 1 or at
     * least kv_len; what is beyond is ignored. mh divides q_num_heads and mb divides batch (index modulo). */
    const winnow_tensor *attn_mask;
    const winnow_tensor *mask_slopes;  /* [1, 1, 1, q_num_heads] F32: factor per head on an additive mask, or NULL */
    const winnow_tensor *alibi_slopes; /* [1, 1, 1, q_num_heads] F32: adds slope * (j - p), or NULL */
    const winnow_tensor *head_sink;    /* [1, 1, 1, q_num_heads] F32: a logit in the softmax without a value, or NULL */
    const winnow_tensor *scores_out;   /* [batch, q_num_heads, q_len, kv_len] F32, or NULL with WINNOW_SCORES_NONE */
    /* [batch, q_num_heads, q_len, 2] F32 or NULL: the row's maximum m and its sum of exp(s - m), head_sink counted in
     * both, so that PROBS = exp(BIASED - m) / sum. A fully masked row has (-INFINITY, 0). */
    const winnow_tensor *row_stats;
    float scale;          /* multiplies q.k; finite; 0 means 1/sqrt(head_size) */
    float softcap;        /* finite, at least 0; 0: none */
    uint32_t scores_mode; /* WINNOW_SCORES_* */
    uint32_t is_causal;   /* 0 or 1; never inferred from shapes */
    int64_t q_offset;     /* position of the first query token: kv_len - q_len in decoding; within 2^48 of 0 */
    int64_t window_left;  /* number of keys visible up to and including position p; 0: no limit */
    int64_t window_right; /* number of keys visible after position p; 0: no limit (use is_causal for none) */
    /* Sparse V: a value whose probability in a row is below the threshold need not be read for that row; one at or
     * above it always is. So out is off by at most threshold * (sum of |v| passed over). 0: every value is read.
     * scores_out and row_stats do not change. */
    float v_threshold; /* 0 <= v_threshold < 1 */
    uint32_t reserved; /* 0 */
    /* [batch, q_num_heads, q_len, 1] I32 or NULL: how many visible values the row passed over; 0 without threshold. */
    const winnow_tensor *v_rows_skipped;
    /* [kv_batch, kv_num_heads, 1, kv_len] I32 or NULL; kv_batch and kv_num_heads may be 1 for all. Key j of a head then
     * has the position slot_positions[j] in the place of j: in causality, window, ALiBi, and as the column of the mask,
     * which may have any number of them and hides what it has none for (a single one is for all). A negative one:
     * nothing is stored there, and nothing is seen. Positions are below 2^30. scores_out keeps j. */
    const winnow_tensor *slot_positions;
    /* [1, 1, 1, batch] I32 or I64, or NULL: kv_len for all. How many keys (or slots) each batch entry has, clamped to
     * 0 .. kv_len. Later rows are unseen and may hold anything; scores_out has -INFINITY there in each mode, but 0 in
     * WINNOW_SCORES_PROBS. An earlier operation may write these numbers: the device reads them when this one runs. */
    const winnow_tensor *kv_lengths;
    /* The same for the position of each entry's first query, clamped to within 2^48 of 0; q_offset has to be 0 then. */
    const winnow_tensor *q_offsets;
} winnow_sdpa_desc;

/* ---- Appending keys and values ------------------------------------------------------------------------ */

/* Stores dense rows into a cache, converting to the cache's format on the way; K and V in one launch.
 * For every b, h, t: cache[b, h, row_indices[b % ib, h % ih, t], :] = src[b, h, t, :].
 * A row whose index is outside [0, slots) is skipped, so -1 serves as padding. If an index occurs twice, which of
 * its rows remains, and of which parts, is not defined. One of the pairs (k_src, k_cache) and (v_src, v_cache) may be
 * absent. */
typedef struct winnow_kv_append_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *k_src;         /* [batch, kv_num_heads, tokens, head_size] F32, F16 or BF16 */
    const winnow_tensor *v_src;         /* [batch, kv_num_heads, tokens, v_head_size] F32, F16 or BF16 */
    const winnow_tensor *k_cache;       /* [batch, kv_num_heads, k slots, head_size] any storage format */
    const winnow_tensor *v_cache;       /* [batch, kv_num_heads, v slots, v_head_size] any storage format */
    const winnow_tensor *k_row_indices; /* [ib, ih, 1, tokens] I32 or I64; ib divides batch, ih divides kv_num_heads */
    const winnow_tensor *v_row_indices; /* the same for V; NULL: K's */
    uint32_t k_norm;                    /* WINNOW_NORM_*, for turbo caches */
    uint32_t v_norm;                    /* the same for V */
} winnow_kv_append_desc;

/* ---- Rows from format to format ----------------------------------------------------------------------- */

/* Rewrites rows in another format: dst[b, h, r, :] = src[b, h, r, :] for every r of row_indices, rounding once from the
 * values that src stands for. In place: dst may lie on src's memory if row for row it begins where src's row begins
 * and is not longer (the same first byte and strides), and src's rows do not overlap; it overlaps src in no other way.
 * An index outside [0, slots) is skipped; none may occur twice. */
typedef struct winnow_kv_requantize_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *src;         /* [batch, kv_num_heads, slots, head_size] any storage format */
    const winnow_tensor *dst;         /* the same shape, any storage format */
    const winnow_tensor *row_indices; /* [ib, ih, 1, rows] I32 or I64 as in kv_append; NULL: every row */
    uint32_t norm;                    /* WINNOW_NORM_*, for a turbo dst */
    uint32_t reserved;                /* 0 */
} winnow_kv_requantize_desc;

/* Gives dense rows back: dst[b, h, i, :] = src[b, h, row_indices[b % ib, h % ih, i], :]. A row whose index is outside
 * [0, slots) becomes zeros. */
typedef struct winnow_kv_dequantize_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *src;         /* [batch, kv_num_heads, slots, head_size] any storage format */
    const winnow_tensor *dst;         /* [batch, kv_num_heads, rows, head_size] F32, F16 or BF16; overlaps no input */
    const winnow_tensor *row_indices; /* [ib, ih, 1, rows] I32 or I64; NULL: every row, rows = slots */
} winnow_kv_dequantize_desc;

/* The rotation of the turbo formats on its own: dst row = R (src row), or R^-1 where inverse is 1. R is orthogonal:
 * signs, then a Walsh-Hadamard transform of blocks, then a reflection across the blocks (docs/formats.md). */
typedef struct winnow_hadamard_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *src; /* [a, b, c, n] F32, F16 or BF16, n a multiple of 16 up to 576 */
    const winnow_tensor *dst; /* the same shape F32, F16 or BF16; src itself (same memory and strides) or apart */
    uint32_t inverse;         /* 0 or 1 */
    uint32_t reserved;        /* 0 */
} winnow_hadamard_desc;

/* ---- The table ---------------------------------------------------------------------------------------- */

/* The operations, by the number that `supports` takes. */
#define WINNOW_OPERATION_SDPA 1
#define WINNOW_OPERATION_KV_APPEND 2
#define WINNOW_OPERATION_KV_REQUANTIZE 3
#define WINNOW_OPERATION_KV_DEQUANTIZE 4
#define WINNOW_OPERATION_HADAMARD 5

/* No slot is NULL; what a backend does not offer returns WINNOW_ERROR_UNIMPLEMENTED. Later versions append. */
typedef struct winnow_api {
    uint32_t struct_size;
    uint32_t version;            /* the negotiated version */
    const char *backend_name;    /* "opencl", "reference", ... */
    const char *backend_version; /* the release, for people */

    /* The name of a status as it is spelt here ("WINNOW_ERROR_IO"), a static string; never NULL. */
    const char *(WINNOW_CALL *status_name)(int32_t status);

    /* A further table of the backend's, by its name and version, as winnow_cache.h and winnow_opencl.h have them:
     * *table points to a struct that begins with struct_size and version, valid as long as this one. UNIMPLEMENTED
     * where the backend has no table of this name, VERSION where it has it in other versions alone, which the message
     * names. message may be NULL. */
    int32_t(WINNOW_CALL *get_table)(const char *name, uint32_t version, const void **table, char *message,
                                    size_t message_size);

    /* Devices, in the order in which a number in winnow_context_desc.device counts them. No driver at all is
     * count 0 and WINNOW_OK. message may be NULL. */
    int32_t(WINNOW_CALL *device_count)(uint32_t *count, char *message, size_t message_size);
    int32_t(WINNOW_CALL *device_info)(uint32_t index, winnow_device_info *info, char *message, size_t message_size);

    /* *context is the caller's and has to be destroyed, after everything that was made from it (buffers, events and
     * caches that remain become invalid). Destroying waits for running work, and destroys also where that fails: the
     * status then says so, and the last line of the log why. Destroying NULL is WINNOW_OK, here and below. */
    int32_t(WINNOW_CALL *context_create)(const winnow_context_desc *desc, winnow_context **context, char *message,
                                         size_t message_size);
    int32_t(WINNOW_CALL *context_destroy)(winnow_context *context);
    /* The text of the context's last failure, "" if none, never NULL. A call that succeeds leaves it alone: it is valid
     * until the next call on the context, or on what was made from it, that fails. */
    const char *(WINNOW_CALL *context_message)(winnow_context *context);
    int32_t(WINNOW_CALL *context_info)(winnow_context *context, winnow_device_info *info);
    int32_t(WINNOW_CALL *context_stats)(winnow_context *context, winnow_stats *stats);

    /* Buffers. destroy waits until no running work uses the buffer; where that fails, the buffer stays, to be destroyed
     * again or by context_destroy. read and write wait for all work enqueued
     * before and return when the bytes are there; (offset, size) has to lie inside the buffer. For imported host
     * memory that the device cannot reach, buffer_write after a change by the host and buffer_read before a look,
     * with data = the imported address itself, bring both sides together; elsewhere they cost nothing. */
    int32_t(WINNOW_CALL *buffer_create)(winnow_context *context, const winnow_buffer_desc *desc,
                                        winnow_buffer **buffer);
    int32_t(WINNOW_CALL *buffer_destroy)(winnow_buffer *buffer);
    int32_t(WINNOW_CALL *buffer_write)(winnow_buffer *buffer, uint64_t offset, const void *data, uint64_t size);
    int32_t(WINNOW_CALL *buffer_read)(winnow_buffer *buffer, uint64_t offset, void *data, uint64_t size);

    /* Tells whether an operation (WINNOW_OPERATION_*) would carry out this description, which is the struct that the
     * operation takes. WINNOW_OK: answer has the name of the kernel variant that would run, zero terminated and cut to
     * fit. Else it returns the operation's status, the context's message is the reason, which is not logged, and
     * answer stays as it is. A tensor may be without memory here (neither buffer nor data); nothing about its memory
     * is then checked. The memory that tensors have is checked as the call does: its place, alignment and overlaps. If
     * all tensors have memory, the answer is the call's, but for what only a driver can tell (memory is exhausted, a
     * kernel does not build). answer may be NULL. */
    int32_t(WINNOW_CALL *supports)(winnow_context *context, uint32_t operation, const void *desc, char *answer,
                                   size_t answer_size);

    /* Operations. They are enqueued in order, on the context's queue: a later one sees what an earlier one wrote.
     * Results are there after finish, after event_wait, or after a blocking buffer_read. Host memory that the device
     * cannot reach is copied: inputs within the call, outputs with that wait, and until then the host leaves the
     * outputs' rows alone, also those of which an operation writes a part. event may be NULL. If it is
     * given, *event is the caller's to destroy, and a call with such memory waits until the operation is complete. The
     * descriptions are not needed after the call. */
    int32_t(WINNOW_CALL *sdpa)(winnow_context *context, const winnow_sdpa_desc *desc, winnow_event **event);
    int32_t(WINNOW_CALL *kv_append)(winnow_context *context, const winnow_kv_append_desc *desc, winnow_event **event);
    int32_t(WINNOW_CALL *kv_requantize)(winnow_context *context, const winnow_kv_requantize_desc *desc,
                                        winnow_event **event);
    int32_t(WINNOW_CALL *kv_dequantize)(winnow_context *context, const winnow_kv_dequantize_desc *desc,
                                        winnow_event **event);
    int32_t(WINNOW_CALL *hadamard)(winnow_context *context, const winnow_hadamard_desc *desc, winnow_event **event);

    /* Synchronisation. flush hands what was enqueued to the device; finish waits until it is complete. event_wait
     * returns WINNOW_ERROR_DEVICE where the operation itself failed, now and at each later call. After any other
     * failure of a wait what was waited for may still be running: the wait can be repeated, and the one that passes
     * brings all results. */
    int32_t(WINNOW_CALL *flush)(winnow_context *context);
    int32_t(WINNOW_CALL *finish)(winnow_context *context);
    int32_t(WINNOW_CALL *event_wait)(winnow_event *event);
    int32_t(WINNOW_CALL *event_destroy)(winnow_event *event);
    /* Bytes of a row of `elements` elements in a type. message may be NULL. */
    int32_t(WINNOW_CALL *row_bytes)(uint32_t type, int64_t elements, uint64_t *bytes, char *message,
                                    size_t message_size);
} winnow_api;

/* ---- The entry point ---------------------------------------------------------------------------------- */

/* What the host can speak. Versions are inclusive, and neither may be 0. */
typedef struct winnow_host_info {
    uint32_t struct_size;
    uint32_t min_version;
    uint32_t max_version;
    uint32_t flags;        /* 0 */
    const char *host_name; /* for logs, or NULL */
} winnow_host_info;

/* Negotiates: *api receives a table of the highest version both sides know, valid until the object is unloaded.
 * Otherwise WINNOW_ERROR_VERSION, and the message names both ranges. message may be NULL. The only symbol a backend
 * exports. */
typedef int32_t(WINNOW_CALL *winnow_get_api_fn)(const winnow_host_info *host, const winnow_api **api, char *message,
                                                size_t message_size);
WINNOW_EXPORT int32_t WINNOW_CALL winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message,
                                                 size_t message_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WINNOW_H */
