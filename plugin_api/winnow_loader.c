/* winnow_loader.c - see winnow_loader.h. Uses nothing but libc and libdl, allocates nothing, prints nothing. */
#define _GNU_SOURCE /* dladdr */

#include "winnow_loader.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of libraries below the prefix, where it is not plain lib: "lib/x86_64-linux-gnu" on Debian. */
#ifdef WINNOW_LOADER_LIBDIR
#define LIBRARIES "/../" WINNOW_LOADER_LIBDIR "/winnow"
#else
#define LIBRARIES "/../lib/winnow"
#endif

static int32_t fail(int32_t status, char *message, size_t message_size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int32_t fail(int32_t status, char *message, size_t message_size, const char *format, ...) {
    if (message != NULL && message_size > 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message, message_size, format, arguments);
        va_end(arguments);
    }
    return status;
}

/* Writes "<directory><middle>/libwinnow_<name>.so" and says whether it fits and such a file exists. */
static int candidate(char *path, const char *directory, size_t directory_length, const char *middle, const char *name) {
    int length = snprintf(path, WINNOW_LOADER_PATH_SIZE, "%.*s%s/libwinnow_%s.so", (int)directory_length, directory,
                          middle, name);
    return length > 0 && length < WINNOW_LOADER_PATH_SIZE && access(path, F_OK) == 0;
}

/* The directory of the object that contains this function; returns its length, 0 if it cannot be told. */
static size_t own_directory(char *directory) {
    Dl_info info;
    char *slash;
    ssize_t length;
    int32_t (*self)(const char *, const winnow_host_info *, winnow_library *, char *, size_t) = winnow_library_open;
    void *address;
    memcpy(&address, &self, sizeof address); /* ISO C has no cast from a function to an object pointer */
    /* For the main program dladdr gives argv[0], which need not be a path; the kernel knows better. */
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL || strchr(info.dli_fname, '/') == NULL ||
        realpath(info.dli_fname, directory) == NULL) {
        length = readlink("/proc/self/exe", directory, WINNOW_LOADER_PATH_SIZE - 1);
        if (length <= 0) {
            return 0;
        }
        directory[length] = '\0';
    }
    slash = strrchr(directory, '/');
    return slash == NULL ? 0 : (size_t)(slash - directory);
}

/* Writes into `path` the file that the short name stands for; a bare file name where the system has to look. */
static void find(char *path, const char *name) {
    static const char installed[] = LIBRARIES;
    static const char *const middles[] = {"", "/winnow", "/../lib", "/../lib/winnow", installed};
    char directory[WINNOW_LOADER_PATH_SIZE];
    const char *begin = getenv("WINNOW_PATH");
    size_t length, i;
    while (begin != NULL && *begin != '\0') {
        length = strcspn(begin, ":");
        if (length > 0 && candidate(path, begin, length, "", name)) {
            return;
        }
        begin += length + (begin[length] == ':');
    }
    length = own_directory(directory);
    for (i = 0; length > 0 && i < sizeof middles / sizeof middles[0]; ++i) {
        if (candidate(path, directory, length, middles[i], name)) {
            return;
        }
    }
#ifdef WINNOW_LOADER_SYSTEM
    if (candidate(path, WINNOW_LOADER_SYSTEM, strlen(WINNOW_LOADER_SYSTEM), "", name)) {
        return;
    }
#endif
    snprintf(path, WINNOW_LOADER_PATH_SIZE, "libwinnow_%s.so", name);
}

int32_t winnow_library_open(const char *name, const winnow_host_info *host, winnow_library *library, char *message,
                            size_t message_size) {
    const winnow_host_info this_version = {sizeof(winnow_host_info), WINNOW_API_VERSION, WINNOW_API_VERSION, 0, NULL};
    winnow_get_api_fn get_api = NULL;
    const char *reason;
    void *symbol;
    int32_t status;

    if (message != NULL && message_size > 0) {
        message[0] = '\0';
    }
    if (library == NULL) {
        return fail(WINNOW_ERROR_INVALID_ARGUMENT, message, message_size, "library is NULL, expected a place to fill");
    }
    memset(library, 0, sizeof *library);
    if (name == NULL || name[0] == '\0') {
        name = getenv("WINNOW_BACKEND");
    }
    if (name == NULL || name[0] == '\0') {
        name = "opencl";
    }
    /* 64 leaves room for a directory, so that no path built from a short name is cut. */
    if (strlen(name) >= (strchr(name, '/') != NULL ? WINNOW_LOADER_PATH_SIZE : 64)) {
        return fail(WINNOW_ERROR_INVALID_ARGUMENT, message, message_size, "the backend's name is too long: %.60s...",
                    name);
    }
    if (strchr(name, '/') != NULL) {
        strcpy(library->path, name);
    } else {
        find(library->path, name);
    }

    library->handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL) {
        reason = dlerror();
        status =
            fail(WINNOW_ERROR_NOT_FOUND, message, message_size,
                 "cannot load backend \"%s\": %s (a short name is looked for in WINNOW_PATH, beside the program and in "
                 "winnow, ../lib and ../lib/winnow from there, and by the system)",
                 name, reason != NULL ? reason : library->path);
        memset(library, 0, sizeof *library);
        return status;
    }
    symbol = dlsym(library->handle, "winnow_get_api");
    if (symbol == NULL) {
        status = fail(WINNOW_ERROR_NOT_FOUND, message, message_size, "%s is not a Winnow backend: no winnow_get_api",
                      library->path);
    } else {
        memcpy(&get_api, &symbol, sizeof get_api);
        status = get_api(host != NULL ? host : &this_version, &library->api, message, message_size);
        if (status == WINNOW_OK && library->api == NULL) {
            status = fail(WINNOW_ERROR_INTERNAL, message, message_size, "%s gave no table", library->path);
        }
    }
    if (status != WINNOW_OK) {
        winnow_library_close(library);
    }
    return status;
}

void winnow_library_close(winnow_library *library) {
    if (library == NULL) {
        return;
    }
    if (library->handle != NULL) {
        dlclose(library->handle);
    }
    memset(library, 0, sizeof *library);
}
