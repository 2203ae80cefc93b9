/* A layer between the ICD loader and Oclgrind (OPENCL_LAYERS), which makes the host store buffers as a whole.
 *
 * What Oclgrind knows of the bytes that have a value is wrong for buffers of which the host stored a part: any store by
 * the host gives a buffer a record of that store's size alone, and a buffer that takes the place of a released one
 * inherits its record. So each buffer is stored whole when it is made, and again after each store of a part; the values
 * are those that it has. A kernel that stores what has no value is reported where it does. */
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <stdlib.h>
#include <string.h>

static const cl_icd_dispatch* driver;
static cl_icd_dispatch table;

static cl_int store_whole(cl_command_queue queue, cl_mem buffer) {
    size_t size = 0;
    cl_int code = driver->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    void* bytes = code == CL_SUCCESS ? malloc(size) : NULL;
    if (code == CL_SUCCESS && bytes == NULL) code = CL_OUT_OF_HOST_MEMORY;
    if (code == CL_SUCCESS) code = driver->clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS) code = driver->clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    free(bytes);
    return code;
}

static cl_int store_new(cl_context context, cl_mem buffer) {
    cl_device_id device = NULL;
    cl_int code = driver->clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL);
    cl_command_queue queue = NULL;
    if (code == CL_SUCCESS) queue = driver->clCreateCommandQueue(context, device, 0, &code);
    if (code == CL_SUCCESS) code = store_whole(queue, buffer);
    if (queue != NULL) driver->clReleaseCommandQueue(queue);
    return code;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* code) {
    cl_int status = CL_SUCCESS;
    cl_mem buffer = driver->clCreateBuffer(context, flags, size, host, &status);
    if (status == CL_SUCCESS) status = store_new(context, buffer);
    if (status != CL_SUCCESS && buffer != NULL) {
        driver->clReleaseMemObject(buffer);
        buffer = NULL;
    }
    if (code != NULL) *code = status;
    return buffer;
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                       size_t size, const void* bytes, cl_uint count, const cl_event* waited,
                                       cl_event* event) {
    const cl_int code =
        driver->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, bytes, count, waited, event);
    return code == CL_SUCCESS ? store_whole(queue, buffer) : code;
}

static cl_int CL_API_CALL fill_buffer(cl_command_queue queue, cl_mem buffer, const void* pattern, size_t pattern_size,
                                      size_t offset, size_t size, cl_uint count, const cl_event* waited,
                                      cl_event* event) {
    const cl_int code =
        driver->clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, count, waited, event);
    return code == CL_SUCCESS ? store_whole(queue, buffer) : code;
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void* value, size_t* needed) {
    static const char name[] = "whole stores for Oclgrind";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    const void* from = what == CL_LAYER_API_VERSION ? (const void*)&version : name;
    const size_t length = what == CL_LAYER_API_VERSION ? sizeof version : sizeof name;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME) return CL_INVALID_VALUE;
    if (value != NULL && size < length) return CL_INVALID_VALUE;
    if (value != NULL) memcpy(value, from, length);
    if (needed != NULL) *needed = length;
    return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret,
                                            const cl_icd_dispatch** table_ret) {
    const cl_uint whole = sizeof table / sizeof table.clGetPlatformIDs;
    if (target == NULL || count_ret == NULL || table_ret == NULL || count < whole) return CL_INVALID_VALUE;
    driver = target;
    table.clCreateBuffer = &create_buffer;
    table.clEnqueueWriteBuffer = &write_buffer;
    table.clEnqueueFillBuffer = &fill_buffer;
    *count_ret = whole;
    *table_ret = &table;
    return CL_SUCCESS;
}
