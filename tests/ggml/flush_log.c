/* Lets a program of llama.cpp's end only when all of its log is written: another thread writes it, and the program does
 * not wait for that. Preloaded (LD_PRELOAD); a program without llama.cpp's log ends as it would.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

__attribute__((constructor)) static void begin(void) {
    unsetenv("LD_PRELOAD"); /* the compilers that an OpenCL driver starts are not the program */
}

__attribute__((destructor)) static void flush_log(void) {
    void *(*common_log_main)(void);
    void (*common_log_pause)(void *);
    *(void **)&common_log_main = dlsym(RTLD_DEFAULT, "_Z15common_log_mainv");
    *(void **)&common_log_pause = dlsym(RTLD_DEFAULT, "_Z16common_log_pauseP10common_log");
    if (!common_log_main || !common_log_pause) return;
    /* A log that is full when it is told to end, while its thread does not write just then, counts as empty and never
     * ends. */
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    common_log_pause(common_log_main());
}
