/* What the checks of the C boundary share: loading, expectations, a little work. */
#include "abi.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const abi_check abi_checks[] = {
    {"negotiation", check_negotiation},
    {"refused_hosts", check_refused_hosts},
    {"table", check_table},
    {"further_tables", check_further_tables},
    {"status_names", check_status_names},
    {"messages_fit_their_buffer", check_exported_messages},
    {"output_structs", check_output_structs},
    {"input_structs", check_input_structs},
    {"row_operations", check_row_operations},
    {"caches", check_caches},
    {"extension_chains", check_extension_chains},
    {"null_arguments", check_null_arguments},
    {"contexts", check_contexts},
    {"log", check_log},
    {"fork", check_fork},
    {"reload", check_reload},
    {NULL, NULL},
};

/* By this project's own names: those of the backend are judged, too. */
static const char *name_of(int32_t status) {
#define NAME(status) [status] = #status
    static const char *const names[] = {
        NAME(WINNOW_OK),
        NAME(WINNOW_ERROR_INVALID_ARGUMENT),
        NAME(WINNOW_ERROR_UNSUPPORTED),
        NAME(WINNOW_ERROR_UNIMPLEMENTED),
        NAME(WINNOW_ERROR_VERSION),
        NAME(WINNOW_ERROR_NOT_FOUND),
        NAME(WINNOW_ERROR_OUT_OF_MEMORY),
        NAME(WINNOW_ERROR_DEVICE),
        NAME(WINNOW_ERROR_INTERNAL),
        NAME(WINNOW_ERROR_IO),
        NAME(WINNOW_ERROR_WOULD_WAIT),
    };
#undef NAME
    if (status == ABI_CONTRADICTION)
        return "a contradiction: another status than `supports` or a trace of a refused call";
    return status >= 0 && status <= WINNOW_ERROR_WOULD_WAIT ? names[status] : "a status without a name";
}

void abi_about(abi_run *run, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(run->about, sizeof run->about, format, values);
    va_end(values);
}

static void report(abi_run *run, const char *text, const char *file, int line) {
    const size_t used = strlen(run->report);
    const char *const separator = run->about[0] != 0 ? ": " : "";
    ++run->failures;
    snprintf(run->report + used, sizeof run->report - used, "%s:%d: %s%s%s\n", file, line, run->about, separator, text);
}

int abi_expect(abi_run *run, int is_true, const char *text, const char *file, int line) {
    char full[600];
    ++run->expectations;
    if (is_true) return 1;
    snprintf(full, sizeof full, "expected %s", text);
    report(run, full, file, line);
    return 0;
}

int abi_expect_status(abi_run *run, int32_t got, int32_t want, const char *text, const char *file, int line) {
    char full[600];
    ++run->expectations;
    if (got == want) return 1;
    if (got == WINNOW_OK)
        snprintf(full, sizeof full, "%s was not refused, expected %s (%d)", text, name_of(want), (int)want);
    else
        snprintf(full, sizeof full, "%s gave %s (%d), expected %s (%d)", text, name_of(got), (int)got, name_of(want),
                 (int)want);
    report(run, full, file, line);
    return 0;
}

winnow_host_info abi_host(uint32_t min_version, uint32_t max_version) {
    winnow_host_info host;
    memset(&host, 0, sizeof host);
    host.struct_size = sizeof host;
    host.min_version = min_version;
    host.max_version = max_version;
    host.host_name = "abi_test";
    return host;
}

/* NULL where the backend says that it has none. */
static const void *table_of(abi_run *run, const abi_backend *backend, const char *name, uint32_t version) {
    const void *table = NULL;
    const int32_t status = backend->api->get_table(name, version, &table, NULL, 0);
    if (status == WINNOW_ERROR_UNIMPLEMENTED) {
        EXPECT(table == NULL);
        return NULL;
    }
    EXPECT_STATUS(status, WINNOW_OK);
    EXPECT(table != NULL);
    return table;
}

abi_backend abi_open(abi_run *run) {
    abi_backend backend;
    winnow_host_info host = abi_host(WINNOW_API_VERSION, WINNOW_API_VERSION);
    memset(&backend, 0, sizeof backend);
    backend.object = dlopen(run->path, RTLD_NOW | RTLD_LOCAL);
    if (!EXPECT(backend.object != NULL)) return backend;
    *(void **)&backend.get_api = dlsym(backend.object, "winnow_get_api");
    if (!EXPECT(backend.get_api != NULL)) return backend;
    EXPECT_STATUS(backend.get_api(&host, &backend.api, NULL, 0), WINNOW_OK);
    if (!EXPECT(backend.api != NULL)) return backend;
    backend.caches = table_of(run, &backend, WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION);
    backend.opencl = table_of(run, &backend, WINNOW_OPENCL_TABLE, WINNOW_OPENCL_VERSION);
    return backend;
}

