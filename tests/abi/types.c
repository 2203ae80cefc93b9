/* A shared object that mentions every type of winnow.h, for abidw and abidiff: they compare types that are reachable
 * from exported symbols.
 */
#include "winnow.h"

WINNOW_EXPORT int32_t winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message,
                                     size_t message_size) {
    (void)host;
    (void)message;
    (void)message_size;
    *api = 0;
    return WINNOW_ERROR_UNIMPLEMENTED;
}
