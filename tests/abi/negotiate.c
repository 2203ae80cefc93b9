/* The entry point and the table: fake old and new hosts, refusals that name both ranges, no slot left empty. */
#include <stdio.h>
#include <string.h>

#include "abi.h"

static const winnow_api *const untouched = (const winnow_api *)(uintptr_t)0x5a5a;

static int32_t ask(const abi_backend *backend, const winnow_host_info *host, const winnow_api **api, char *message,
                   size_t size) {
    *api = untouched;
    memset(message, '#', size);
    message[size - 1] = 0;
    return backend->get_api(host, api, message, size);
}

void check_negotiation(abi_run *run) {
    abi_backend backend = abi_open(run);
    const winnow_api *api = NULL, *again = NULL;
    char message[512];
    winnow_host_info host;
    if (backend.api) {
        EXPECT(backend.api->version == WINNOW_API_VERSION);
        EXPECT(backend.api->struct_size == sizeof(winnow_api));
        /* A newer host that still knows us, and one that has come a long way. */
        host = abi_host(WINNOW_API_VERSION, WINNOW_MAKE_VERSION(0, 9));
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_OK);
        EXPECT(api != NULL && api != untouched && api->version >= backend.api->version &&
               api->version <= host.max_version);
        host = abi_host(WINNOW_API_VERSION, WINNOW_MAKE_VERSION(65535, 65535));
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_OK);
        EXPECT_STATUS(ask(&backend, &host, &again, message, sizeof message), WINNOW_OK);
        EXPECT(api == again);
        /* No name, no message. */
        host.host_name = NULL;
        EXPECT_STATUS(backend.get_api(&host, &api, NULL, 0), WINNOW_OK);
    }
    abi_close(run, &backend);
}

