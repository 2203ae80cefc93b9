/* winnow_cache.h - a cache of keys and values that stays inside a budget, on top of winnow.h.
 *
 * Its functions are a table of their own, winnow_cache_api. A host asks the backend for it (get_table), and a backend
 * that has no cache says so. The conventions of winnow.h hold here, too. Messages and pages write cache_step for the
 * function `step` of this table, and so on.
 */
#ifndef WINNOW_CACHE_H
#define WINNOW_CACHE_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct winnow_cache winnow_cache;

/* ---- The cache ---------------------------------------------------------------------------------------- */

/* What a configuration may need of a model beside its shape, by name. docs/policies.md (Resources) lists the names and
 * what their bytes are. */
typedef struct winnow_resource {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    const char *name;
    const void *data; /* of any alignment; not needed after the call */
    uint64_t size;    /* bytes */
} winnow_resource;

/* The shape of one layer. */
typedef struct winnow_layer_shape {
    uint32_t struct_size;
    uint32_t reserved;   /* 0 */
    int64_t q_num_heads; /* a multiple of kv_num_heads */
    int64_t kv_num_heads;
    int64_t head_size;
    int64_t v_head_size; /* 0: head_size */
} winnow_layer_shape;

/* A cache holds packed keys and values of all layers for some sequences, and stays inside a budget. In each layer, each
 * KV head evicts by itself the tokens that the attention scores say are not needed. A token's position is its number
 * in its sequence, counted from 0 in the order of appending; eviction does not change it. Keys are stored as they
 * come, so a model with rotary embeddings rotates them before. Sequences are numbers in [0, max_sequences) and share
 * nothing. Memory is taken when a sequence first needs it. The same calls always give the same survivors. */
typedef struct winnow_cache_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    /* Policy, budget and formats in one string, docs/policies.md: "h2o:budget=1/4,k=turbo4,v=turbo3". NULL or "": the
     * default, "winnow". */
    const char *config;
    int64_t layers;
    /* The shape of every layer, as in winnow_layer_shape; all 0 with layer_shapes. */
    int64_t q_num_heads;
    int64_t kv_num_heads;
    int64_t head_size;
    int64_t v_head_size;
    /* The shape of each layer, `layers` of them, for a model whose layers are unlike; else NULL. Whatever is said of a
     * layer's heads and sizes is then of its own. */
    const winnow_layer_shape *layer_shapes;
    uint64_t layer_shape_stride; /* bytes from one to the next: sizeof(winnow_layer_shape) for an array; 0 with NULL */
    /* Tokens: no sequence grows longer. Shares in config are shares of it, and a larger budget is cut to it. In cell
     * mode a sequence may get any number of tokens, because cells are used again; shares and the cut remain. */
    int64_t context;
    int64_t max_sequences; /* 0: 1 */
    /* 0: no cells. Else cell mode, for a host that gives each token a cell of its own choice: how many cells there are.
     * Tokens are then told apart by cells, not by positions, and each attention brings a mask by cells. */
    int64_t cells;
    /* What the configuration wants (cache_describe lists it), and what that of a later cache_set_config will want; NULL
     * without any. */
    const winnow_resource *resources;
    uint64_t resource_count;
    uint64_t resource_stride; /* bytes from one to the next: sizeof(winnow_resource) for an array */
} winnow_cache_desc;

/* What a step has for one sequence: rows [first, first + count) of one batch entry of k, v, q, out and cells. No two
 * entries of a step have a row in common. */
