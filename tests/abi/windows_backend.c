/* A backend that has no version in common with any host, for windows.cmake: what it exports. */
#define WINNOW_BUILD_BACKEND
#include <stdio.h>

#include "winnow.h"

int32_t WINNOW_CALL winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message,
                                   size_t message_size) {
    (void)host;
    *api = NULL;
    if (message != NULL) {
        snprintf(message, message_size, "no version in common");
    }
    return WINNOW_ERROR_VERSION;
}
