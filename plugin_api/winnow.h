/* winnow.h - the one header between a host and a Winnow backend.
 *
 * A host opens a backend's shared object, calls its only exported function, winnow_get_api, and from then on
 * talks through the table of functions that comes back. Everything here is C99 with fixed-width types; the
 * rules that keep it binary compatible are in docs/abi.md.
 *
 * Conventions, true of every function unless it says otherwise:
 *   - It returns a status, WINNOW_OK (0) or one of WINNOW_ERROR_*. When it fails, no output was written and nothing has
 *     changed, but for WINNOW_ERROR_DEVICE: the driver failed in the middle, and what the call writes is undefined.
 *     In any case nothing of it runs any more: the memory that it was given may go.
 *   - Every struct begins with struct_size: set it to sizeof the struct as you compiled it. A size below the
 *     backend's that is no version's is refused. A zero in any other field means "absent" or "default".
 *   - Distinct contexts may be used from different threads at once; one context, and all that was made from
 *     it, is the host's to serialise.
 *   - A process may fork. Where the child cannot use what its parent used, every function that would need it returns
 *     WINNOW_ERROR_UNSUPPORTED there, and those that destroy return WINNOW_OK and release nothing. A child whose
 *     parent had made no context and asked for no devices makes its own.
 *   - A backend never prints, throws, aborts or exits. Text goes to the caller's buffer, to the context's
 *     message or to the log callback.
 */
#ifndef WINNOW_H
#define WINNOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ------------------------------------------------------------------------------------------ */

/* Version 0.4 is the first that is going to be released. Until then it is open: fields and slots may still move. From
 * its release on, structs and the table only grow, and a comment shows where each version of them ended. */

#define WINNOW_MAKE_VERSION(major, minor) ((((uint32_t)(major)) << 16) | (uint32_t)(minor))
#define WINNOW_VERSION_MAJOR(version) ((uint32_t)(version) >> 16)
#define WINNOW_VERSION_MINOR(version) ((uint32_t)(version)&0xffffu)
#define WINNOW_API_VERSION WINNOW_MAKE_VERSION(0, 4)

/* ---- Status ------------------------------------------------------------------------------------------- */

#define WINNOW_OK 0
#define WINNOW_ERROR_INVALID_ARGUMENT 1 /* an argument breaks its documented contract */
#define WINNOW_ERROR_UNSUPPORTED 2      /* a valid request that this backend or device cannot carry out */
#define WINNOW_ERROR_UNIMPLEMENTED 3    /* a slot of the table that this backend does not offer */
#define WINNOW_ERROR_VERSION 4          /* no version in common */
#define WINNOW_ERROR_NOT_FOUND 5        /* no such device, driver or file */
#define WINNOW_ERROR_OUT_OF_MEMORY 6    /* host or device memory is exhausted; the call may be repeated */
#define WINNOW_ERROR_DEVICE 7           /* the driver reported a failure; the message names its function and code */
#define WINNOW_ERROR_INTERNAL 8         /* a defect of the backend */
#define WINNOW_ERROR_IO 9               /* the system failed on a file: full disk, no permission, ... */

/* ---- Element types and storage formats ---------------------------------------------------------------- */

#define WINNOW_TYPE_F32 1
#define WINNOW_TYPE_F16 2
#define WINNOW_TYPE_BF16 3
#define WINNOW_TYPE_I32 4
#define WINNOW_TYPE_I64 5
#define WINNOW_TYPE_BOOL 6 /* one byte, 0 is false, anything else is true */

/* Packed storage formats: of k and v of sdpa, of caches, and of kv_requantize and kv_dequantize. A
 * row (one token of one head) is one run of bytes whose layout is in docs/formats.md; row_bytes gives its size. The
 * number of elements has to be a multiple of the one in brackets. */
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
#define WINNOW_TYPE_TURBO4 32 /* rotated Lloyd-Max codes of 4, 3 or 2 bits and one norm [16], up to 576 elements */
#define WINNOW_TYPE_TURBO3 33
#define WINNOW_TYPE_TURBO2 34
#define WINNOW_TYPE_TURBO3_5 35 /* the first half of a row's chunks at one bit more */
#define WINNOW_TYPE_TURBO2_5 36
#define WINNOW_TYPE_SPARSE16 40 /* of each block of 32 the 21 largest elements in F16, the others are 0 [32] */
#define WINNOW_TYPE_SPARSE8 41  /* the 22 largest in 8 bits */

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
 * with WINNOW_ERROR_UNSUPPORTED when WINNOW_EXTENSION_REQUIRED is set. No version so far defines a type. */
#define WINNOW_EXTENSION_REQUIRED 0x1u

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
typedef void (*winnow_log_callback)(void *user_data, int32_t level, const char *text);

/* Runs task(task_data, i) once for every i in [0, count), on any threads, and returns when all are done. */
typedef void (*winnow_task)(void *task_data, uint32_t index);
typedef void (*winnow_parallel_for)(void *user_data, uint32_t count, winnow_task task, void *task_data);

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

typedef void (*winnow_launch_callback)(void *user_data, const winnow_launch *launch);

/* ---- Context ------------------------------------------------------------------------------------------ */