typedef struct winnow_cache_entry {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    int64_t sequence;  /* none twice in a step */
    int64_t batch;     /* which batch entry of the tensors */
    int64_t first;     /* its first row there; rows of attn_mask and scores_out count from 0 */
    int64_t count;     /* how many rows, 1 at least */
    /* How many of the last tokens may be taken back (drafts of speculative decoding). Their queries add nothing to the
     * importance of other tokens, so that cache_truncate leaves no trace of them. */
    int64_t draft_tokens;
    /* Cell mode: a mask as in winnow_sdpa_desc, [1, mh, mq, mk] with mq = count or 1, whose columns are cells. It alone
     * says what a query sees. It may have any number of columns: one is for all cells, and otherwise a cell without a
     * column is hidden. NULL without cells, and without q. */
    const winnow_tensor *attn_mask;
    /* [1, q_num_heads, count, columns] F32 or NULL: the logits after ALiBi and window (WINNOW_SCORES_BIASED) in the
     * column of the token's position (or cell); -INFINITY where it is not stored or not seen. Columns: next_position of
     * cache_tokens after the step at least, or the cells. */
    const winnow_tensor *scores_out;
} winnow_cache_entry;

/* Flags of a step. NO_WAIT: the step waits neither for work that was enqueued before nor for a file. If it would have
 * to, it returns WINNOW_ERROR_WOULD_WAIT before anything has changed in any of its sequences; the message says why and
 * what helps, and is not logged. A step has to wait if it needs more memory (cache_reserve takes it beforehand) or a
 * file (recall=FOLDER); docs/abi.md lists all such steps. */
#define WINNOW_STEP_NO_WAIT 0x1u

/* Appends tokens to one layer, lets queries attend to it, or both, for any number of sequences at once. What comes out
 * for a sequence does not depend on the others in the step.
 *
 * k and v alone: the tokens are appended. q and out alone: the tokens that were appended last attend, as many as q has
 * rows. All four: each token is appended and then attends, in chunks of at most 32 tokens, so that a long prompt never
 * needs more memory than the budget. Eviction comes before a chunk is appended: a query sees the tokens before it that
 * are not evicted yet, and cache_tokens after a step tells what was stored when its last query attended.
 * Attention is causal: a query sees what is stored of its sequence's tokens up to its own. Softcap, ALiBi, window, head
 * sink and scale are as in winnow_sdpa_desc.
 *
 * If the call fails, all sequences are as they were before, with two exceptions. After WINNOW_ERROR_DEVICE those of the
 * step may be incomplete, and should be removed. After WINNOW_ERROR_IO (the disk is full, or a read or write failed)
 * out and scores_out may have been written in part. */
typedef struct winnow_cache_step_desc {
    uint32_t struct_size;
    uint32_t flags; /* WINNOW_STEP_* */
    const winnow_extension *next;
    int64_t layer;
    /* The first entry. NULL: all rows belong to sequence 0, without scores_out and drafts. The tensors then have one
     * batch entry, and entry_count and entry_stride are 0. Cell mode with q needs entries, which bring the masks. */
    const winnow_cache_entry *entries;
    uint64_t entry_count;     /* 1 to max_sequences */
    uint64_t entry_stride;    /* bytes from one entry to the next: sizeof(winnow_cache_entry) for an array */
    const winnow_tensor *k;   /* [batch, kv_num_heads, tokens, head_size] F32, F16 or BF16 */
    const winnow_tensor *v;   /* [batch, kv_num_heads, tokens, v_head_size] F32, F16 or BF16 */
    const winnow_tensor *q;   /* [batch, q_num_heads, tokens, head_size] F32, F16 or BF16 */
    const winnow_tensor *out; /* [batch, q_num_heads, tokens, v_head_size] F32, F16 or BF16; overlaps no input.
                               * Rows of no entry stay as they are */
    /* Each [1, 1, 1, q_num_heads] F32 or NULL; NULL without q. */
    const winnow_tensor *alibi_slopes; /* NULL in cell mode */
    const winnow_tensor *head_sink;
    const winnow_tensor *mask_slopes; /* factor per head on additive masks; NULL without cells */
    /* Cell mode: [batch, 1, 1, tokens] I32 or I64, the cell of each token that is appended, none twice in a sequence; a
     * token that had the cell before is gone. NULL without cells, and without k. */
    const winnow_tensor *cells;
    float scale;         /* multiplies q.k; 0 means 1/sqrt(head_size) */
    float softcap;       /* 0: none */
    int64_t window_left; /* tokens visible up to and including the query's own; 0: no limit. 0 in cell mode */
} winnow_cache_step_desc;

