/* abi.h - checks of a backend's C boundary, written in C as a host would be. Run by abi_test and by
 * winnow-conformance, suite abi of the level core.
 */
#ifndef WINNOW_TESTS_ABI_H
#define WINNOW_TESTS_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "winnow.h"
#include "winnow_cache.h"
#include "winnow_opencl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One check's run: what it is about, and what it found. */
typedef struct abi_run {
    const char *path;   /* the backend; nothing else of the process should hold it open */
    const char *device; /* winnow_context_desc.device */
    int is_complete;    /* the backend has to carry out every operation */
    int expectations;
    int failures;
    char about[160];   /* the struct or case that the next failures are about, or "" */
    char report[8192]; /* a line for each failure, as far as they fit */
} abi_run;

typedef struct abi_check {
    const char *name;
    void (*run)(abi_run *run);
} abi_check;

/* Ends with a NULL name. */
extern const abi_check abi_checks[];

/* ---- What the checks share ---- */

typedef struct abi_backend {
    void *object;
    winnow_get_api_fn get_api;
    const winnow_api *api;          /* NULL when it could not be had; the failure is reported */
    const winnow_cache_api *caches; /* NULL where the backend has no such table, here and below */
    const winnow_opencl_api *opencl;
    winnow_context *context;
} abi_backend;

/* Instead of a status: the call contradicts `supports` or itself, or left a trace though it was refused. */
#define ABI_CONTRADICTION (-1)

void abi_about(abi_run *run, const char *format, ...);
int abi_expect(abi_run *run, int is_true, const char *text, const char *file, int line);
int abi_expect_status(abi_run *run, int32_t got, int32_t want, const char *text, const char *file, int line);
#define EXPECT(condition) abi_expect(run, (condition) != 0, #condition, __FILE__, __LINE__)
#define EXPECT_STATUS(call, want) abi_expect_status(run, (call), (want), #call, __FILE__, __LINE__)
/* Where abi_about says what is called. */
#define EXPECT_CALL(call, want) abi_expect_status(run, (call), (want), "the call", __FILE__, __LINE__)

abi_backend abi_open(abi_run *run);         /* with a table of the header's version */
abi_backend abi_open_context(abi_run *run); /* with a table and a context */
void abi_close(abi_run *run, abi_backend *backend);
winnow_host_info abi_host(uint32_t min_version, uint32_t max_version);

/* An attention and an append over a few numbers in host memory, with outputs in between canaries. */
typedef struct abi_work {
    float q[8], k[24], v[24], source[8];
    uint32_t before[4];
    float out[8];
    uint32_t between[4];
    float cache[24];
    uint32_t after[4];
    int32_t row[1];
    winnow_tensor q_view, k_view, v_view, out_view, source_view, cache_view, row_view;
    winnow_sdpa_desc sdpa;
    winnow_kv_append_desc append;
} abi_work;

void abi_prepare(abi_work *work);       /* work must stay where it is: the views point into it */
int abi_is_untouched(abi_work *work);   /* outputs and canaries are as prepared */
int abi_is_right(const abi_work *work); /* both results are, and the canaries stand */

/* What follows our version of a struct in a newer host. */
#define LONGER(type)                                                                                                   \
    struct {                                                                                                           \
        type first;                                                                                                    \
        unsigned char tail[24];                                                                                        \
    }

/* A struct that a call reads, to be tried in each length. Shorter ones are refused: the sizes of older versions would
 * be welcome, of which there are none so far; tests/unit has made-up ones. */
typedef struct abi_read_case {
    const char *name;      /* of the struct that varies */
    uint32_t *struct_size; /* of it */
    uint32_t ours;         /* what it measures */
    unsigned char *tail;   /* of the longer one */
    int32_t (*call)(const abi_backend *backend, void *data);
    void *data;
} abi_read_case;

void abi_check_read(abi_run *run, const abi_backend *backend, const abi_read_case *what);

/* Calls with a struct of `struct_size` bytes inside a larger memory: what it may write is exactly that. */
typedef int32_t (*abi_fill_function)(const abi_backend *backend, void *target);
void abi_check_fill(abi_run *run, const abi_backend *backend, abi_fill_function fill, const char *name, uint32_t ours);

void check_negotiation(abi_run *run);
void check_refused_hosts(abi_run *run);
void check_table(abi_run *run);
void check_further_tables(abi_run *run);
void check_status_names(abi_run *run);
void check_exported_messages(abi_run *run);
void check_output_structs(abi_run *run);
void check_input_structs(abi_run *run);
void check_row_operations(abi_run *run);
void check_caches(abi_run *run);
void check_extension_chains(abi_run *run);
void check_null_arguments(abi_run *run);
void check_contexts(abi_run *run);
void check_log(abi_run *run);
void check_fork(abi_run *run);
void check_reload(abi_run *run);

#ifdef __cplusplus
}
#endif

#endif
