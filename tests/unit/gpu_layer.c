/* An OpenCL layer (OPENCL_LAYERS of the ICD loader) under which processors say that they are GPUs, so that a context
 * chooses among all variants as it does there, and whose compiler is wrong where a test wishes: in each source it takes
 * one text, which the environment names, for another. */
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const cl_icd_dispatch* driver;
static cl_icd_dispatch hooks;

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t size, void* value,
                                          size_t* size_ret) {
    const cl_int code = driver->clGetDeviceInfo(device, what, size, value, size_ret);
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    if (code == CL_SUCCESS && value != NULL && what == CL_DEVICE_TYPE) memcpy(value, &type, sizeof type);
    return code;
}

/* Of a source in one piece, as the backend gives it. */
static cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts,
                                             const size_t* lengths, cl_int* code) {
    const char *const text = getenv("WINNOW_LAYER_TEXT"), *const taken_for = getenv("WINNOW_LAYER_TAKEN_FOR");
    if (text == NULL || taken_for == NULL || count != 1 || lengths == NULL)
        return driver->clCreateProgramWithSource(context, count, texts, lengths, code);
    char* const changed = malloc(lengths[0] + strlen(taken_for) + 1);
    if (changed == NULL) return driver->clCreateProgramWithSource(context, count, texts, lengths, code);
    memcpy(changed, texts[0], lengths[0]);
    changed[lengths[0]] = '\0';
    char* const at = strstr(changed, text);
    if (at != NULL) {
        memmove(at + strlen(taken_for), at + strlen(text), strlen(at + strlen(text)) + 1);
        memcpy(at, taken_for, strlen(taken_for));
    }
    const char* const whole = changed;
    const size_t length = strlen(changed);
    const cl_program program = driver->clCreateProgramWithSource(context, 1, (const char**)&whole, &length, code);
    free(changed);
    return program;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void* value, size_t* size_ret) {
    static const char name[] = "winnow gpu";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what != CL_LAYER_API_VERSION && what != CL_LAYER_NAME) return CL_INVALID_VALUE;
    const void* from = what == CL_LAYER_NAME ? (const void*)name : (const void*)&version;
    const size_t needed = what == CL_LAYER_NAME ? sizeof name : sizeof version;
    if (value != NULL && size < needed) return CL_INVALID_VALUE;
    if (value != NULL) memcpy(value, from, needed);
    if (size_ret != NULL) *size_ret = needed;
    return CL_SUCCESS;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* own_entries,
                                                   const cl_icd_dispatch** own) {
    if (entries < sizeof hooks / sizeof(void*)) return CL_INVALID_VALUE;
    driver = target;
    hooks = *target;
    hooks.clGetDeviceInfo = get_device_info;
    hooks.clCreateProgramWithSource = create_program;
    *own_entries = sizeof hooks / sizeof(void*);
    *own = &hooks;
    return CL_SUCCESS;
}