typedef struct winnow_context winnow_context;
typedef struct winnow_buffer winnow_buffer;
typedef struct winnow_event winnow_event;
typedef struct winnow_cache winnow_cache;

/* How a context is made: on a device the backend chooses, or on the host's own OpenCL objects. */
typedef struct winnow_context_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    /* Which device, in one string (case ignored): "gpu", "cpu", "accelerator", a number as device_info counts, or a
     * part of a name, of the platform's first, then of the device's and the vendor's; "pocl", "rocm", "radeon" and
     * "mesa" stand for the names of their platforms. NULL or "": the environment variable WINNOW_DEVICE, which is about
     * devices of OpenCL alone, else the first GPU, else the first device. */
    const char *device;
    /* The host's own OpenCL objects (cl_context, cl_device_id, cl_command_queue): all three or none; `device`
     * must then be NULL. They are retained until context_destroy. The queue must be in order. */
    void *cl_context;
    void *cl_device_id;
    void *cl_command_queue;
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
    uint64_t rows_appended;   /* token rows handed to kv_append, K and V counted once, skipped ones included */
    uint64_t kernel_launches;
    uint64_t programs_built;   /* compiled from source */
    uint64_t programs_loaded;  /* taken from the disk cache */
    uint64_t host_copies;      /* times that host memory was copied to a device that cannot reach it, or back: what a
                                * launch needs may go over in one copy */
    uint64_t rows_requantized; /* rows handed to kv_requantize */
} winnow_stats;

/* ---- Buffers ------------------------------------------------------------------------------------------ */

#define WINNOW_BUFFER_ALLOCATE 1      /* memory of the device, zeroed */
#define WINNOW_BUFFER_IMPORT_HOST 2   /* host memory, borrowed until buffer_destroy; zero copy where possible */
#define WINNOW_BUFFER_IMPORT_CL_MEM 3 /* a cl_mem of the context's cl_context, retained until buffer_destroy */

typedef struct winnow_buffer_desc {
    uint32_t struct_size;
    uint32_t kind; /* WINNOW_BUFFER_* */
    const winnow_extension *next;
    uint64_t size;   /* bytes, > 0 */
    void *host_data; /* IMPORT_HOST: first byte */
    void *cl_mem;    /* IMPORT_CL_MEM */
    uint64_t offset; /* IMPORT_CL_MEM: byte of the cl_mem at which this buffer begins */
} winnow_buffer_desc;

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* A view of memory with up to four axes, outermost first: element [a][b][c][d] lies at byte
 * offset + a*stride[0] + b*stride[1] + c*stride[2] + d*stride[3]. Strides may be in any order (permuted views) and
 * 0 (broadcast views of inputs). stride[3] must be the element's size (rows are contiguous); in a packed format
 * there are no single elements, stride[3] must be 0, and the other strides are multiples of 2.
 * The memory is a buffer, or (buffer NULL) host memory at `data`; host memory has to stay until the operation
 * is complete, and is borrowed no longer. */
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
#define WINNOW_SCORES_RAW 1        /* scale * (q . k), masked keys too */
#define WINNOW_SCORES_SOFTCAPPED 2 /* after softcap, masked keys too */
#define WINNOW_SCORES_BIASED 3     /* after mask, ALiBi, causality and window; what no query sees is -INFINITY */
#define WINNOW_SCORES_PROBS 4      /* after the softmax, head sink in the denominator */

/* Attention of one layer. With b a batch entry, h a query head, i a query token, j a key token, g = h / (q_num_heads /
 * kv_num_heads), and p = q_offset + i the query's position (key j has position j):
 *
 *   s[j] = scale * dot(q[b,h,i,:], k[b',g,j,:])
 *   s[j] = softcap * tanh(s[j] / softcap)                       if softcap != 0
 *   s[j] = s[j] + slope[h] * mask[b,h,i,j] + alibi[h] * (j - p)    slope is 1 without mask_slopes
 *   s[j] = -inf      where a boolean mask is false, j > p under is_causal, j <= p - window_left (window_left != 0),
 *                    or j > p + window_right (window_right != 0)
 *   out[b,h,i,:] = sum_j exp(s[j] - m) * v[b',g,j,:] / (sum_j exp(s[j] - m) + exp(head_sink[h] - m))
 *
 * A row in which every key is masked gives zeros (with a head sink too, NaN among them). NaN in q, k, v, mask or a head
 * sink comes out as NaN in the rows that see it; a key that a mask of -inf hides is not seen, whatever it holds, and
 * scores_out has -inf for it in WINNOW_SCORES_BIASED. b' = b / (batch of q / batch of k): the batch of q is a multiple
 * of k's and v's.
 */