/* Keys and values of a layer by token: what cache_read and cache_export_rows give, cache_write takes, and
 * cache_import_rows appends. */
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

/* How a host takes (write) or gives (read) the next `size` bytes of a stream, at least one. It returns 0 when it has
 * done so; any other number ends the call that asked. It runs within that call, in its thread, and is asked for the
 * bytes in their order, in pieces of any size. `bytes` is valid until it returns. It must call nothing on the cache's
 * context. */
typedef int32_t(WINNOW_CALL *winnow_write_callback)(void *user_data, const void *bytes, uint64_t size);
typedef int32_t(WINNOW_CALL *winnow_read_callback)(void *user_data, void *bytes, uint64_t size);

/* What cache_save writes, and where; what cache_load replaces, and from where. A saved cache is a stream of bytes: a
 * file, or what passes through a callback. Either path is given or the callback of the call, write for cache_save and
 * read for cache_load. */
typedef struct winnow_cache_state_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const winnow_extension *next;
    int64_t sequence; /* -1: all sequences */
    const char *path; /* of a file, zero terminated; or NULL */
    winnow_write_callback write;
    winnow_read_callback read;
    void *user_data; /* for the callback */
    uint64_t size;   /* with read: how long the stream is, which the host keeps; a load that succeeds reads all of it */
} winnow_cache_state_desc;

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
    uint64_t state_bytes;    /* means, sums and counts of the heads */
    uint64_t scratch_bytes;  /* what the steps of all layers share, as scores of a chunk; not in bytes */
    uint64_t peak_bytes;     /* the most that bytes and scratch_bytes were together since create or reset */
    uint64_t original_bytes; /* the same tokens, all that were appended and not removed, in F16 */
    uint64_t budget_bytes;   /* what bytes may become for each sequence; more where tokens of a whole context were
                              * shifted down to the positions of removed ones, unless the budget is in bytes */
    uint64_t tokens; /* appended and not removed, evicted ones too: of the longest layer, summed over sequences */
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

/* What `tokens` tells of the tokens that a KV head still holds, in ascending order of position (or cell). Each array
 * may be NULL, and else has room for `capacity` entries. min(capacity, count) of them are written; entry i of each
 * array is of the same token. */
typedef struct winnow_cache_tokens {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    uint64_t capacity;
    uint64_t count;        /* written: how many tokens the head holds */
    int64_t next_position; /* written: that of the token which the layer gets next; with cells, how many it has had */
    int64_t *positions;
    float *importance; /* refused where the policy keeps none */
    int32_t *segments; /* 0: dense, as sinks and the residual window are; 1: packed; 2 and 3: the second and third
                        * packed segment, where the configuration has them */
} winnow_cache_tokens;

/* Bits of winnow_cache_info.properties. A layer evicts where its budget is less than what can come, or where the policy
 * begins before the budget is full. */
#define WINNOW_CACHE_EVICTS 0x1u           /* some layer may evict tokens */
#define WINNOW_CACHE_KEEPS_IMPORTANCE 0x2u /* for importances in cache_tokens and cache_set_importance */

/* A resource that a configuration wants. */
typedef struct winnow_wanted_resource {
    uint32_t struct_size;
    uint32_t is_needed; /* 1: create refuses the configuration without it; else 0 */
    char name[32];      /* as in winnow_resource, zero terminated */
    /* The path that the configuration names for it, as the strings of winnow_cache_info; "" for none. The host reads
     * the file: nothing here does. */
    char *path;
    uint64_t path_size;
} winnow_wanted_resource;

/* How many tokens of a KV head a segment has, and how it stores them. */
typedef struct winnow_cache_segment {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    uint32_t k_type;   /* WINNOW_TYPE_* */
    uint32_t v_type;
    int64_t tokens;
} winnow_cache_segment;

