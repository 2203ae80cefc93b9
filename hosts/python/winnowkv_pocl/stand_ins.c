/* What LLVM and hwloc take from libraries that the wheel leaves out, and where PoCL's clang finds its linker.
 *
 * PoCL never comes to most of it: z3 belongs to clang's static analyzer, libxml2 to manifests of Windows programs,
 * libedit to command lines, libffi to an interpreter. Each of those functions, which stand_ins.h lists, ends the
 * process with a message. libtinfo and libudev are asked, and may know nothing: no colors, no list of disks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION(name)                                                                                                 \
    void name(void) {                                                                                                  \
        fputs("winnowkv-pocl: LLVM calls " #name ", which this build leaves out; please report this\n", stderr);       \
        abort();                                                                                                       \
    }
#define VARIABLE(name) void* name;
#include "stand_ins.h" /* made by ci/driver_wheel */

int setupterm(const char* terminal, int file, int* error) {
    (void)terminal, (void)file;
    if (error != NULL) *error = -1; /* there is no database of terminals */
    return -1;
}

void* udev_new(void) { return NULL; }

/* The folder of the linker, which lies beside that of this library. */
static char linker[4096];

__attribute__((constructor)) static void find_linker(void) {
    Dl_info own;
    if (dladdr(linker, &own) == 0) return;
    const char* const slash = strrchr(own.dli_fname, '/');
    if (slash != NULL)
        snprintf(linker, sizeof linker, "%.*s/../../linker", (int)(slash - own.dli_fname), own.dli_fname);
}

/* LLVM's getenv, by another name. clang looks for a linker in COMPILER_PATH first; the environment stays as it is. */
char* winnowkv_getenv(const char* name) { return strcmp(name, "COMPILER_PATH") == 0 ? linker : getenv(name); }
