/* The operations on rows: their structs in every length, reserved fields, flags, and NULL. */
#include <string.h>

#include "abi.h"

/* One head, three rows of 16 numbers; the work rewrites the second one. */
typedef struct row_work {
    float source[48];
    uint32_t before[4];
    float target[48];
    uint32_t after[4];
    int32_t row[1];
    winnow_tensor source_view, target_view, one_row_view, row_view;
    LONGER(winnow_kv_requantize_desc) requantize;
    LONGER(winnow_kv_dequantize_desc) dequantize;
    LONGER(winnow_hadamard_desc) hadamard;
} row_work;

static winnow_tensor rows_of_16(void *data, int64_t rows) {
    winnow_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = data;
    tensor.shape[0] = tensor.shape[1] = 1;
    tensor.shape[2] = rows;
    tensor.shape[3] = 16;
    tensor.stride[2] = 64;
    tensor.stride[3] = 4;
    return tensor;
}

static void fill_target(row_work *work) {
    int i;
    for (i = 0; i < 48; ++i) work->target[i] = -77;
    for (i = 0; i < 4; ++i) work->before[i] = work->after[i] = 0xdeadbeefu;
}

static void prepare_rows(row_work *work) {
    int i;
    memset(work, 0, sizeof *work);
    for (i = 0; i < 48; ++i) work->source[i] = (float)i;
    fill_target(work);
    work->row[0] = 1;
    work->source_view = rows_of_16(work->source, 3);
    work->target_view = rows_of_16(work->target, 3);
    work->one_row_view = rows_of_16(work->target, 1);
    work->row_view = rows_of_16(work->row, 1);
    work->row_view.type = WINNOW_TYPE_I32;
    work->row_view.shape[3] = 1;
    work->requantize.first.struct_size = sizeof work->requantize.first;
    work->requantize.first.src = &work->source_view;
    work->requantize.first.dst = &work->target_view;
    work->requantize.first.row_indices = &work->row_view;
    work->dequantize.first.struct_size = sizeof work->dequantize.first;
    work->dequantize.first.src = &work->source_view;
    work->dequantize.first.dst = &work->one_row_view;
    work->dequantize.first.row_indices = &work->row_view;
    work->hadamard.first.struct_size = sizeof work->hadamard.first;
    work->hadamard.first.src = &work->source_view;
    work->hadamard.first.dst = &work->target_view;
}

/* Which elements of target hold something else than before, as the first and one past the last. -1: a canary fell. */
static int changed_from(const row_work *work, int *end) {
    int i, first = 48;
    *end = 0;
    for (i = 0; i < 4; ++i)
        if (work->before[i] != 0xdeadbeefu || work->after[i] != 0xdeadbeefu) return -1;
    for (i = 0; i < 48; ++i) {
        if (work->target[i] == -77) continue;
        if (first == 48) first = i;
        *end = i + 1;
    }
    return first;
}

/* The status, or a contradiction where `supports` and the call disagree, a refused call wrote, or a good one wrote
 * elsewhere. */
static int32_t conclude(const abi_backend *backend, row_work *work, int32_t supported, int32_t status, int begin,
                        int end) {
    int last = 0, first = 0;
    if (supported != status || backend->api->finish(backend->context) != WINNOW_OK) return ABI_CONTRADICTION;
    first = changed_from(work, &last);
    fill_target(work);
    if (status != WINNOW_OK) return first == 48 ? status : ABI_CONTRADICTION;
    return first == begin && last == end ? status : ABI_CONTRADICTION;
}

