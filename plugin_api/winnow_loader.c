/* winnow_loader.c - see winnow_loader.h. Uses nothing but libc and the system's loader, allocates nothing, prints
 * nothing. */
#define _GNU_SOURCE /* dladdr */

#include "winnow_loader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#define SEPARATOR ";" /* of the folders in WINNOW_PATH */
#define FILE_OF "%swinnow_%s.dll"
#else
#include <dlfcn.h>
#include <unistd.h>
#define SEPARATOR ":"
#define FILE_OF "%slibwinnow_%s.so"
#endif

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

#ifdef _WIN32

static int is_path(const char *name) { return strpbrk(name, "/\\") != NULL; }
static int exists(const char *path) { return GetFileAttributesA(path) != INVALID_FILE_ATTRIBUTES; }

static void *open_object(const char *path) {
    /* Libraries that a backend needs are looked for beside it, too; that asks for a path without '/'. */
    char name[WINNOW_LOADER_PATH_SIZE];
    size_t i;
    for (i = 0; path[i] != '\0'; ++i) {
        name[i] = path[i] == '/' ? '\\' : path[i];
    }
    name[i] = '\0';
    return (void *)LoadLibraryExA(name, NULL, is_path(path) ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
}

static winnow_get_api_fn find_get_api(void *object) {
    winnow_get_api_fn get_api = NULL;
    FARPROC symbol = GetProcAddress((HMODULE)object, "winnow_get_api");
    memcpy(&get_api, &symbol, sizeof get_api);
    return get_api;
}

static void close_object(void *object) { FreeLibrary((HMODULE)object); }

/* Writes why open_object failed. */
static const char *open_error(char *text, size_t size) {
    const DWORD error = GetLastError();
    DWORD length = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, error, 0, text,
                                  (DWORD)size, NULL);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) {
        text[--length] = '\0';
    }
    if (length == 0) {
        snprintf(text, size, "error %lu", (unsigned long)error);
    }
    return text;
}

/* The path of the object that contains this function; 0 if it cannot be told. */
static int own_path(char *path) {
    int32_t (*self)(const char *, const winnow_host_info *, winnow_library *, char *, size_t) = winnow_library_open;
    HMODULE module;
    LPCSTR address;
    DWORD length;
    memcpy(&address, &self, sizeof address); /* ISO C has no cast from a function to an object pointer */
    if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            address, &module)) {
        return 0;
    }
    length = GetModuleFileNameA(module, path, WINNOW_LOADER_PATH_SIZE);
    return length > 0 && length < WINNOW_LOADER_PATH_SIZE;
}

static char *last_slash(char *path) {
    char *slash = strrchr(path, '/'), *backslash = strrchr(path, '\\');
    return slash == NULL || (backslash != NULL && backslash > slash) ? backslash : slash;
}

#else

static int exists(const char *path) { return access(path, F_OK) == 0; }
static void *open_object(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }

static winnow_get_api_fn find_get_api(void *object) {
    winnow_get_api_fn get_api = NULL;
    void *symbol = dlsym(object, "winnow_get_api");
    memcpy(&get_api, &symbol, sizeof get_api); /* ISO C has no cast from an object to a function pointer */
    return get_api;
}

static void close_object(void *object) { dlclose(object); }

static const char *open_error(char *text, size_t size) {
    const char *reason = dlerror();
    snprintf(text, size, "%s", reason != NULL ? reason : "no reason was given");
    return text;
}

static int own_path(char *path) {
    int32_t (*self)(const char *, const winnow_host_info *, winnow_library *, char *, size_t) = winnow_library_open;
    Dl_info info;
    void *address;
    ssize_t length;
    memcpy(&address, &self, sizeof address);
    /* For the main program dladdr gives argv[0], which need not be a path; the kernel knows better. */
    if (dladdr(address, &info) != 0 && info.dli_fname != NULL && strchr(info.dli_fname, '/') != NULL &&
        realpath(info.dli_fname, path) != NULL) {
        return 1;
    }
    length = readlink("/proc/self/exe", path, WINNOW_LOADER_PATH_SIZE - 1);
    if (length > 0) {
        path[length] = '\0';
    }
    return length > 0;
}

static char *last_slash(char *path) { return strrchr(path, '/'); }
static int is_path(const char *name) { return strchr(name, '/') != NULL; }

#endif

/* Writes "<directory><middle>/libwinnow_<name>.so" and says whether it fits and such a file exists. */
static int candidate(char *path, const char *directory, size_t directory_length, const char *middle, const char *name) {
    int length =
        snprintf(path, WINNOW_LOADER_PATH_SIZE, "%.*s%s" FILE_OF, (int)directory_length, directory, middle, "/", name);
    return length > 0 && length < WINNOW_LOADER_PATH_SIZE && exists(path);
}

/* The directory of the object that contains this function; returns its length, 0 if it cannot be told. */
static size_t own_directory(char *directory) {
    char *slash = own_path(directory) ? last_slash(directory) : NULL;
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
        length = strcspn(begin, SEPARATOR);
        if (length > 0 && candidate(path, begin, length, "", name)) {
            return;
        }
        begin += length + (begin[length] != '\0');
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
    snprintf(path, WINNOW_LOADER_PATH_SIZE, FILE_OF, "", name);
}

int32_t winnow_library_open(const char *name, const winnow_host_info *host, winnow_library *library, char *message,
                            size_t message_size) {
    const winnow_host_info this_version = {sizeof(winnow_host_info), WINNOW_API_VERSION, WINNOW_API_VERSION, 0, NULL};
    winnow_get_api_fn get_api;
    const void *caches = NULL;
    char reason[512];
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
    if (strlen(name) >= (is_path(name) ? WINNOW_LOADER_PATH_SIZE : 64)) {
        return fail(WINNOW_ERROR_INVALID_ARGUMENT, message, message_size, "the backend's name is too long: %.60s...",
                    name);
    }
    if (is_path(name)) {
        strcpy(library->path, name);
    } else {
        find(library->path, name);
    }

    library->handle = open_object(library->path);
    if (library->handle == NULL) {
        status =
            fail(WINNOW_ERROR_NOT_FOUND, message, message_size,
                 "cannot load backend \"%s\": %s (a short name is looked for in WINNOW_PATH, beside the program and in "
                 "winnow, ../lib and ../lib/winnow from there, and by the system)",
                 name, open_error(reason, sizeof reason));
        memset(library, 0, sizeof *library);
        return status;
    }
    get_api = find_get_api(library->handle);
    if (get_api == NULL) {
        status = fail(WINNOW_ERROR_NOT_FOUND, message, message_size, "%s is not a Winnow backend: no winnow_get_api",
                      library->path);
    } else {
        status = get_api(host != NULL ? host : &this_version, &library->api, message, message_size);
        if (status == WINNOW_OK && library->api == NULL) {
            status = fail(WINNOW_ERROR_INTERNAL, message, message_size, "%s gave no table", library->path);
        }
        if (status == WINNOW_OK &&
            library->api->get_table(WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, &caches, NULL, 0) == WINNOW_OK) {
            library->caches = (const winnow_cache_api *)caches;
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
        close_object(library->handle);
    }
    memset(library, 0, sizeof *library);
}