/* What a configuration means for a cache of some shape: cache_describe fills it in.
 *
 * Strings go to memory of the host's. Each pointer comes with a size in bytes: the host gives how much room there is,
 * and gets how much the string needs, the zero included. Where the room is too small, or the pointer NULL, no string is
 * written, and the call succeeds. Arrays likewise: each has room for `capacity` structs, `stride` bytes from one to the
 * next, whose struct_size the host has set. min(capacity, count) of them are written. NULL has room for none. The other
 * counts are tokens. */
typedef struct winnow_cache_info {
    uint32_t struct_size;
    uint32_t properties; /* WINNOW_CACHE_* */
    char *config; /* the canonical string. A default that is written out, and a share as tokens, stay what they are */
    uint64_t config_size;
    /* Canonical: the same formats, centring and sinks under "none", which evicts nothing; of a policy by age the
     * formats of its first packed segment. */
    char *storage_config;
    uint64_t storage_config_size;
    winnow_wanted_resource *resources; /* their paths, too, are read (pointers and sizes) and filled in */
    uint64_t resource_capacity;
    uint64_t resource_stride;
    uint64_t resource_count; /* written */
    /* Of budget_tokens: the dense one (sinks and residual window), then the packed ones, down from the first. */
    winnow_cache_segment *segments;
    uint64_t segment_capacity;
    uint64_t segment_stride;
    uint64_t segment_count; /* written */
    char policy[32];        /* its name, zero terminated */
    /* WINNOW_TYPE_* of the packed segment, of layers and heads without their own; sinks and the newest are dense */
    uint32_t k_type;
    uint32_t v_type;
    int64_t sink;          /* first tokens of a sequence, which are never evicted */
    int64_t residual;      /* newest tokens that are dense; 0: there is no residual window */
    int64_t cadence;       /* tokens from one eviction pass to the next */
    int64_t budget_tokens; /* what a KV head may hold, sinks and residual window included: of the layer with most */
} winnow_cache_info;

/* ---- The table ---------------------------------------------------------------------------------------- */

/* get_table gives it by this name and version. */
#define WINNOW_CACHE_TABLE "winnow_cache"
#define WINNOW_CACHE_VERSION WINNOW_MAKE_VERSION(0, 9)

