/* Loads the backend of GGML_BACKEND_PATH into a program of llama.cpp's that does not look for it: test-llama-archs
 * knows only the backends that ggml was built with. Preloaded (LD_PRELOAD), before main: the program lists its devices
 * once. Being linked with libggml, this library is initialised after it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ggml-backend.h"

__attribute__((constructor)) static void load_backend(void) {
    const char *path = getenv("GGML_BACKEND_PATH");
    unsetenv("LD_PRELOAD"); /* the compilers that an OpenCL driver starts are not the program */
    if (!path || !ggml_backend_load(path)) {
        fprintf(stderr, "load_backend: cannot load GGML_BACKEND_PATH=%s\n", path ? path : "");
        exit(1);
    }
}