static int32_t call_requantize(const abi_backend *backend, void *data) {
    row_work *work = (row_work *)data;
    const winnow_kv_requantize_desc *desc = &work->requantize.first;
    const int32_t supported = backend->api->supports(backend->context, WINNOW_OPERATION_KV_REQUANTIZE, desc, NULL, 0);
    const int32_t status = backend->api->kv_requantize(backend->context, desc, NULL);
    return conclude(backend, work, supported, status, 16, 32);
}
static int32_t call_dequantize(const abi_backend *backend, void *data) {
    row_work *work = (row_work *)data;
    const winnow_kv_dequantize_desc *desc = &work->dequantize.first;
    const int32_t supported = backend->api->supports(backend->context, WINNOW_OPERATION_KV_DEQUANTIZE, desc, NULL, 0);
    const int32_t status = backend->api->kv_dequantize(backend->context, desc, NULL);
    return conclude(backend, work, supported, status, 0, 16);
}
static int32_t call_hadamard(const abi_backend *backend, void *data) {
    row_work *work = (row_work *)data;
    const winnow_hadamard_desc *desc = &work->hadamard.first;
    const int32_t supported = backend->api->supports(backend->context, WINNOW_OPERATION_HADAMARD, desc, NULL, 0);
    const int32_t status = backend->api->hadamard(backend->context, desc, NULL);
    return conclude(backend, work, supported, status, 0, 48);
}

/* One of the operations, its struct in every length, its reserved field and its flags. */
static void check_operation(abi_run *run, const abi_backend *backend, const abi_read_case *what, uint32_t *flags,
                            uint32_t *reserved) {
    const int32_t status = what->call(backend, what->data);
    if (!run->is_complete && (status == WINNOW_ERROR_UNIMPLEMENTED || status == WINNOW_ERROR_UNSUPPORTED)) return;
    if (!EXPECT_STATUS(status, WINNOW_OK)) return;
    abi_check_read(run, backend, what);
    *flags = 1;
    abi_about(run, "%s, flags 1", what->name);
    EXPECT_CALL(what->call(backend, what->data), WINNOW_ERROR_UNSUPPORTED);
    *flags = 0;
    if (reserved) {
        *reserved = 1;
        abi_about(run, "%s, reserved 1", what->name);
        EXPECT_CALL(what->call(backend, what->data), WINNOW_ERROR_INVALID_ARGUMENT);
        *reserved = 0;
    }
    abi_about(run, "");
}

/* A backend that does not have an operation may say so before it looks at the arguments. */
static int32_t as_invalid(const abi_run *run, int32_t status) {
    const int is_missing = !run->is_complete && status == WINNOW_ERROR_UNIMPLEMENTED;
    return is_missing ? WINNOW_ERROR_INVALID_ARGUMENT : status;
}
#define EXPECT_INVALID(call)                                                                                           \
    abi_expect_status(run, as_invalid(run, (call)), WINNOW_ERROR_INVALID_ARGUMENT, #call, __FILE__, __LINE__)

static void check_row_bytes(abi_run *run, const winnow_api *api) {
    const int32_t invalid = WINNOW_ERROR_INVALID_ARGUMENT;
    uint64_t bytes = 77;
    char message[8];
    size_t size;
    const int32_t status = api->row_bytes(WINNOW_TYPE_F16, 5, &bytes, NULL, 0);
    if (!run->is_complete && status == WINNOW_ERROR_UNIMPLEMENTED) return;
    EXPECT_STATUS(status, WINNOW_OK);
    EXPECT(bytes == 10);
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_Q8_0, 64, &bytes, NULL, 0), WINNOW_OK);
    EXPECT(bytes == 68);
    bytes = 77;
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_Q8_0, 48, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_Q8_0, 0, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_Q8_0, -32, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(0, 32, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(23, 32, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_VENDOR, 32, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(UINT32_MAX, 32, &bytes, NULL, 0), invalid);
    EXPECT_STATUS(api->row_bytes(WINNOW_TYPE_F16, 5, NULL, NULL, 0), invalid);
    EXPECT(bytes == 77);
    for (size = 0; size < sizeof message; ++size) {
        memset(message, '#', sizeof message);
        EXPECT_STATUS(api->row_bytes(0, 32, &bytes, message, size), invalid);
        EXPECT(message[size] == '#' && (size == 0 || memchr(message, 0, size) != NULL));
    }
}