typedef struct winnow_sdpa_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    const winnow_tensor *q;   /* [batch, q_num_heads, q_len, head_size] F32, F16 or BF16 */
    const winnow_tensor *k;   /* [kv_batch, kv_num_heads, kv_len, head_size] any storage format */
    const winnow_tensor *v;   /* [kv_batch, kv_num_heads, kv_len, v_head_size] any storage format */
    const winnow_tensor *out; /* [batch, q_num_heads, q_len, v_head_size] F32, F16 or BF16; overlaps no input */
    /* Additive F32 or F16, or BOOL (true: attend). [mb, mh, mq, mk] with mk = kv_len or 1 and mq = q_len or 1; mh
     * divides q_num_heads and mb divides batch (index modulo). mk, mq may be larger than needed: the rest is ignored.
     * NULL: none. */
    const winnow_tensor *attn_mask;
    const winnow_tensor *mask_slopes;  /* [1, 1, 1, q_num_heads] F32: factor per head on an additive mask, or NULL */
    const winnow_tensor *alibi_slopes; /* [1, 1, 1, q_num_heads] F32: adds slope * (j - p), or NULL */
    const winnow_tensor
        *head_sink; /* [1, 1, 1, q_num_heads] F32: a logit that joins the softmax without a value, or NULL */
    const winnow_tensor *scores_out; /* [batch, q_num_heads, q_len, kv_len] F32, or NULL with WINNOW_SCORES_NONE */
    /* [batch, q_num_heads, q_len, 2] F32 or NULL: the row's maximum m and its sum of exp(s - m), head_sink counted in
     * both, so that PROBS = exp(BIASED - m) / sum. A fully masked row has (-INFINITY, 0). */
    const winnow_tensor *row_stats;
    float scale;          /* multiplies q.k; 0 means 1/sqrt(head_size) */
    float softcap;        /* 0: none */
    uint32_t scores_mode; /* WINNOW_SCORES_* */
    uint32_t is_causal;   /* 0 or 1; never inferred from shapes */
    int64_t q_offset;     /* position of the first query token; may be negative; within 2^48 of 0 */
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
} winnow_sdpa_desc;

/* ---- Appending keys and values ------------------------------------------------------------------------ */

/* Stores dense rows into a cache, converting to the cache's format on the way; K and V in one launch.
 * For every b, h, t: cache[b, h, row_indices[b % ib, h % ih, t], :] = src[b, h, t, :].
 * A row whose index is outside [0, slots) is skipped, so -1 serves as padding. If an index occurs twice, which of
 * its rows remains, and of which parts, is not defined. Either of the pairs (k_src, k_cache) and (v_src, v_cache) may
 * be absent. A cache overlaps no other tensor of the description. */
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

/* ---- The cache ---------------------------------------------------------------------------------------- */

/* A cache holds the keys and values of all layers for some sequences, packed, and stays inside a budget: for each layer
 * and each KV head by itself it evicts the tokens that the attention scores say are not needed. Tokens of a sequence
 * are counted from 0 in the order in which they are appended; that number is a token's position, whatever has been
 * evicted before it. Sequences are numbers in [0, max_sequences) and share nothing. Memory is taken when a sequence
 * first needs it. Everything is deterministic: the same calls give the same survivors. */
typedef struct winnow_cache_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    /* Policy, budget and formats in one string, docs/policies.md: "h2o:budget=1/4,k=turbo4,v=turbo3". NULL or "": the
     * default, "winnow". */
    const char *config;
    int64_t layers;
    int64_t q_num_heads; /* a multiple of kv_num_heads */
    int64_t kv_num_heads;
    int64_t head_size;
    int64_t v_head_size; /* 0: head_size */
    /* Tokens: no sequence grows longer; shares in config are of it, and no budget is more. In cell mode it is only what
     * shares are of and what bounds budgets: cells are used again, and tokens come and go in them without end. */
    int64_t context;
    int64_t max_sequences; /* 0: 1 */
    /* For policies that divide the budget by a profile: 3 numbers a layer (entropy, concentration, variance), or NULL.
     * Not needed after the call. */
    const double *profile;
    /* The most cells of a host that names its own (cell mode): tokens are then told apart by cells, not by position,
     * and each attention brings a mask by cells. 0: no cells. */
    int64_t cells;
    /* For policies that rank by predictions of networks: WINNOW_NETWORK_NUMBERS for each KV head of each layer, one
     * after another, or NULL. Of each hidden unit 4 numbers, finite and at most 2^20 in size: what it takes of the
     * logarithm of the importance, within 2^-24 to 2^24, and of that of the queries that saw the token, its bias, and
     * what the prediction takes of it; it is 0 where it would be negative. Not needed after the call. */
    const double *network;
    uint64_t network_count; /* numbers in network */
    /* For signatures of codes: the model's codebooks, a record for each layer as `winnow calibrate` writes them
     * (docs/recall.md), or NULL; trained on contexts of at least `context` tokens. Not needed after the call. */
    const void *codebooks;
    uint64_t codebooks_size; /* bytes */
} winnow_cache_desc;

#define WINNOW_NETWORK_NUMBERS 32 /* 8 hidden units */

/* Appending to one layer of one sequence, attending, or both in this order of the tokens.
 *
 * Only k and v: the tokens are appended. Only q and out: the last tokens that were appended attend, as many as q has.
 * All four: every token attends once it is appended, in chunks of at most 32, so that a long prompt never needs more
 * memory than the budget; a token of the prompt sees those before it that are not yet evicted.
 * A query token sees what is stored of the tokens up to itself; softcap, ALiBi, window, head sink and scale as in
 * winnow_sdpa_desc. When the call fails, the sequence is as it was before, but for WINNOW_ERROR_DEVICE: it may then be
 * incomplete, and should be removed. A call waits for what was enqueued before where its layer has less memory than it
 * needs (cache_reserve takes it beforehand) and at the first token of a layer under recall or `learned`. With recall a
 * call with more than 8 tokens waits, too, as does one whose cells lie in a buffer, with recall=FOLDER every call does,
 * and for reads of the file; where the disk is full, or a read or write fails, it returns WINNOW_ERROR_IO: the sequence
 * is as it was before, and out and scores_out may have been written in part. */
