/* consumer.c - what a host needs of an installed Winnow: the headers, the loader and a backend to find. */
#include <stdio.h>

#include "winnow_loader.h"

int main(int argc, char **argv) {
    char message[512];
    winnow_library library;
    uint32_t count = 0;
    int32_t status = winnow_library_open(argc > 1 ? argv[1] : NULL, NULL, &library, message, sizeof message);
    if (status == WINNOW_OK) {
        status = library.api->device_count(&count, message, sizeof message);
    }
    if (status != WINNOW_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    printf("%s %u devices from %s\n", library.api->backend_name, (unsigned)count, library.path);
    winnow_library_close(&library);
    return 0;
}
