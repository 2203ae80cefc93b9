/* opencl_faults.h - how a test speaks with the OpenCL layer of opencl_layer.cpp: which call is to fail, which did, and
 * what is still alive. The layer exports one symbol, opencl_faults, of this struct. */
#ifndef OPENCL_FAULTS_H
#define OPENCL_FAULTS_H

#include <stdint.h>

#define OPENCL_FAULTS_SYMBOL "opencl_faults_table"

#define OPENCL_FAULT_ONCE 1 /* one call fails, and is not handed to the driver */
#define OPENCL_FAULT_LOST                                                                                              \
    2 /* from one call on all fail with CL_DEVICE_NOT_AVAILABLE; releases and waits still happen */
#define OPENCL_FAULT_EVENT 3 /* the event of a call that gives one is complete with an error; only such calls count */

typedef struct opencl_fault_plan {
    uint64_t at;          /* the at-th call from now on, from 1; 0: none fails */
    const char* function; /* only calls of it count, a static string; NULL: those of every function */
    uint32_t kind;        /* OPENCL_FAULT_* */
    uint32_t variation;   /* which of the errors that the function may give, modulo their number */
    int32_t code;         /* in the place of those, where it is not 0 */
} opencl_fault_plan;

typedef struct opencl_fault_report {
    uint64_t calls;     /* that counted since the plan was made, those that failed among them */
    uint64_t failures;  /* since then; of a lost device without releases */
    const char* failed; /* the function of the first failure, NULL before */
    int32_t code;       /* what that returned, or the event's status */
} opencl_fault_report;

typedef struct opencl_faults {
    void (*arm)(const opencl_fault_plan* plan);
    void (*report)(opencl_fault_report* report);
    /* The function of the at-th call that counted since the plan was made, from 1; NULL where there was none. */
    const char* (*function)(uint64_t at);
    /* With how many errors a function may fail. */
    uint32_t (*errors)(const char* function);
    /* Calls that are made while it is paused neither count nor fail. */
    void (*pause)(int32_t paused);
    /* Objects that were created or retained and not released, all kinds together. */
    int64_t (*live)(void);
    /* From then on devices say that they share no memory with the host, or what the driver says. */
    void (*hide_unified_memory)(int32_t hidden);
} opencl_faults;

#endif