typedef struct winnow_cache_step_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    int64_t layer;
    int64_t sequence;
    const winnow_tensor *k;            /* [1, kv_num_heads, tokens, head_size] F32, F16 or BF16 */
    const winnow_tensor *v;            /* [1, kv_num_heads, tokens, v_head_size] F32, F16 or BF16 */
    const winnow_tensor *q;            /* [1, q_num_heads, tokens, head_size] F32, F16 or BF16 */
    const winnow_tensor *out;          /* [1, q_num_heads, tokens, v_head_size] F32, F16 or BF16; overlaps no input */
    const winnow_tensor *alibi_slopes; /* [1, 1, 1, q_num_heads] F32, or NULL */
    const winnow_tensor *head_sink;    /* [1, 1, 1, q_num_heads] F32, or NULL */
    /* [1, q_num_heads, tokens, columns] F32 or NULL: the logits after ALiBi and window (WINNOW_SCORES_BIASED) in the
     * column of the token's position (or cell); -INFINITY where it is not stored or not seen. Columns: at least as many
     * as the position that the next token has after the step, which truncate and shift move (or the cells). */
    const winnow_tensor *scores_out;
    float scale;         /* multiplies q.k; 0 means 1/sqrt(head_size) */
    float softcap;       /* 0: none */
    int64_t window_left; /* tokens visible up to and including the query's own; 0: no limit */
    /* How many of the last tokens may be taken back (drafts of speculative decoding): their queries leave nothing in
     * the importance of others, so that truncate leaves no trace of them. */
    int64_t draft_tokens;
    /* Cell mode. cells: [1, 1, 1, tokens] I32 or I64, the cell of each token that is appended, none twice; a token that
     * had the cell before is gone. attn_mask: as in winnow_sdpa_desc, its columns are cells. It may have any number of
     * them and hides the cells that it has none for (a single one is for all). It alone says what a query sees, so that
     * alibi_slopes and window_left are absent. Both NULL without cells. */
    const winnow_tensor *cells;
    const winnow_tensor *attn_mask;
    const winnow_tensor *mask_slopes; /* [1, 1, 1, q_num_heads] F32, or NULL */
} winnow_cache_step_desc;

/* Keys and values of a layer by token: what cache_read and cache_export_rows give, cache_write takes, cache_restore and
 * cache_import_rows append. */
typedef struct winnow_cache_rows_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    int64_t layer;
    int64_t sequence;
    const winnow_tensor *tokens; /* [1, 1, 1, count] I32 or I64: positions (or cells), none twice */
    const winnow_tensor *k;      /* [1, kv_num_heads, count, head_size] F32, F16 or BF16, or NULL */
    const winnow_tensor *v;      /* [1, kv_num_heads, count, v_head_size] F32, F16 or BF16, or NULL */
    /* cache_export_rows and cache_import_rows: 1 where a host stores values as a part of the keys, k's elements from
     * v_first on; v is NULL then. Else both 0. */
    uint32_t has_v_in_k;
    uint32_t v_first;
} winnow_cache_rows_desc;

/* What a cache holds. Bytes count the memory in use, whole chunks of it. */
typedef struct winnow_cache_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t bytes;         /* all of the following */
    uint64_t k_bytes;       /* packed keys with their scales and norms */
    uint64_t v_bytes;       /* packed values likewise */
    uint64_t dense_k_bytes; /* keys of sinks and residual window */
    uint64_t dense_v_bytes; /* values of sinks and residual window */
    uint64_t slot_map_bytes;
    uint64_t importance_bytes;
    uint64_t state_bytes;     /* means, sums and counts of the heads */
    uint64_t scratch_bytes;   /* what the steps of all layers share, as scores of a chunk; not in bytes */
    uint64_t peak_bytes;      /* the most that bytes and scratch_bytes were together since create or reset */
    uint64_t original_bytes;  /* the same tokens, all that were appended and not removed, in F16 */
    uint64_t budget_bytes;    /* what bytes may become for each sequence; more where tokens of a whole context were
                               * shifted down to the positions of removed ones, unless the budget is in bytes */
    uint64_t tokens;          /* of the longest layer, all sequences together */
    uint64_t resident_slots;  /* over layers and KV heads */
    uint64_t evictions;       /* tokens evicted by eviction passes, over layers and KV heads */
    uint64_t shortfall;       /* tokens that should have been evicted, and were protected */
    uint64_t eviction_passes; /* eviction passes, over layers */
    uint64_t steps;           /* calls of cache_step that returned WINNOW_OK */
    /* With recall k_bytes, v_bytes and slot_map_bytes are those of the hot slots, and resident_slots counts them. */
    uint64_t signature_bytes; /* signatures of all pages, centers, and which pages are hot; in bytes */
    uint64_t cold_bytes;      /* all packed rows with their slot maps; not in bytes */
    uint64_t picks;           /* pages that queries picked, over layers and KV heads; since create or reset (of a
                               * sequence's statistics: since it was empty) */
    uint64_t misses;          /* of them those that were not hot, so that their rows were copied or read; likewise */
    /* With recall=FOLDER cold_bytes lie in a file, and only there. */
    uint64_t disk_bytes;     /* space reserved in that file */
    uint64_t bytes_read;     /* read from it so far, by sequences that still exist */
    uint64_t wait_ns;        /* time spent waiting for those reads, in nanoseconds; side by side, of the longest */
    uint64_t codebook_bytes; /* codebooks of the whole cache, constants of the model as its weights; not in bytes */
} winnow_cache_stats;

