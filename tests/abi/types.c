/* A shared object that mentions every type of the headers, for abidw and abidiff: they compare types that are reachable
 * from exported symbols.
 */
#include "winnow.h"
#include "winnow_cache.h"
#include "winnow_opencl.h"

WINNOW_EXPORT int32_t WINNOW_CALL winnow_get_api(const winnow_host_info *host, const winnow_api **api, char *message,
                                                 size_t message_size) {
    (void)host;
    (void)message;
    (void)message_size;
    *api = 0;
    return WINNOW_ERROR_UNIMPLEMENTED;
}

/* What is fetched by name, and what is in the chain of a description. */
WINNOW_EXPORT void winnow_more_types(const winnow_cache_api *caches, const winnow_opencl_api *opencl,
                                     const winnow_opencl_objects *objects, const winnow_opencl_memory *memory) {
    (void)caches;
    (void)opencl;
    (void)objects;
    (void)memory;
}
