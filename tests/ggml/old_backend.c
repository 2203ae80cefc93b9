/* A backend of a version of the ABI before the host's, as far as the host gets to see of it. */
#include <stdio.h>

#include "winnow.h"

int32_t winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message, size_t message_size) {
    *api = NULL;
    if (message != NULL && message_size > 0) {
        snprintf(message, message_size, "the host needs version %u.%u or later, this backend speaks 0.1",
                 WINNOW_VERSION_MAJOR(host->min_version), WINNOW_VERSION_MINOR(host->min_version));
    }
    return host->min_version > WINNOW_MAKE_VERSION(0, 1) ? WINNOW_ERROR_VERSION : WINNOW_ERROR_INTERNAL;
}
