/* Hosts of the past: each gets a table that ends where its version's ended, and is served as it was. */
#include <string.h>

#include "abi.h"

/* That time's structs end where later fields begin; what a host has there is none of the backend's business. */
static void poison_behind(void *of, size_t first, size_t size) {
    memset((unsigned char *)of + first, 0xee, size - first);
}

static void check_version(abi_run *run, const abi_backend *backend, const abi_version *of) {
    const winnow_host_info host = abi_host(of->version, of->version);
    const winnow_api *api = NULL;
    winnow_stats before, stats;
    abi_work work;
    size_t at;
    const int32_t status = backend->get_api(&host, &api, NULL, 0);
    EXPECT(status == WINNOW_OK || (!run->is_complete && status == WINNOW_ERROR_VERSION));
    if (status != WINNOW_OK) return;
    EXPECT(api->version == of->version);
    EXPECT(api->struct_size == of->api);
    for (at = offsetof(winnow_api, status_name); at < of->api; at += sizeof(void *)) {
        void *slot = NULL;
        memcpy(&slot, (const unsigned char *)api + at, sizeof slot);
        EXPECT(slot != NULL);
    }
    EXPECT((api == backend->api) == (of->version == backend->api->version));
    memset(&before, 0, sizeof before);
    before.struct_size = of->stats;
    EXPECT_STATUS(api->context_stats(backend->context, &before), WINNOW_OK);
    abi_prepare(&work);
    work.sdpa.struct_size = of->sdpa_desc;
    work.append.struct_size = of->kv_append_desc;
    poison_behind(&work.sdpa, of->sdpa_desc, sizeof work.sdpa);
    poison_behind(&work.append, of->kv_append_desc, sizeof work.append);
    EXPECT_STATUS(api->supports_sdpa(backend->context, &work.sdpa, NULL, 0), WINNOW_OK);
    EXPECT_STATUS(api->supports_kv_append(backend->context, &work.append, NULL, 0), WINNOW_OK);
    EXPECT_STATUS(api->sdpa(backend->context, &work.sdpa, NULL), WINNOW_OK);
    EXPECT_STATUS(api->kv_append(backend->context, &work.append, NULL), WINNOW_OK);
    EXPECT_STATUS(api->finish(backend->context), WINNOW_OK);
    EXPECT(abi_is_right(&work));
    memset(&stats, 0xee, sizeof stats);
    stats.struct_size = of->stats;
    EXPECT_STATUS(api->context_stats(backend->context, &stats), WINNOW_OK);
    EXPECT(stats.sdpa_calls == before.sdpa_calls + 1 && stats.kv_append_calls == before.kv_append_calls + 1 &&
           stats.rows_appended == before.rows_appended + 1);
    for (at = of->stats; at < sizeof stats; ++at)
        if (((const unsigned char *)&stats)[at] != 0xee) break;
    EXPECT(at == sizeof stats);
}

void check_older_versions(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    const abi_version *of;
    if (backend.api)
        for (of = abi_versions; of->version < WINNOW_API_VERSION; ++of) check_version(run, &backend, of);
    abi_close(run, &backend);
}