/* No slot is NULL. Later versions append. */
typedef struct winnow_cache_api {
    uint32_t struct_size;
    uint32_t version;

    /* The cache. create takes no memory for tokens yet; *cache is the caller's, to be destroyed before the context.
     * destroy waits until no running work uses the cache; where that fails, the cache stays, to be destroyed again or
     * by context_destroy. estimate tells what create with this description would use when one sequence has `tokens`
     * tokens, without making anything (max_sequences is not multiplied in); it equals what stats then shows, but for
     * what depends on more than lengths: resident_slots, evictions, shortfall, eviction passes and steps are 0. A
     * refusal of estimate and describe is an answer, which is not logged. */
    int32_t(WINNOW_CALL *create)(winnow_context *context, const winnow_cache_desc *desc, winnow_cache **cache);
    int32_t(WINNOW_CALL *destroy)(winnow_cache *cache);
    int32_t(WINNOW_CALL *estimate)(winnow_context *context, const winnow_cache_desc *desc, int64_t tokens,
                                   winnow_cache_stats *stats);

    /* What the configuration of this description means, without making anything: so a host need not know the language
     * of configurations. It refuses what create refuses, with one exception: resources may lack, so that a host can ask
     * which are wanted before it has read a file; layers that want a profile are then described as if all were alike.
     * info is read (its pointers with their sizes, capacities and strides) and filled in. */
    int32_t(WINNOW_CALL *describe)(winnow_context *context, const winnow_cache_desc *desc, winnow_cache_info *info);

    /* Appends, attends or both, for one sequence or several; enqueued as sdpa is. event may be NULL. */
    int32_t(WINNOW_CALL *step)(winnow_cache *cache, const winnow_cache_step_desc *desc, winnow_event **event);

    /* Takes the memory for so many tokens of a sequence now, so that a step cannot run out of it later; with
     * recall=FOLDER but for what a step reads from the file. */
    int32_t(WINNOW_CALL *reserve)(winnow_cache *cache, int64_t sequence, int64_t tokens);
    /* Takes back all tokens of a sequence from position `length` on, in every layer; the next token of a layer that was
     * longer has position `length`, also where none is left before it. A layer that is no longer stays as it is. What
     * was evicted stays so, and anchors and reservation remain. */
    int32_t(WINNOW_CALL *truncate)(winnow_cache *cache, int64_t sequence, int64_t length);
    /* Forgets the tokens with positions in [begin, end), every one from begin on where end is -1; the others keep
     * their positions. Where that leaves no token in any layer, the sequence is as new, and its memory is given back.
     * For that a token that was evicted counts as one that is there. So remove(sequence, 0, -1) ends a sequence: it
     * begins at position 0 again, without anchors and reservation. In cell mode: cells. */
    int32_t(WINNOW_CALL *remove)(winnow_cache *cache, int64_t sequence, int64_t begin, int64_t end);
    /* Makes `to` a copy of `from`; what `to` held is gone. */
    int32_t(WINNOW_CALL *copy)(winnow_cache *cache, int64_t from, int64_t to);
    /* Adds delta to the positions in [begin, end) (end -1: all from begin on), and to that of the next token if it is
     * among them. Keys are as they were: a host whose keys carry their positions has to rotate them before. Refused if
     * two tokens would meet, one become negative, or a head could then not stay inside its budget. Not in cell mode. */
    int32_t(WINNOW_CALL *shift)(winnow_cache *cache, int64_t sequence, int64_t begin, int64_t end, int64_t delta);
    /* As after create, with the same configuration. */
    int32_t(WINNOW_CALL *reset)(winnow_cache *cache);

    /* Saved caches: one sequence, or all of them, as a stream with a version and a checksum. A file has the bytes that
     * write would be given. A loaded sequence goes on as the saved one would have, but under recall queries may pick
     * other pages. A stream has no counters: load leaves those of the whole cache, and those of a loaded sequence
     * begin at 0.
     * save waits for enqueued work. load replaces the sequence by a stream of one, or all sequences (-1) by a stream of
     * max_sequences. Their numbers may have been others. Configuration, shape and resources have to be those of the
     * cache that was saved. It refuses a stream that is damaged, ends early, goes on behind its end or is of another
     * cache. It replaces nothing before all was read and checked: whenever it fails, the cache is as before. With a
     * path, save writes beside it, syncs and renames: when it fails, the old file is as it was. It refuses a symbolic
     * link, which load follows. What write was given by a save that failed is no saved cache. INVALID_ARGUMENT: a
     * stream that is refused, or a path of what is no regular file. NOT_FOUND: there is no such file or folder. IO: the
     * system fails on the file, or the callback returned another number than 0. */
    int32_t(WINNOW_CALL *save)(winnow_cache *cache, const winnow_cache_state_desc *desc);
    int32_t(WINNOW_CALL *load)(winnow_cache *cache, const winnow_cache_state_desc *desc);
    /* *size: how many bytes save would write now of a sequence (-1: of all sequences). Waits for nothing. */
    int32_t(WINNOW_CALL *saved_size)(winnow_cache *cache, int64_t sequence, uint64_t *size);

    /* Waits for enqueued work, then looks. stats: of the whole cache where sequence is -1, else of that sequence, for
     * servers that give each of their users one: evictions then counts from when the sequence was empty or loaded, a
     * copy begins at 0, and what belongs to the whole cache (scratch_bytes, peak_bytes, eviction_passes, steps and
     * codebook_bytes) is 0. tokens: of KV head `head` of a layer; look is read (its capacity and pointers) and filled
     * in. */
    int32_t(WINNOW_CALL *stats)(winnow_cache *cache, int64_t sequence, winnow_cache_stats *stats);
    int32_t(WINNOW_CALL *tokens)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head,
                                 winnow_cache_tokens *look);

    /* Waits for enqueued work, then gives tokens of a KV head another importance: `count` positions (or cells), each
     * with its importance. A token with a larger one is evicted later, and one with NaN before all others. Under
     * `external`, `moe`, and `decay` with `experts`, a token keeps it until the next call; under other policies
     * attention goes on from it. A token that the head does not hold is passed over. If a token is named twice, the
     * later importance holds. Refused if the policy keeps no importance. */
    int32_t(WINNOW_CALL *set_importance)(winnow_cache *cache, int64_t sequence, int64_t layer, int64_t head,
                                         const int64_t *positions, const float *importance, uint64_t count);

    /* Another policy or budget from now on. Formats, sinks, residual window, centring and whether an importance is kept
     * have to stay, and resources are those of cache_create. A smaller budget holds when the call returns. */
    int32_t(WINNOW_CALL *set_config)(winnow_cache *cache, const char *config);
    /* Memory pressure, 0 (none) to 1, under which some policies evict more. Negative: each eviction pass asks the
     * system. */
    int32_t(WINNOW_CALL *set_pressure)(winnow_cache *cache, double pressure);
    /* Positions (or cells) of a sequence whose tokens are never evicted (structural anchors). If no token has such a
     * position now, the next one to get it, by being appended or shifted there, is anchored.
     * shift moves the anchors of its range, remove forgets those of its range, truncate leaves all. What was evicted
     * before does not return. Refused where a head could then not stay inside its budget. */
    int32_t(WINNOW_CALL *anchor)(winnow_cache *cache, int64_t sequence, const int64_t *positions, uint64_t count);

    /* Rows by token, for hosts that keep states of their own or turn keys to other positions. Both wait until the work
     * is done. k or v may be NULL.
     * read: gives rows back as attention sees them; the row of a KV head that does not hold the token is all NaN.
     * write: puts rows in the place of those that a head holds, in the segment's format; where the head does not hold
     * the token, or the row begins with NaN, nothing happens. Which tokens are resident does not change, nor does the
     * importance. When one of them fails, the sequence is as it was before, with the same exception as for cache_step.
     */
    int32_t(WINNOW_CALL *read)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
    int32_t(WINNOW_CALL *write)(winnow_cache *cache, const winnow_cache_rows_desc *desc);

    /* Exact rows, for states that lose nothing. Their k and v are F16 or BF16, elements one after the other
     * (stride[3] is 2), and what is in them is the cache's own (docs/cache.md): rows of values where a head's row is
     * dense, else records, which begin with a NaN. Both wait until the work is done.
     * export_rows: k, v or both. The rows say which heads hold each token, and bring its row bit for bit and its
     * importance; or the call returns UNSUPPORTED, and has written nothing. That is so where elements of this type do
     * not hold a row that the cache keeps in F32, in the other 16-bit type, or less a mean; where values are not those
     * elements of the keys that has_v_in_k names; where a row begins with NaN; and where importance, packed bytes or a
     * mean find no room. cache_read gives such rows, rounded and without importance.
     * import_rows: appends tokens from k and v that export_rows gave, for all of its tokens or some, in the same order;
     * or that read gave, which may be F32, both k and v. A head whose row of k begins with NaN, and is no record, does
     * not get the token, as if it had evicted it. No token is evicted for that as long as every head has free slots.
     * tokens: their cells; NULL without cells, where they take the next positions.
     * If all that a sequence's layer had comes into one that is empty, of a cache of the same configuration and shape,
     * then the layer is as it was: the same bytes in the same slots, importance, and what comes next, unless the tokens
     * were too few to have room for all of that (docs/cache.md). Else every head gets its tokens, packed rows of the
     * packed segment's format bit for bit, and the importance, which is 0 where none came along. Refused where a record
     * is damaged or of another version. When one of them fails, the sequence is as it was before. */
    int32_t(WINNOW_CALL *export_rows)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
    int32_t(WINNOW_CALL *import_rows)(winnow_cache *cache, const winnow_cache_rows_desc *desc);
} winnow_cache_api;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WINNOW_CACHE_H */
