// An OpenCL layer (OPENCL_LAYERS of the ICD loader) under which PoCL's threaded device says that it is a GPU with
// memory of its own; all else of it, and all other devices, are as they are. With WINNOW_LAYER_ALONE there are no other
// devices. When the process ends, the file that WINNOW_LAYER_COUNTS names is given three numbers: how often the host
// waited for a queue, sent bytes to a device, and fetched some.
#include <CL/cl_layer.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const cl_icd_dispatch *driver;
static cl_icd_dispatch hooks;

static int is_threaded(cl_device_id device) {
    static const char prefix[] = "pthread";
    char name[256] = "";
    return driver->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
           strncmp(name, prefix, sizeof prefix - 1) == 0;
}

static atomic_ullong waits, sent, fetched;

// The threaded devices of a platform, counted before any is left out for want of room.
static cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room,
                                         cl_device_id *devices, cl_uint *count_ret) {
    if (getenv("WINNOW_LAYER_ALONE") == NULL) return driver->clGetDeviceIDs(platform, type, room, devices, count_ret);
    cl_device_id all[64];
    cl_uint count = 0, kept = 0;
    const cl_int code = driver->clGetDeviceIDs(platform, type, sizeof all / sizeof all[0], all, &count);
    if (code != CL_SUCCESS) return code;
    if (count > sizeof all / sizeof all[0]) return CL_OUT_OF_RESOURCES;
    for (cl_uint i = 0; i < count; ++i) {
        if (!is_threaded(all[i])) continue;
        if (devices != NULL && kept < room) devices[kept] = all[i];
        ++kept;
    }
    if (count_ret != NULL) *count_ret = kept;
    return kept > 0 ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

static cl_int CL_API_CALL finish(cl_command_queue queue) {
    ++waits;
    return driver->clFinish(queue);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem memory, cl_bool is_blocking, size_t offset,
                                       size_t size, const void *from, cl_uint count, const cl_event *list,
                                       cl_event *event) {
    ++sent;
    if (is_blocking) ++waits;
    return driver->clEnqueueWriteBuffer(queue, memory, is_blocking, offset, size, from, count, list, event);
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem memory, cl_bool is_blocking, size_t offset,
                                      size_t size, void *to, cl_uint count, const cl_event *list, cl_event *event) {
    ++fetched;
    if (is_blocking) ++waits;
    return driver->clEnqueueReadBuffer(queue, memory, is_blocking, offset, size, to, count, list, event);
}

__attribute__((destructor)) static void write_counts(void) {
    const char *const path = getenv("WINNOW_LAYER_COUNTS");
    FILE *const file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "%llu %llu %llu\n", (unsigned long long)waits, (unsigned long long)sent, (unsigned long long)fetched);
    fclose(file);
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t size, void *value,
                                          size_t *size_ret) {
    const cl_int code = driver->clGetDeviceInfo(device, what, size, value, size_ret);
    if (code != CL_SUCCESS || value == NULL || !is_threaded(device)) return code;
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    const cl_bool no = CL_FALSE;
    if (what == CL_DEVICE_TYPE) memcpy(value, &type, sizeof type);
    if (what == CL_DEVICE_HOST_UNIFIED_MEMORY) memcpy(value, &no, sizeof no);
    return code;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value, size_t *size_ret) {
    static const char name[] = "winnow discrete";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME) return CL_INVALID_VALUE;
    const void *from = what == CL_LAYER_NAME ? (const void *)name : (const void *)&version;
    const size_t needed = what == CL_LAYER_NAME ? sizeof name : sizeof version;
    if (value != NULL && size < needed) return CL_INVALID_VALUE;
    if (value != NULL) memcpy(value, from, needed);
    if (size_ret != NULL) *size_ret = needed;
    return CL_SUCCESS;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *target, cl_uint *own_entries,
                                                   const cl_icd_dispatch **own) {
    if (entries < sizeof hooks / sizeof(void *)) return CL_INVALID_VALUE;
    driver = target;
    hooks = *target;
    hooks.clGetDeviceInfo = get_device_info;
    hooks.clGetDeviceIDs = get_device_ids;
    hooks.clFinish = finish;
    hooks.clEnqueueWriteBuffer = write_buffer;
    hooks.clEnqueueReadBuffer = read_buffer;
    *own_entries = sizeof hooks / sizeof(void *);
    *own = &hooks;
    return CL_SUCCESS;
}
