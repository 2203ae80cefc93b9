/* abi_test BACKEND [DEVICE]: a C99 host that runs every check of the C boundary. */
#include <stdio.h>
#include <string.h>

#include "abi.h"

int main(int argc, char **argv) {
    const abi_check *check;
    int failures = 0;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: abi_test BACKEND [DEVICE]\n");
        return 2;
    }
    for (check = abi_checks; check->name; ++check) {
        abi_run run;
        memset(&run, 0, sizeof run);
        run.path = argv[1];
        run.device = argc > 2 ? argv[2] : NULL;
        run.is_complete = 1;
        check->run(&run);
        printf("%-28s %4d expectations, %d failed\n%s", check->name, run.expectations, run.failures, run.report);
        fflush(stdout);
        failures += run.failures;
        if (run.expectations == 0) ++failures;
    }
    printf(failures ? "FAILED\n" : "passed\n");
    return failures != 0;
}