/* Bits of winnow_cache_info.properties. A layer evicts where its budget is less than what can come, or where the policy
 * begins before the budget is full. */
#define WINNOW_CACHE_EVICTS 0x1u           /* some layer may evict tokens */
#define WINNOW_CACHE_KEEPS_IMPORTANCE 0x2u /* for cache_importance and cache_set_importance */
#define WINNOW_CACHE_NEEDS_PROFILE 0x4u    /* the budget is divided by winnow_cache_desc.profile: create wants one */
#define WINNOW_CACHE_NEEDS_NETWORK 0x8u    /* tokens are ranked by winnow_cache_desc.network: create wants one */
#define WINNOW_CACHE_NEEDS_CODEBOOKS 0x10u /* pages are signed by winnow_cache_desc.codebooks: create wants them */

/* What a configuration means for a cache of one shape: cache_describe fills it in.
 *
 * The three strings go to memory of the host's. Each pointer comes with its size in bytes, which is then what the
 * string needs, the zero included; where that is more than was given, or the pointer is NULL, no string is written.
 * Counts are tokens. */
typedef struct winnow_cache_info {
    uint32_t struct_size;
    uint32_t properties; /* WINNOW_CACHE_* */
    char *config;        /* the canonical string, as cache_get_config gives it */
    uint64_t config_size;
    /* Canonical: the same formats, centring and sinks under "none", which evicts nothing; of a policy by age the
     * formats of its first packed segment. */
    char *storage_config;
    uint64_t storage_config_size;
    /* The path that the configuration names, of a profile, of networks or of codebooks; "" for none. The host reads it:
     * nothing here does. */
    char *profile_file;
    uint64_t profile_file_size;
    char policy[32]; /* its name, zero terminated */
    /* WINNOW_TYPE_* of the packed segment, of layers and heads without their own; sinks and the newest are dense */
    uint32_t k_type;
    uint32_t v_type;
    int64_t sink;          /* first tokens of a sequence, which are never evicted */
    int64_t residual;      /* newest tokens that are dense; 0: there is no residual window */
    int64_t cadence;       /* tokens from one eviction pass to the next */
    int64_t budget_tokens; /* what a KV head may hold, sinks and residual window included: of the layer with most */
    /* How many of budget_tokens lie in the dense segment (sinks and residual window), and in each packed one, down from
     * the first; 0: there is none. And their types. */
    int64_t segment_tokens[4];
    uint32_t segment_k_types[4]; /* WINNOW_TYPE_* */
    uint32_t segment_v_types[4];
} winnow_cache_info;

/* ---- The table ---------------------------------------------------------------------------------------- */

