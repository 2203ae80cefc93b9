/* winnow_loader.h - opens a Winnow backend: finds the shared object, loads it, negotiates the version.
 *
 * A convenience for hosts, not part of the ABI: a host may as well dlopen a backend and call winnow_get_api itself.
 * C99, for POSIX systems and Windows. Link with the static library winnow_loader, or compile winnow_loader.c into the
 * host.
 *
 * The search, in order:
 *   1. A name with a '/' in it (on Windows also '\') is a path and is opened as it is.
 *   2. NULL or "" stands for the environment variable WINNOW_BACKEND (a path or a short name), else for "opencl".
 *   3. A short name such as "opencl" or "reference" stands for the file libwinnow_<name>.so (on Windows
 *      winnow_<name>.dll), which is looked for in
 *      a. the directories of the environment variable WINNOW_PATH, separated by ':' (on Windows ';')
 *      b. the directory of the program or shared object that contains this loader, then winnow, ../lib and
 *         ../lib/winnow from there
 *      c. the system's folder for backends, where the loader was built to be installed below /usr or /opt
 *      d. where the system looks (LD_LIBRARY_PATH and the linker's cache; on Windows PATH).
 * The first file that exists is the one: if it cannot be loaded, that is an error and no later place is tried.
 */
#ifndef WINNOW_LOADER_H
#define WINNOW_LOADER_H

#include "winnow_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WINNOW_LOADER_PATH_SIZE 4096

/* An open backend. Not to be copied while both copies are in use: one winnow_library_close ends it. */
typedef struct winnow_library {
    const winnow_api *api;              /* valid until winnow_library_close */
    const winnow_cache_api *caches;     /* likewise; NULL where the backend has no caches as this header knows them */
    void *handle;                       /* what dlopen or LoadLibraryEx returned */
    char path[WINNOW_LOADER_PATH_SIZE]; /* what was opened */
} winnow_library;

/* Opens the backend called `name` (see above) and fills *library.
 * host: what the host can speak; NULL means exactly the version of the winnow.h that the loader was compiled with.
 * Returns WINNOW_OK; WINNOW_ERROR_INVALID_ARGUMENT, WINNOW_ERROR_NOT_FOUND when there is no such file, it cannot be
 * loaded or it is not a backend; or what winnow_get_api returned. On failure *library is zeroed, and message (which
 * may be NULL) says what was tried. Nothing is printed. */
int32_t winnow_library_open(const char *name, const winnow_host_info *host, winnow_library *library, char *message,
                            size_t message_size);

/* Unloads the backend; every context made from its table has to be destroyed before. *library is zeroed. Closing NULL
 * or a zeroed library does nothing. */
void winnow_library_close(winnow_library *library);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WINNOW_LOADER_H */
