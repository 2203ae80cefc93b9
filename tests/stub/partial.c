/* A backend that leaves out a part of another: the object that WINNOW_PARTIAL_OF names, without its further tables.
 * With WINNOW_PARTIAL_LACKS "formats" the slots of packed formats and rows, too, return WINNOW_ERROR_UNIMPLEMENTED.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "winnow.h"

static winnow_api partial;

static int32_t WINNOW_CALL unimplemented(void) { return WINNOW_ERROR_UNIMPLEMENTED; }

static int32_t WINNOW_CALL get_table(const char* name, uint32_t version, const void** table, char* message,
                                     size_t message_size) {
    (void)version;
    (void)table;
    if (name == NULL) return WINNOW_ERROR_INVALID_ARGUMENT;
    if (message != NULL) snprintf(message, message_size, "there is no table %s", name);
    return WINNOW_ERROR_UNIMPLEMENTED;
}

int32_t WINNOW_CALL winnow_get_api(const winnow_host_info* host, const winnow_api** api, char* message,
                                   size_t message_size) {
    const char* const path = getenv("WINNOW_PARTIAL_OF");
    const char* const lacks = getenv("WINNOW_PARTIAL_LACKS");
    void* const object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int32_t(WINNOW_CALL* const slot)(void) = unimplemented;
    winnow_get_api_fn get_api = NULL;
    size_t at;
    int32_t status;
    if (object == NULL) {
        if (message != NULL) snprintf(message, message_size, "WINNOW_PARTIAL_OF names no backend");
        return WINNOW_ERROR_NOT_FOUND;
    }
    *(void**)&get_api = dlsym(object, "winnow_get_api");
    status = get_api(host, api, message, message_size);
    if (status != WINNOW_OK) return status;
    partial = **api;
    partial.get_table = get_table;
    at = lacks != NULL && strcmp(lacks, "formats") == 0 ? offsetof(winnow_api, row_bytes) : sizeof partial;
    for (; at < sizeof partial; at += sizeof slot) memcpy((char*)&partial + at, &slot, sizeof slot);
    *api = &partial;
    return WINNOW_OK;
}
