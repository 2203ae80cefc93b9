/* A backend that stopped at version 0.WINNOW_OLD_MINOR: the object that WINNOW_OLD_OF names, through the table that it
 * has for hosts of that time.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "winnow.h"

static const uint32_t newest = WINNOW_MAKE_VERSION(0, WINNOW_OLD_MINOR);

int32_t winnow_get_api(const winnow_host_info* host, const winnow_api** api, char* message, size_t message_size) {
    const char* const path = getenv("WINNOW_OLD_OF");
    void* const object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    winnow_get_api_fn get_api = NULL;
    winnow_host_info older;
    if (object == NULL) {
        if (message != NULL) snprintf(message, message_size, "WINNOW_OLD_OF names no backend");
        return WINNOW_ERROR_NOT_FOUND;
    }
    *(void**)&get_api = dlsym(object, "winnow_get_api");
    if (host == NULL || api == NULL || host->struct_size != sizeof older) /* refused there */
        return get_api(host, api, message, message_size);
    older = *host;
    if (older.min_version <= newest && older.max_version > newest) older.max_version = newest;
    return get_api(&older, api, message, message_size);
}