/* A type of another vendor's is refused, and the message has its number. */
static void check_unknown_type(abi_run *run, const abi_backend *backend, row_work *work) {
    const uint32_t type = work->source_view.type;
    work->source_view.type = WINNOW_TYPE_VENDOR;
    EXPECT_STATUS(call_hadamard(backend, work), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT(strstr(backend->api->context_message(backend->context), "2147483648 (unknown)") != NULL);
    work->source_view.type = type;
}

static void check_null(abi_run *run, const abi_backend *backend, row_work *work) {
    const winnow_api *api = backend->api;
    winnow_context *context = backend->context;
    winnow_event *event = NULL;
    EXPECT_INVALID(api->supports(NULL, WINNOW_OPERATION_KV_REQUANTIZE, &work->requantize.first, NULL, 0));
    EXPECT_INVALID(api->supports(context, WINNOW_OPERATION_KV_REQUANTIZE, NULL, NULL, 0));
    EXPECT_INVALID(api->supports(NULL, WINNOW_OPERATION_KV_DEQUANTIZE, &work->dequantize.first, NULL, 0));
    EXPECT_INVALID(api->supports(context, WINNOW_OPERATION_KV_DEQUANTIZE, NULL, NULL, 0));
    EXPECT_INVALID(api->supports(NULL, WINNOW_OPERATION_HADAMARD, &work->hadamard.first, NULL, 0));
    EXPECT_INVALID(api->supports(context, WINNOW_OPERATION_HADAMARD, NULL, NULL, 0));
    EXPECT_INVALID(api->kv_requantize(NULL, &work->requantize.first, &event));
    EXPECT_INVALID(api->kv_requantize(context, NULL, &event));
    EXPECT_INVALID(api->kv_dequantize(NULL, &work->dequantize.first, &event));
    EXPECT_INVALID(api->kv_dequantize(context, NULL, &event));
    EXPECT_INVALID(api->hadamard(NULL, &work->hadamard.first, &event));
    EXPECT_INVALID(api->hadamard(context, NULL, &event));
    EXPECT(event == NULL);
}

static void check_stats(abi_run *run, const abi_backend *backend, row_work *work) {
    winnow_stats before, after;
    memset(&before, 0, sizeof before);
    before.struct_size = sizeof before;
    after = before;
    EXPECT_STATUS(backend->api->context_stats(backend->context, &before), WINNOW_OK);
    if (call_requantize(backend, work) != WINNOW_OK) return; /* reported already where it had to work */
    EXPECT_STATUS(backend->api->context_stats(backend->context, &after), WINNOW_OK);
    EXPECT(after.rows_requantized == before.rows_requantized + 1);
}

void check_row_operations(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    abi_read_case what;
    row_work work;
    memset(&what, 0, sizeof what);
    if (backend.api) {
        prepare_rows(&work);
        what.data = &work;
        what.name = "winnow_kv_requantize_desc";
        what.struct_size = &work.requantize.first.struct_size;
        what.ours = sizeof work.requantize.first;
        what.tail = work.requantize.tail;
        what.call = call_requantize;
        check_operation(run, &backend, &what, &work.requantize.first.flags, &work.requantize.first.reserved);
        what.name = "winnow_kv_dequantize_desc";
        what.struct_size = &work.dequantize.first.struct_size;
        what.ours = sizeof work.dequantize.first;
        what.tail = work.dequantize.tail;
        what.call = call_dequantize;
        check_operation(run, &backend, &what, &work.dequantize.first.flags, NULL);
        what.name = "winnow_hadamard_desc";
        what.struct_size = &work.hadamard.first.struct_size;
        what.ours = sizeof work.hadamard.first;
        what.tail = work.hadamard.tail;
        what.call = call_hadamard;
        check_operation(run, &backend, &what, &work.hadamard.first.flags, &work.hadamard.first.reserved);
        check_row_bytes(run, backend.api);
        if (run->is_complete) check_unknown_type(run, &backend, &work);
        check_null(run, &backend, &work);
        check_stats(run, &backend, &work);
    }
    abi_close(run, &backend);
}
