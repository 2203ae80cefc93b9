/* winnow_opencl.h - a host's own OpenCL objects in Winnow, and Winnow's in a host.
 *
 * OpenCL's headers are not needed: its objects are void * here. Records go into the chain `next` of a description. A
 * backend that does not compute with OpenCL has no table of this name. It refuses a record with
 * WINNOW_EXTENSION_REQUIRED, and passes over one without.
 */
#ifndef WINNOW_OPENCL_H
#define WINNOW_OPENCL_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Extension records -------------------------------------------------------------------------------- */

#define WINNOW_EXTENSION_OPENCL_OBJECTS 1 /* of winnow_context_desc */
#define WINNOW_EXTENSION_OPENCL_MEMORY 2  /* of winnow_buffer_desc */

/* The objects that a context computes with, all of them the host's; winnow_context_desc.device is NULL then. They are
 * retained until context_destroy. The queue must be in order, and where `launched` is given, must have
 * CL_QUEUE_PROFILING_ENABLE. */
typedef struct winnow_opencl_objects {
    winnow_extension extension; /* type WINNOW_EXTENSION_OPENCL_OBJECTS */
    void *context;              /* cl_context */
    void *device;               /* cl_device_id */
    void *queue;                /* cl_command_queue */
} winnow_opencl_objects;

/* The memory of a buffer whose kind is WINNOW_BUFFER_IMPORT_DEVICE. */
typedef struct winnow_opencl_memory {
    winnow_extension extension; /* type WINNOW_EXTENSION_OPENCL_MEMORY */
    void *memory;               /* a cl_mem of the context's cl_context, retained until buffer_destroy */
    uint64_t offset;            /* byte of it at which the buffer begins */
} winnow_opencl_memory;

/* ---- The table ---------------------------------------------------------------------------------------- */

/* get_table gives it by this name and version. */
#define WINNOW_OPENCL_TABLE "winnow_opencl"
#define WINNOW_OPENCL_VERSION WINNOW_MAKE_VERSION(0, 9)

/* No slot is NULL. Later versions append. */
typedef struct winnow_opencl_api {
    uint32_t struct_size;
    uint32_t version;

    /* Later operations of the context wait for a cl_event of the host's, which is retained until a wait finds it over.
     * If the event fails, the results of those operations are undefined: their events, and the next finish, buffer_read
     * or other call that waits, return WINNOW_ERROR_DEVICE; what destroys a buffer or a cache leaves that to a later
     * call. If the event has failed already, wait_event itself returns WINNOW_ERROR_DEVICE. */
    int32_t(WINNOW_CALL *wait_event)(winnow_context *context, void *cl_event);
    /* The cl_event of an event, borrowed until event_destroy. */
    int32_t(WINNOW_CALL *get_event)(winnow_event *event, void **cl_event);

    /* The cl_mem of a buffer of any kind, borrowed until buffer_destroy, and the byte of it at which the buffer begins.
     * Commands on the context's queue run in one order with the context's operations; for commands on another queue
     * get_event and wait_event make the order. Before buffer_read, buffer_write and buffer_destroy the host waits for
     * its commands on the memory, or gives the event of the last one to wait_event. WINNOW_ERROR_UNSUPPORTED in a
     * context that computes on several queues (parallel_for), which has no single cl_context. */
    int32_t(WINNOW_CALL *get_memory)(winnow_buffer *buffer, void **cl_mem, uint64_t *offset);
    /* The 16 bytes that other interfaces, such as Vulkan, know the context's device by (CL_DEVICE_UUID_KHR).
     * WINNOW_ERROR_UNSUPPORTED where the driver does not tell them, which is an answer and is not logged. */
    int32_t(WINNOW_CALL *device_uuid)(winnow_context *context, uint8_t uuid[16]);
} winnow_opencl_api;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* WINNOW_OPENCL_H */