abi_backend abi_open_context(abi_run *run) {
    abi_backend backend = abi_open(run);
    winnow_context_desc desc;
    if (!backend.api) return backend;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.device = run->device;
    EXPECT_STATUS(backend.api->context_create(&desc, &backend.context, NULL, 0), WINNOW_OK);
    if (!EXPECT(backend.context != NULL)) backend.api = NULL;
    return backend;
}

void abi_close(abi_run *run, abi_backend *backend) {
    if (backend->context) EXPECT_STATUS(backend->api->context_destroy(backend->context), WINNOW_OK);
    if (backend->object) EXPECT(dlclose(backend->object) == 0);
    memset(backend, 0, sizeof *backend);
}

/* ---- A little work: 2 heads, head size 4, 3 keys ------------------------------------------------------------------
 */

static winnow_tensor view(uint32_t type, void *data, int64_t element, int64_t b, int64_t c, int64_t d) {
    winnow_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.data = data;
    tensor.shape[0] = 1;
    tensor.shape[1] = b;
    tensor.shape[2] = c;
    tensor.shape[3] = d;
    tensor.stride[3] = element;
    tensor.stride[2] = element * d;
    tensor.stride[1] = element * d * c;
    tensor.stride[0] = element * d * c * b;
    return tensor;
}

static const uint32_t canary = 0xdeadbeefu;

void abi_prepare(abi_work *work) {
    int i;
    memset(work, 0, sizeof *work);
    for (i = 0; i < 8; ++i) work->q[i] = 1, work->out[i] = -77, work->source[i] = (float)(10 + i);
    for (i = 0; i < 24; ++i) work->k[i] = 0, work->v[i] = (float)(i % 12 / 4), work->cache[i] = -77;
    for (i = 0; i < 4; ++i) work->before[i] = work->between[i] = work->after[i] = canary;
    work->row[0] = 1;
    work->q_view = view(WINNOW_TYPE_F32, work->q, 4, 2, 1, 4);
    work->k_view = view(WINNOW_TYPE_F32, work->k, 4, 2, 3, 4);
    work->v_view = view(WINNOW_TYPE_F32, work->v, 4, 2, 3, 4);
    work->out_view = view(WINNOW_TYPE_F32, work->out, 4, 2, 1, 4);
    work->source_view = view(WINNOW_TYPE_F32, work->source, 4, 2, 1, 4);
    work->cache_view = view(WINNOW_TYPE_F32, work->cache, 4, 2, 3, 4);
    work->row_view = view(WINNOW_TYPE_I32, work->row, 4, 1, 1, 1);
    work->sdpa.struct_size = sizeof work->sdpa;
    work->sdpa.q = &work->q_view;
    work->sdpa.k = &work->k_view;
    work->sdpa.v = &work->v_view;
    work->sdpa.out = &work->out_view;
    work->append.struct_size = sizeof work->append;
    work->append.k_src = &work->source_view;
    work->append.k_cache = &work->cache_view;
    work->append.k_row_indices = &work->row_view;
}

static int canaries_stand(const abi_work *work) {
    int i, stand = 1;
    for (i = 0; i < 4; ++i)
        stand = stand && work->before[i] == canary && work->between[i] == canary && work->after[i] == canary;
    return stand;
}

int abi_is_untouched(abi_work *work) {
    int i, is_untouched = canaries_stand(work);
    for (i = 0; i < 8; ++i) is_untouched = is_untouched && work->out[i] == -77;
    for (i = 0; i < 24; ++i) is_untouched = is_untouched && work->cache[i] == -77;
    return is_untouched;
}

int abi_is_right(const abi_work *work) {
    int i, is_right = canaries_stand(work);
    for (i = 0; i < 8; ++i) is_right = is_right && fabs((double)work->out[i] - 1) < 1e-5; /* the mean of 0, 1 and 2 */
    for (i = 0; i < 24; ++i) {
        const int is_row = i % 12 / 4 == 1;
        is_right = is_right && work->cache[i] == (is_row ? (float)(10 + i / 12 * 4 + i % 4) : -77);
    }
    return is_right;
}
