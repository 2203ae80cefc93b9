/* An OpenCL driver with one device, which answers what a list of devices asks, and nothing else. With
 * STUB_WITHOUT_DEVICE it offers none; with STUB_TAGGED its platform says that the ICD loader manages it
 * (cl_khr_icd 2.0). */
#include <CL/cl_icd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static cl_icd_dispatch table;

struct _cl_platform_id {
    const cl_icd_dispatch* dispatch;
};
struct _cl_device_id {
    const cl_icd_dispatch* dispatch;
};
static struct _cl_platform_id platform = {&table};
static struct _cl_device_id device = {&table};

static cl_int answer(const void* from, size_t bytes, size_t size, void* value, size_t* size_ret) {
    if (value != NULL && size < bytes) return CL_INVALID_VALUE;
    if (value != NULL) memcpy(value, from, bytes);
    if (size_ret != NULL) *size_ret = bytes;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_platform_info(cl_platform_id asked, cl_platform_info what, size_t size, void* value,
                                            size_t* size_ret) {
    const char* const text = what == CL_PLATFORM_EXTENSIONS       ? "cl_khr_icd"
                             : what == CL_PLATFORM_ICD_SUFFIX_KHR ? "STUB"
                             : what == CL_PLATFORM_VERSION        ? "OpenCL 3.0 stub"
                                                                  : "Stub";
    return asked == &platform ? answer(text, strlen(text) + 1, size, value, size_ret) : CL_INVALID_PLATFORM;
}

static cl_int CL_API_CALL get_device_ids(cl_platform_id asked, cl_device_type type, cl_uint entries,
                                         cl_device_id* devices, cl_uint* count) {
    if (asked != &platform) return CL_INVALID_PLATFORM;
#ifdef STUB_WITHOUT_DEVICE
    return CL_DEVICE_NOT_FOUND;
#endif
    if ((type & CL_DEVICE_TYPE_CPU) == 0) return CL_DEVICE_NOT_FOUND;
    if (devices != NULL && entries > 0) devices[0] = &device;
    if (count != NULL) *count = 1;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device_info(cl_device_id asked, cl_device_info what, size_t size, void* value,
                                          size_t* size_ret) {
    static const char text[] = "OpenCL 3.0 stub";
    static const char extensions[] = "cl_khr_device_uuid";
    const cl_device_type type = CL_DEVICE_TYPE_CPU;
    const cl_platform_id of = &platform;
    const cl_ulong number = 1;
    if (asked != &device) return CL_INVALID_DEVICE;
    switch (what) {
    case CL_DEVICE_NAME:
    case CL_DEVICE_VENDOR:
    case CL_DEVICE_VERSION:
    case CL_DRIVER_VERSION: return answer(text, sizeof text, size, value, size_ret);
    case CL_DEVICE_EXTENSIONS: return answer(extensions, sizeof extensions, size, value, size_ret);
    case CL_DEVICE_UUID_KHR: return answer("0123456789abcdef", CL_UUID_SIZE_KHR, size, value, size_ret);
    case CL_DEVICE_PLATFORM: return answer(&of, sizeof of, size, value, size_ret);
    case CL_DEVICE_TYPE: return answer(&type, sizeof type, size, value, size_ret);
    default: /* numbers and truths, in as many bytes as are asked for */
        return answer(&number, size < sizeof number ? size : sizeof number, size, value, size_ret);
    }
}

static cl_int CL_API_CALL list_platforms(cl_uint entries, cl_platform_id* platforms, cl_uint* count) {
    table.clGetPlatformInfo = get_platform_info;
    table.clGetDeviceIDs = get_device_ids;
    table.clGetDeviceInfo = get_device_info;
#ifdef STUB_TAGGED
    const uintptr_t tag = (uintptr_t)0x4F50454E434C3331;
    memcpy(&table.clGetPlatformIDs, &tag, sizeof tag);
#endif
    if (platforms != NULL && entries > 0) platforms[0] = &platform;
    if (count != NULL) *count = 1;
    return CL_SUCCESS;
}

EXPORT void* CL_API_CALL clGetExtensionFunctionAddress(const char* name) {
    cl_int(CL_API_CALL* const list)(cl_uint, cl_platform_id*, cl_uint*) = list_platforms;
    cl_int(CL_API_CALL* const info)(cl_platform_id, cl_platform_info, size_t, void*, size_t*) = get_platform_info;
    void* address = NULL;
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) memcpy(&address, &list, sizeof address);
    if (strcmp(name, "clGetPlatformInfo") == 0) memcpy(&address, &info, sizeof address); /* for ocl-icd */
    return address;
}