/* No slot is NULL; what a backend does not offer returns WINNOW_ERROR_UNIMPLEMENTED. Later versions append. */
typedef struct winnow_api {
    uint32_t struct_size;
    uint32_t version;            /* the negotiated version */
    const char *backend_name;    /* "opencl", "reference", ... */
    const char *backend_version; /* the release, for people */

    /* The name of a status, a static string; never NULL. */
    const char *(*status_name)(int32_t status);

    /* Devices, in the order in which a number in winnow_context_desc.device counts them. No driver at all is
     * count 0 and WINNOW_OK. message may be NULL. */
    int32_t (*device_count)(uint32_t *count, char *message, size_t message_size);
    int32_t (*device_info)(uint32_t index, winnow_device_info *info, char *message, size_t message_size);

    /* *context is the caller's and has to be destroyed, after everything that was made from it (buffers, events and
     * caches that remain become invalid). Destroying waits for running work, and destroys also where that fails: the
     * status then says why. Destroying NULL is WINNOW_OK, here and below. */
    int32_t (*context_create)(const winnow_context_desc *desc, winnow_context **context, char *message,
                              size_t message_size);
    int32_t (*context_destroy)(winnow_context *context);
    /* The text of the context's last failure, "" if none; valid until the next call on the context. Never NULL. */
    const char *(*context_message)(winnow_context *context);
    int32_t (*context_info)(winnow_context *context, winnow_device_info *info);
    int32_t (*context_stats)(winnow_context *context, winnow_stats *stats);

    /* Buffers. destroy waits until no running work uses the buffer; where that fails, the buffer stays, to be destroyed
     * again or by context_destroy (so does a cache). read and write wait for all work enqueued
     * before and return when the bytes are there; (offset, size) has to lie inside the buffer. For imported host
     * memory that the device cannot reach, buffer_write after a change by the host and buffer_read before a look,
     * with data = the imported address itself, bring both sides together; elsewhere they cost nothing. */
    int32_t (*buffer_create)(winnow_context *context, const winnow_buffer_desc *desc, winnow_buffer **buffer);
    int32_t (*buffer_destroy)(winnow_buffer *buffer);
    int32_t (*buffer_write)(winnow_buffer *buffer, uint64_t offset, const void *data, uint64_t size);
    int32_t (*buffer_read)(winnow_buffer *buffer, uint64_t offset, void *data, uint64_t size);

    /* Whether sdpa / kv_append with this description would be carried out: WINNOW_OK and, in message, the name of the
     * kernel variant that would run; or the status they would return and the reason. No side effect. Tensors need
     * neither buffer nor data here, and what a tensor without them would have to be is left out of the answer. Where a
     * tensor has them, they are looked at as the call does: whether it lies inside its buffer, is aligned, and overlaps
     * another. So the answer for a description with all its memory is the call's, but for what only a driver can tell
     * (memory that is exhausted, a kernel that does not build). message may be NULL. */
    int32_t (*supports_sdpa)(winnow_context *context, const winnow_sdpa_desc *desc, char *message, size_t message_size);
    int32_t (*supports_kv_append)(winnow_context *context, const winnow_kv_append_desc *desc, char *message,
                                  size_t message_size);

    /* Operations. They are enqueued in order, on the context's queue: a later one sees what an earlier one wrote.
     * Results are there after finish, after event_wait, or after a blocking buffer_read. Host memory that the device
     * cannot reach is copied: inputs within the call, outputs with that wait, and until then the host leaves the
     * outputs' rows alone, also those of which an operation writes a part. event may be NULL, and where it is not a
     * call with such memory waits; otherwise *event is the caller's to destroy. The descriptions are not needed after
     * the call. */
    int32_t (*sdpa)(winnow_context *context, const winnow_sdpa_desc *desc, winnow_event **event);
    int32_t (*kv_append)(winnow_context *context, const winnow_kv_append_desc *desc, winnow_event **event);

    /* Synchronisation. flush hands what was enqueued to the device; finish waits until it is complete. event_wait and
     * event_is_complete return WINNOW_ERROR_DEVICE where the operation itself failed, now and at each later call. After
     * any other failure of a wait what was waited for may still be running: the wait can be repeated, and the one that
     * passes brings all results. */
    int32_t (*flush)(winnow_context *context);
    int32_t (*finish)(winnow_context *context);
    int32_t (*event_wait)(winnow_event *event);
    int32_t (*event_is_complete)(winnow_event *event, uint32_t *is_complete);
    int32_t (*event_destroy)(winnow_event *event);
    /* Later operations of the context wait for a cl_event of the host's, which is retained until a wait finds it over.
     * Where it fails their results are undefined: their events, and the next finish, buffer_read or other call that
     * waits, return WINNOW_ERROR_DEVICE; buffer_destroy and cache_destroy leave that to a later call. wait_cl_event
     * does, where it has failed already. event_get_cl gives the cl_event of an event, borrowed until event_destroy.
     * Only where the context is OpenCL. */
    int32_t (*wait_cl_event)(winnow_context *context, void *cl_event);
    int32_t (*event_get_cl)(winnow_event *event, void **cl_event);

    /* Bytes of a row of `elements` elements in a type. message may be NULL. */
    int32_t (*row_bytes)(uint32_t type, int64_t elements, uint64_t *bytes, char *message, size_t message_size);

    /* As supports_sdpa. */
    int32_t (*supports_kv_requantize)(winnow_context *context, const winnow_kv_requantize_desc *desc, char *message,
                                      size_t message_size);
    int32_t (*supports_kv_dequantize)(winnow_context *context, const winnow_kv_dequantize_desc *desc, char *message,
                                      size_t message_size);
    int32_t (*supports_hadamard)(winnow_context *context, const winnow_hadamard_desc *desc, char *message,
                                 size_t message_size);
    /* As sdpa. */
    int32_t (*kv_requantize)(winnow_context *context, const winnow_kv_requantize_desc *desc, winnow_event **event);
    int32_t (*kv_dequantize)(winnow_context *context, const winnow_kv_dequantize_desc *desc, winnow_event **event);
    int32_t (*hadamard)(winnow_context *context, const winnow_hadamard_desc *desc, winnow_event **event);

    /* The cache. create takes no memory for tokens yet; *cache is the caller's, to be destroyed before the context.
     * estimate tells what create with this description would use when one sequence has `tokens` tokens, without making
     * anything (max_sequences is not multiplied in); it equals what stats then shows, but for what depends on more than
     * lengths: resident_slots, evictions, shortfall, eviction passes and steps are 0. message may be NULL. */
    int32_t (*cache_create)(winnow_context *context, const winnow_cache_desc *desc, winnow_cache **cache);
    int32_t (*cache_destroy)(winnow_cache *cache);
    int32_t (*cache_estimate)(winnow_context *context, const winnow_cache_desc *desc, int64_t tokens,
                              winnow_cache_stats *stats, char *message, size_t message_size);

    /* Appends, attends or both; enqueued as sdpa is. event may be NULL. */
    int32_t (*cache_step)(winnow_cache *cache, const winnow_cache_step_desc *desc, winnow_event **event);

    /* Takes the memory for so many tokens of a sequence now, so that a step cannot run out of it later; with
     * recall=FOLDER but for what a step reads from the file. */
    int32_t (*cache_reserve)(winnow_cache *cache, int64_t sequence, int64_t tokens);
    /* Takes back all tokens of a sequence from position `length` on, in every layer; the next token of a layer that was
     * longer has position `length`, also where none is left before it. What was evicted stays so. */
    int32_t (*cache_truncate)(winnow_cache *cache, int64_t sequence, int64_t length);
    /* Forgets the tokens with positions in [begin, end), every one from begin on where end is -1; the others keep
     * their positions. Where that leaves no token in any layer, the sequence is as new, and its memory is given back.
     * Tokens that were evicted count for that, until they are removed. In cell mode: cells. */
    int32_t (*cache_remove)(winnow_cache *cache, int64_t sequence, int64_t begin, int64_t end);
    /* Makes `to` a copy of `from`; what `to` held is gone. */
    int32_t (*cache_copy)(winnow_cache *cache, int64_t from, int64_t to);
    /* Adds delta to the positions in [begin, end) (end -1: all from begin on), and to that of the next token if it is
     * among them. Keys are as they were: a host whose keys carry their positions has to rotate them before. Refused if
     * two tokens would meet, one become negative, or a head could then not stay inside its budget. Not in cell mode. */
    int32_t (*cache_shift)(winnow_cache *cache, int64_t sequence, int64_t begin, int64_t end, int64_t delta);
    /* As after create, with the same configuration. */
    int32_t (*cache_reset)(winnow_cache *cache);

    /* All sequences in one file: versioned, with a checksum. load wants a cache of the same shape and configuration and
     * replaces what it holds; a file that is damaged, cut short, of another shape or not one of these is refused, and
     * the cache is as before. save writes beside the path and renames; when it fails, the old file is as it was. Both
     * return NOT_FOUND where there is no such file or folder, IO where the system fails on the file, and
     * INVALID_ARGUMENT where the path is a folder's or what is there is no such file. save refuses a symbolic link, and
     * load follows it. */
    int32_t (*cache_save)(winnow_cache *cache, const char *path);
    int32_t (*cache_load)(winnow_cache *cache, const char *path);

    /* Waits for enqueued work, then looks. positions and importance: of the tokens that KV head `head` of a layer still
     * holds, in ascending order of position (or cell), at most `capacity` of them; *count is how many there are.
     * importance goes with positions, entry for entry, and is refused where the policy keeps none. */
    int32_t (*cache_stats)(winnow_cache *cache, winnow_cache_stats *stats);
    int32_t (*cache_positions)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head, int32_t *positions,
                               uint64_t capacity, uint64_t *count);
    int32_t (*cache_importance)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head, float *importance,
                                uint64_t capacity, uint64_t *count);

    /* Another policy or budget from now on; formats, sink, residual window, centring and whether an importance is kept
     * have to stay, and networks and codebooks are those of cache_create. A smaller budget holds when the call returns.
     * get_config writes the canonical string, zero terminated; *size says how many bytes config has, and becomes how
     * many the string needs, the zero included; where that is more, or config is NULL, no string is written. */
    int32_t (*cache_set_config)(winnow_cache *cache, const char *config);
    int32_t (*cache_get_config)(winnow_cache *cache, char *config, size_t *size);
    /* Memory pressure, 0 (none) to 1; some policies evict more under it. Negative: each eviction pass asks
     * the system. */
    int32_t (*cache_set_pressure)(winnow_cache *cache, double pressure);
    /* Positions (or cells) of a sequence whose tokens are never evicted (structural anchors): the token that has one,
     * or where none has it, also where one was removed, the token that comes to it by being appended or shifted there.
     * shift moves the anchors of its range, remove forgets those of its range, truncate leaves all. What was evicted
     * before does not return. Refused where a head could then not stay inside its budget. */
    int32_t (*cache_anchor)(winnow_cache *cache, int64_t sequence, const int64_t *positions, uint64_t count);

    /* Rows by token, for hosts that keep states of their own or turn keys to other positions. All three wait until the
     * work is done. k or v may be NULL in read and write.
     * read: gives rows back as attention sees them; the row of a KV head that does not hold the token is all NaN.
     * write: puts rows in the place of those that a head holds, in the segment's format; where the head does not hold
     * the token, or the row begins with NaN, nothing happens. Which tokens are resident does not change, nor does the
     * importance. restore: appends tokens as cache_step does, from rows as read gave them: a head whose row of k begins
     * with NaN does not get the token, as if it had evicted it. No token is evicted for that as long as every head has
     * free slots. The importance of restored tokens is 0. tokens: their cells; NULL without cells, where they take the
     * next positions. When one of them fails, the sequence is as it was before, with the same exception as for
     * cache_step. */
    int32_t (*cache_read)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
    int32_t (*cache_write)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
    int32_t (*cache_restore)(winnow_cache *cache, const winnow_cache_rows_desc *desc);

    /* Exact rows, for states that lose nothing. k and v are F16 or BF16, their elements one after the other
     * (stride[3] is 2), and what is in them is the cache's own (docs/cache.md): rows of values where a head's row is
     * dense, else records, which begin with a NaN. Both wait until the work is done.
     * export_rows: k, v or both. The rows say which heads hold each token, and bring its row bit for bit and its
     * importance; or the call returns UNSUPPORTED, and has written nothing. That is so where elements of this type do
     * not hold a row that the cache keeps in F32, in the other 16-bit type, or less a mean; where values are not those
     * elements of the keys that has_v_in_k names; where a row begins with NaN; and where importance, packed bytes or a
     * mean find no room. cache_read gives such rows, rounded and without importance.
     * import_rows: appends tokens from k and v that export_rows gave, for all of its tokens or some, in the same order.
     * If all that a sequence's layer had comes into one that is empty, of a cache of the same configuration and shape,
     * then the layer is as it was: the same bytes in the same slots, importance, and what comes next, unless the tokens
     * were too few to have room for all of that (docs/cache.md). Else every head gets its tokens as in restore, packed
     * rows of the packed segment's format bit for bit, and the importance. Rows that cache_read gave are taken, too.
     * Refused where a record is damaged or of another version. tokens: as in restore.
     */
    int32_t (*cache_export_rows)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
    int32_t (*cache_import_rows)(winnow_cache *cache, const winnow_cache_rows_desc *desc);

    /* What the configuration of this description means, without making anything: so a host need not know the language
     * of configurations. It refuses what create refuses, with one exception: without a profile the layers of a policy
     * that divides by one (WINNOW_CACHE_NEEDS_PROFILE) are described as if all were alike, and those of one that ranks
     * by networks (WINNOW_CACHE_NEEDS_NETWORK) or sign pages by codebooks (WINNOW_CACHE_NEEDS_CODEBOOKS) need none, so
     * that a host can ask for profile_file before it has read the file. info is read (its pointers and their sizes) and
     * filled in. message may be NULL. */
    int32_t (*cache_describe)(winnow_context *context, const winnow_cache_desc *desc, winnow_cache_info *info,
                              char *message, size_t message_size);

    /* As cache_stats, of one sequence alone: for servers that give each of their users one. evictions counts from when
     * the sequence was empty; a copy begins at 0. What belongs to the whole cache (scratch_bytes, peak_bytes,
     * eviction_passes and steps) is 0. */
    int32_t (*cache_sequence_stats)(winnow_cache *cache, int64_t sequence, winnow_cache_stats *stats);

    /* Waits for enqueued work, then gives tokens of a KV head another importance, under any policy that keeps one;
     * under `external` and `moe` it is theirs until the next call, under the others attention goes on from it. `count`
     * positions (or cells), each with its importance; a larger one is evicted later, NaN first of all. A token that the
     * head does not hold is passed over; of one that is named twice the later importance holds. Refused where the
     * policy keeps no importance. */
    int32_t (*cache_set_importance)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head,
                                    const int32_t *positions, const float *importance, uint64_t count);

    /* As cache_positions, entry for entry: in which segment each of the tokens lies. 0: dense, as sinks and the
     * residual window are; 1: packed; 2 and 3: the second and third packed segment, where the configuration has them.
     */
    int32_t (*cache_segments)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head, int32_t *segments,
                              uint64_t capacity, uint64_t *count);

    /* Under the policy `moe`: says which experts the router of a layer chose for tokens. Waits for enqueued work,
     * counts the choices, in all sequences of the cache together, and then gives each token, in all KV heads of the
     * layer that hold it, the mean over its experts of how often each was chosen until now, in multiples of what the
     * layer's experts were chosen on average, as if each had been chosen once before. An expert below the share
     * `inactive` of that adds 0, and a token of such experts alone has -1; one of which nothing was said has 0. `count`
     * positions (or cells), and experts_per_token experts for each, from 0 on, all of a token's one after another, in
     * host memory. Of a token that is named twice all choices count, and the later ones are its own. Refused under
     * another policy. */
    int32_t (*cache_set_experts)(winnow_cache *cache, int64_t sequence, int64_t layer, const int32_t *positions,
                                 const int32_t *experts, uint64_t count, uint64_t experts_per_token);

    /* Under the policy `moe`: how often each expert of a layer was chosen, since the cache was made or reset, or got
     * another number of experts. The first `capacity` of them are written, *count is how many there are. Saved files do
     * not have them. */
    int32_t (*cache_expert_counts)(winnow_cache *cache, int64_t layer, uint64_t *counts, uint64_t capacity,
                                   uint64_t *count);
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

#if defined(_WIN32)
#define WINNOW_EXPORT __declspec(dllexport)
#else
#define WINNOW_EXPORT __attribute__((visibility("default")))
#endif

/* Negotiates: *api receives a table of the highest version both sides know, valid until the object is unloaded.
 * Otherwise WINNOW_ERROR_VERSION, and the message names both ranges. message may be NULL. The only symbol a backend
 * exports. */
typedef int32_t (*winnow_get_api_fn)(const winnow_host_info *host, const winnow_api **api, char *message,
                                     size_t message_size);
WINNOW_EXPORT int32_t winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message,
                                     size_t message_size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WINNOW_H */
