/* A backend that offers a part of another: the object that WINNOW_PARTIAL_OF names, without its further tables and
 * without what the words of WINNOW_PARTIAL_LACKS name:
 *
 *   rows        kv_requantize, kv_dequantize and hadamard return WINNOW_ERROR_UNIMPLEMENTED
 *   row_bytes   so does row_bytes
 *   packed      a description with a packed type gets WINNOW_ERROR_UNSUPPORTED, before anything else of it is looked at
 *   most        with packed: but for q8_0 and q4_0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "winnow.h"

static winnow_api whole, partial;
static int lacks_rows, lacks_packed, lacks_most;

static int lacks(const char* what) {
    const char* const all = getenv("WINNOW_PARTIAL_LACKS");
    return all != NULL && strstr(all, what) != NULL;
}

static int is_left_out(const winnow_tensor* tensor) {
    if (!lacks_packed || tensor == NULL || tensor->type < WINNOW_TYPE_Q8_0 || tensor->type > WINNOW_TYPE_SPARSE8)
        return 0;
    return !lacks_most || (tensor->type != WINNOW_TYPE_Q8_0 && tensor->type != WINNOW_TYPE_Q4_0);
}

/* The other backend refuses a flag that it does not know as UNSUPPORTED, and has a message for it. */
#define REFUSABLE(type, a, b)                                                                                          \
    static const type* refusable_##type(const type* desc, type* copy) {                                                \
        if (desc == NULL || desc->struct_size < sizeof *desc || !(is_left_out(desc->a) || is_left_out(desc->b)))       \
            return desc;                                                                                               \
        memset(copy, 0, sizeof *copy);                                                                                 \
        copy->struct_size = sizeof *copy;                                                                              \
        copy->flags = 0x80000000u;                                                                                     \
        return copy;                                                                                                   \
    }
REFUSABLE(winnow_sdpa_desc, k, v)
REFUSABLE(winnow_kv_append_desc, k_cache, v_cache)
REFUSABLE(winnow_kv_requantize_desc, src, dst)
REFUSABLE(winnow_kv_dequantize_desc, src, dst)

#define OPERATION(name)                                                                                                \
    static int32_t WINNOW_CALL name(winnow_context* context, const winnow_##name##_desc* desc, winnow_event** event) { \
        winnow_##name##_desc copy;                                                                                     \
        return whole.name(context, refusable_winnow_##name##_desc(desc, &copy), event);                                \
    }
OPERATION(sdpa)
OPERATION(kv_append)
OPERATION(kv_requantize)
OPERATION(kv_dequantize)

static int32_t WINNOW_CALL supports(winnow_context* context, uint32_t operation, const void* desc, char* message,
                                    size_t message_size) {
    winnow_sdpa_desc sdpa_copy;
    winnow_kv_append_desc append_copy;
    winnow_kv_requantize_desc requantize_copy;
    winnow_kv_dequantize_desc dequantize_copy;
    if (lacks_rows && operation >= WINNOW_OPERATION_KV_REQUANTIZE && operation <= WINNOW_OPERATION_HADAMARD)
        return WINNOW_ERROR_UNIMPLEMENTED;
    if (operation == WINNOW_OPERATION_SDPA)
        desc = refusable_winnow_sdpa_desc((const winnow_sdpa_desc*)desc, &sdpa_copy);
    else if (operation == WINNOW_OPERATION_KV_APPEND)
        desc = refusable_winnow_kv_append_desc((const winnow_kv_append_desc*)desc, &append_copy);
    else if (operation == WINNOW_OPERATION_KV_REQUANTIZE)
        desc = refusable_winnow_kv_requantize_desc((const winnow_kv_requantize_desc*)desc, &requantize_copy);
    else if (operation == WINNOW_OPERATION_KV_DEQUANTIZE)
        desc = refusable_winnow_kv_dequantize_desc((const winnow_kv_dequantize_desc*)desc, &dequantize_copy);
    return whole.supports(context, operation, desc, message, message_size);
}

static int32_t WINNOW_CALL no_requantize(winnow_context* context, const winnow_kv_requantize_desc* desc,
                                         winnow_event** event) {
    (void)context, (void)desc, (void)event;
    return WINNOW_ERROR_UNIMPLEMENTED;
}

static int32_t WINNOW_CALL no_dequantize(winnow_context* context, const winnow_kv_dequantize_desc* desc,
                                         winnow_event** event) {
    (void)context, (void)desc, (void)event;
    return WINNOW_ERROR_UNIMPLEMENTED;
}

static int32_t WINNOW_CALL no_hadamard(winnow_context* context, const winnow_hadamard_desc* desc,
                                       winnow_event** event) {
    (void)context, (void)desc, (void)event;
    return WINNOW_ERROR_UNIMPLEMENTED;
}

static int32_t WINNOW_CALL no_row_bytes(uint32_t type, int64_t elements, uint64_t* bytes, char* message,
                                        size_t message_size) {
    (void)type, (void)elements, (void)bytes, (void)message, (void)message_size;
    return WINNOW_ERROR_UNIMPLEMENTED;
}

static int32_t WINNOW_CALL get_table(const char* name, uint32_t version, const void** table, char* message,
                                     size_t message_size) {
    (void)version, (void)table;
    if (name == NULL) return WINNOW_ERROR_INVALID_ARGUMENT;
    if (message != NULL) snprintf(message, message_size, "there is no table %s", name);
    return WINNOW_ERROR_UNIMPLEMENTED;
}

int32_t WINNOW_CALL winnow_get_api(const winnow_host_info* host, const winnow_api** api, char* message,
                                   size_t message_size) {
    const char* const path = getenv("WINNOW_PARTIAL_OF");
    void* const object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    winnow_get_api_fn get_api = NULL;
    int32_t status;
    if (object == NULL) {
        if (message != NULL) snprintf(message, message_size, "WINNOW_PARTIAL_OF names no backend");
        return WINNOW_ERROR_NOT_FOUND;
    }
    *(void**)&get_api = dlsym(object, "winnow_get_api");
    status = get_api(host, api, message, message_size);
    if (status != WINNOW_OK) return status;
    lacks_rows = lacks("rows"), lacks_packed = lacks("packed"), lacks_most = lacks("most");
    whole = partial = **api;
    partial.get_table = get_table;
    partial.supports = supports;
    partial.sdpa = sdpa;
    partial.kv_append = kv_append;
    partial.kv_requantize = lacks_rows ? no_requantize : kv_requantize;
    partial.kv_dequantize = lacks_rows ? no_dequantize : kv_dequantize;
    if (lacks_rows) partial.hadamard = no_hadamard;
    if (lacks("row_bytes")) partial.row_bytes = no_row_bytes;
    *api = &partial;
    return WINNOW_OK;
}