void check_refused_hosts(abi_run *run) {
    abi_backend backend = abi_open(run);
    const winnow_api *api = NULL;
    char message[512];
    winnow_host_info host;
    struct {
        winnow_host_info host;
        unsigned char tail[16];
    } longer;
    if (backend.api) {
        /* From a future that has left us behind: both ranges are named. */
        abi_about(run, "winnow_host_info, versions 7.3 to 8.4");
        host = abi_host(WINNOW_MAKE_VERSION(7, 3), WINNOW_MAKE_VERSION(8, 4));
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_VERSION);
        EXPECT(api == untouched);
        EXPECT(strstr(message, "7.3") && strstr(message, "8.4") && strstr(message, "0."));
        EXPECT(strstr(message, "0.9") != NULL);
        /* From the past, before the first release. */
        abi_about(run, "winnow_host_info, versions 0.1 to 0.3");
        host = abi_host(WINNOW_MAKE_VERSION(0, 1), WINNOW_MAKE_VERSION(0, 3));
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_VERSION);
        EXPECT(api == untouched && strstr(message, "0.1") && strstr(message, "0.3"));
        /* Zero is no version; a range runs upwards. */
        abi_about(run, "winnow_host_info, min_version 0");
        host = abi_host(0, WINNOW_API_VERSION);
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(api == untouched && strstr(message, "min_version"));
        abi_about(run, "winnow_host_info, max_version 0");
        host = abi_host(WINNOW_API_VERSION, 0);
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(api == untouched && strstr(message, "max_version"));
        abi_about(run, "winnow_host_info, versions 0.2 to 0.1");
        host = abi_host(WINNOW_MAKE_VERSION(0, 2), WINNOW_MAKE_VERSION(0, 1));
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(api == untouched);
        /* Older and newer structs. */
        host = abi_host(WINNOW_API_VERSION, WINNOW_API_VERSION);
        abi_about(run, "winnow_host_info, struct_size 0");
        host.struct_size = 0;
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(api == untouched && strstr(message, "struct_size"));
        abi_about(run, "winnow_host_info, struct_size %u of %u known bytes", (unsigned)sizeof host - 1,
                  (unsigned)sizeof host);
        host.struct_size = sizeof host - 1;
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        abi_about(run, "winnow_host_info, struct_size %u", (unsigned)UINT32_MAX);
        host.struct_size = UINT32_MAX;
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        abi_about(run, "winnow_host_info, struct_size %u of %u known bytes", (unsigned)sizeof longer,
                  (unsigned)sizeof host);
        memset(&longer, 0, sizeof longer);
        longer.host = abi_host(WINNOW_API_VERSION, WINNOW_API_VERSION);
        longer.host.struct_size = sizeof longer;
        EXPECT_STATUS(ask(&backend, &longer.host, &api, message, sizeof message), WINNOW_OK);
        abi_about(run, "winnow_host_info, struct_size %u of %u known bytes, byte %u is 1", (unsigned)sizeof longer,
                  (unsigned)sizeof host, (unsigned)sizeof host + 15);
        longer.tail[15] = 1;
        EXPECT_STATUS(ask(&backend, &longer.host, &api, message, sizeof message), WINNOW_ERROR_UNSUPPORTED);
        EXPECT(api == untouched);
        host = abi_host(WINNOW_API_VERSION, WINNOW_API_VERSION);
        abi_about(run, "winnow_host_info, flags 1");
        host.flags = 1;
        EXPECT_STATUS(ask(&backend, &host, &api, message, sizeof message), WINNOW_ERROR_UNSUPPORTED);
        EXPECT(api == untouched && strstr(message, "flags"));
        /* Nothing at all. */
        abi_about(run, "winnow_host_info or the table is NULL");
        host.flags = 0;
        EXPECT_STATUS(ask(&backend, NULL, &api, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_STATUS(backend.get_api(&host, NULL, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_STATUS(backend.get_api(NULL, NULL, NULL, 0), WINNOW_ERROR_INVALID_ARGUMENT);
        abi_about(run, "");
    }
    abi_close(run, &backend);
}

/* The functions of a table lie from `first` on, one after another. */
static void check_slots(abi_run *run, const void *table, uint32_t size, size_t first) {
    size_t at;
    for (at = first; at < size; at += sizeof(void *)) {
        void *slot = NULL;
        memcpy(&slot, (const unsigned char *)table + at, sizeof slot);
        EXPECT(slot != NULL);
    }
}

void check_table(abi_run *run) {
    abi_backend backend = abi_open(run);
    if (backend.api) {
        EXPECT(backend.api->backend_name != NULL && backend.api->backend_name[0] != 0);
        EXPECT(backend.api->backend_version != NULL && backend.api->backend_version[0] != 0);
        check_slots(run, backend.api, backend.api->struct_size, offsetof(winnow_api, status_name));
    }
    abi_close(run, &backend);
}

/* A table that a backend has is asked for by name and version; what it has not, it names. */
void check_further_tables(abi_run *run) {
    abi_backend backend = abi_open(run);
    const void *table = NULL;
    char message[256] = "";
    if (backend.api) {
        EXPECT(!run->is_complete || backend.caches != NULL);
        if (backend.caches) {
            EXPECT(backend.caches->struct_size >= sizeof(winnow_cache_api));
            EXPECT(backend.caches->version == WINNOW_CACHE_VERSION);
            check_slots(run, backend.caches, backend.caches->struct_size, offsetof(winnow_cache_api, create));
            EXPECT_STATUS(
                backend.api->get_table(WINNOW_CACHE_TABLE, WINNOW_MAKE_VERSION(99, 0), &table, message, sizeof message),
                WINNOW_ERROR_VERSION);
            EXPECT(strstr(message, "99.0") != NULL);
            EXPECT_STATUS(backend.api->get_table(WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, NULL, NULL, 0),
                          WINNOW_ERROR_INVALID_ARGUMENT);
        }
        if (backend.opencl) {
            EXPECT(backend.opencl->struct_size >= sizeof(winnow_opencl_api));
            EXPECT(backend.opencl->version == WINNOW_OPENCL_VERSION);
            check_slots(run, backend.opencl, backend.opencl->struct_size, offsetof(winnow_opencl_api, wait_event));
        }
        EXPECT_STATUS(backend.api->get_table("winnow_none", 1, &table, message, sizeof message),
                      WINNOW_ERROR_UNIMPLEMENTED);
        EXPECT(strstr(message, "winnow_none") != NULL);
        EXPECT_STATUS(backend.api->get_table(NULL, 1, &table, NULL, 0), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(table == NULL);
    }
    abi_close(run, &backend);
}

void check_status_names(abi_run *run) {
    static const int32_t unknown[] = {-1, 11, 1000, WINNOW_STATUS_VENDOR, INT32_MAX, INT32_MIN};
    abi_backend backend = abi_open(run);
    int32_t status, other;
    size_t at;
    if (backend.api) {
        for (status = WINNOW_OK; status <= WINNOW_ERROR_WOULD_WAIT; ++status) {
            const char *name = backend.api->status_name(status);
            EXPECT(name != NULL && name[0] != 0);
            for (other = WINNOW_OK; other < status; ++other) EXPECT(strcmp(name, backend.api->status_name(other)) != 0);
        }
        for (at = 0; at < sizeof unknown / sizeof unknown[0]; ++at)
            EXPECT(backend.api->status_name(unknown[at]) != NULL);
        EXPECT(strncmp(backend.api->status_name(WINNOW_STATUS_VENDOR), "WINNOW_", strlen("WINNOW_")) != 0);
    }
    abi_close(run, &backend);
}

/* Whatever the size of the caller's buffer: terminated within it, and not a byte beyond. */
void check_exported_messages(abi_run *run) {
    abi_backend backend = abi_open(run);
    const winnow_host_info host = abi_host(WINNOW_MAKE_VERSION(7, 3), WINNOW_MAKE_VERSION(8, 4));
    const winnow_api *api = NULL;
    winnow_device_info info;
    char message[64];
    size_t size, at;
    if (backend.api) {
        for (size = 0; size <= 20; ++size) {
            memset(message, '#', sizeof message);
            EXPECT_STATUS(backend.get_api(&host, &api, message, size), WINNOW_ERROR_VERSION);
            if (size > 0) EXPECT(memchr(message, 0, size) != NULL);
            for (at = size; at < sizeof message; ++at) EXPECT(message[at] == '#');
            memset(message, '#', sizeof message);
            memset(&info, 0, sizeof info);
            info.struct_size = sizeof info;
            EXPECT_STATUS(backend.api->device_info(1000000, &info, message, size), WINNOW_ERROR_NOT_FOUND);
            if (size > 0) EXPECT(memchr(message, 0, size) != NULL);
            for (at = size; at < sizeof message; ++at) EXPECT(message[at] == '#');
        }
    }
    abi_close(run, &backend);
}
