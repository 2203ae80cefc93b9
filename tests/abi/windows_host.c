/* A host that links a backend, gives a context every callback and calls through each table, for windows.cmake. It is
 * compiled with the default convention and with another, where what lacks WINNOW_CALL does not fit. */
#include "winnow.h"
#include "winnow_cache.h"
#include "winnow_opencl.h"

static void WINNOW_CALL write_log(void *lines, int32_t level, const char *text) {
    if (level == WINNOW_LOG_ERROR && text[0] != 0) ++*(int *)lines;
}

static void WINNOW_CALL run_all(void *threads, uint32_t count, winnow_task task, void *task_data) {
    uint32_t i;
    (void)threads;
    for (i = 0; i < count; ++i) task(task_data, i);
}

static void WINNOW_CALL add_bytes(void *bytes, const winnow_launch *launch) { *(uint64_t *)bytes += launch->bytes; }

static int32_t WINNOW_CALL take(void *size, const void *bytes, uint64_t more) {
    *(uint64_t *)size += more;
    return bytes == NULL;
}

static int32_t WINNOW_CALL give_nothing(void *size, void *bytes, uint64_t more) {
    (void)size;
    (void)bytes;
    (void)more;
    return 1;
}

static int32_t use(const winnow_api *api, winnow_context *context, uint64_t *size) {
    const winnow_cache_api *caches = NULL;
    const winnow_opencl_api *opencl = NULL;
    const void *table = NULL;
    winnow_cache_desc desc = {0};
    winnow_cache_state_desc state = {0};
    winnow_cache *cache = NULL;
    uint8_t uuid[16];
    int32_t status = api->get_table(WINNOW_OPENCL_TABLE, WINNOW_OPENCL_VERSION, &table, NULL, 0);
    if (status != WINNOW_OK) return status;
    opencl = (const winnow_opencl_api *)table;
    status = opencl->device_uuid(context, uuid);
    if (status != WINNOW_OK) return status;
    status = api->get_table(WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, &table, NULL, 0);
    if (status != WINNOW_OK) return status;
    caches = (const winnow_cache_api *)table;
    desc.struct_size = sizeof desc;
    status = caches->create(context, &desc, &cache);
    if (status != WINNOW_OK) return status;
    state.struct_size = sizeof state;
    state.write = take;
    state.user_data = size;
    status = caches->save(cache, &state);
    state.write = NULL;
    state.read = give_nothing;
    return status == WINNOW_OK ? caches->load(cache, &state) : status;
}

int main(void) {
    winnow_host_info host = {0};
    winnow_context_desc desc = {0};
    winnow_context *context = NULL;
    const winnow_api *api = NULL;
    uint64_t bytes = 0;
    int errors = 0;
    int32_t status;
    host.struct_size = sizeof host;
    host.min_version = host.max_version = WINNOW_API_VERSION;
    status = winnow_get_api(&host, &api, NULL, 0);
    if (status != WINNOW_OK) return 1;
    desc.struct_size = sizeof desc;
    desc.log = write_log;
    desc.log_user_data = &errors;
    desc.parallel_for = run_all;
    desc.launched = add_bytes;
    desc.launched_user_data = &bytes;
    status = api->context_create(&desc, &context, NULL, 0);
    if (status != WINNOW_OK) return 1;
    status = use(api, context, &bytes);
    return api->context_destroy(context) == WINNOW_OK && status == WINNOW_OK && errors == 0 ? 0 : 1;
}
