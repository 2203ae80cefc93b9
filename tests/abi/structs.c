/* Structs that are shorter or longer than ours, chains of extensions, and NULL wherever an argument can be. */
#include <string.h>

#include "abi.h"

/* ---- Structs that the backend fills -------------------------------------------------------------------------------
 */

static int32_t fill_device_info(const abi_backend *backend, void *target) {
    return backend->api->device_info(0, (winnow_device_info *)target, NULL, 0);
}
static int32_t fill_context_info(const abi_backend *backend, void *target) {
    return backend->api->context_info(backend->context, (winnow_device_info *)target);
}
static int32_t fill_stats(const abi_backend *backend, void *target) {
    return backend->api->context_stats(backend->context, (winnow_stats *)target);
}

/* The call fills a struct of `given` bytes; what is unknown to it is zero, and nothing beyond is touched. */
static void check_filled(abi_run *run, const abi_backend *backend, abi_fill_function fill, const char *name,
                         uint32_t given, uint32_t known, int32_t want) {
    union {
        uint32_t struct_size;
        uint64_t alignment;
        unsigned char bytes[1024];
    } target;
    uint32_t at;
    int32_t status, is_zeroed, is_untouched;
    memset(&target, 0xa7, sizeof target);
    target.struct_size = given;
    status = fill(backend, &target);
    abi_about(run, "%s, struct_size %u of %u known bytes", name, (unsigned)given, (unsigned)known);
    EXPECT_STATUS(status, want);
    EXPECT(target.struct_size == given);
    for (at = known; status == WINNOW_OK && at < given; ++at)
        if (target.bytes[at] != 0) break;
    is_zeroed = status != WINNOW_OK || at >= given;
    abi_about(run, "%s, struct_size %u: byte %u is unknown to the backend and has to be 0", name, (unsigned)given,
              (unsigned)at);
    EXPECT(is_zeroed);
    for (at = status == WINNOW_OK ? given : 4; at < sizeof target; ++at)
        if (target.bytes[at] != 0xa7) break;
    is_untouched = at == sizeof target;
    abi_about(run, "%s, struct_size %u, status %d: byte %u was written", name, (unsigned)given, (int)status,
              (unsigned)at);
    EXPECT(is_untouched);
    abi_about(run, "");
}

void abi_check_fill(abi_run *run, const abi_backend *backend, abi_fill_function fill, const char *name, uint32_t ours) {
    uint32_t given;
    for (given = 0; given < ours; ++given)
        check_filled(run, backend, fill, name, given, ours, WINNOW_ERROR_INVALID_ARGUMENT);
    check_filled(run, backend, fill, name, ours, ours, WINNOW_OK);
    check_filled(run, backend, fill, name, ours + 8, ours, WINNOW_OK);
    check_filled(run, backend, fill, name, ours + 32, ours, WINNOW_OK);
}

void check_output_structs(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    const uint32_t of_device_info = sizeof(winnow_device_info);
    const uint32_t of_stats = sizeof(winnow_stats);
    uint32_t count = 0;
    winnow_device_info info;
    if (backend.api) {
        EXPECT_STATUS(backend.api->device_count(&count, NULL, 0), WINNOW_OK);
        if (count > 0)
            abi_check_fill(run, &backend, fill_device_info, "winnow_device_info of device_info", of_device_info);
        abi_check_fill(run, &backend, fill_context_info, "winnow_device_info of context_info", of_device_info);
        abi_check_fill(run, &backend, fill_stats, "winnow_stats", of_stats);
        memset(&info, 0xff, sizeof info);
        info.struct_size = sizeof info;
        EXPECT_STATUS(backend.api->context_info(backend.context, &info), WINNOW_OK);
        EXPECT(memchr(info.name, 0, sizeof info.name) != NULL && info.name[0] != 0);
        EXPECT(memchr(info.vendor, 0, sizeof info.vendor) != NULL);
        EXPECT(memchr(info.platform, 0, sizeof info.platform) != NULL);
        EXPECT(memchr(info.driver_version, 0, sizeof info.driver_version) != NULL);
        EXPECT(memchr(info.kernel_shape, 0, sizeof info.kernel_shape) != NULL && info.kernel_shape[0] != 0);
        EXPECT(info.type >= WINNOW_DEVICE_CPU && info.type <= WINNOW_DEVICE_ACCELERATOR);
        EXPECT(info.memory_size > 0 && info.max_allocation_size > 0 && info.compute_units > 0);
    }
    abi_close(run, &backend);
}

/* ---- Structs that the backend reads -------------------------------------------------------------------------------
 */

/* A struct of this size is given; where `byte` is one of the tail, it is 1. */
static void check_read(abi_run *run, const abi_backend *backend, const abi_read_case *what, uint32_t size, int byte,
                       int32_t want) {
    abi_about(run, "%s, struct_size %u of %u known bytes", what->name, (unsigned)size, (unsigned)what->ours);
    if (byte >= 0) {
        abi_about(run, "%s, struct_size %u of %u known bytes, byte %u is 1", what->name, (unsigned)size,
                  (unsigned)what->ours, (unsigned)what->ours + (unsigned)byte);
        what->tail[byte] = 1;
    }
    *what->struct_size = size;
    EXPECT_CALL(what->call(backend, what->data), want);
    if (byte >= 0) what->tail[byte] = 0;
    abi_about(run, "");
}

/* Each length in turn; the last call is a good one again. */
void abi_check_read(abi_run *run, const abi_backend *backend, const abi_read_case *what) {
    const uint32_t ours = what->ours;
    uint32_t size;
    for (size = 0; size < ours; ++size) check_read(run, backend, what, size, -1, WINNOW_ERROR_INVALID_ARGUMENT);
    check_read(run, backend, what, UINT32_MAX, -1, WINNOW_ERROR_INVALID_ARGUMENT);
    check_read(run, backend, what, ours + 24, 0, WINNOW_ERROR_UNSUPPORTED);
    check_read(run, backend, what, ours + 24, 23, WINNOW_ERROR_UNSUPPORTED);
    check_read(run, backend, what, ours + 24, -1, WINNOW_OK);
    check_read(run, backend, what, ours, 0, WINNOW_OK); /* beyond struct_size: none of the backend's business */
}

static int32_t call_context(const abi_backend *backend, void *data) {
    winnow_context *context = NULL;
    const int32_t status = backend->api->context_create((const winnow_context_desc *)data, &context, NULL, 0);
    if (status != WINNOW_OK) return context == NULL ? status : ABI_CONTRADICTION;
    return backend->api->context_destroy(context);
}
static int32_t call_buffer(const abi_backend *backend, void *data) {
    winnow_buffer *buffer = NULL;
    const int32_t status = backend->api->buffer_create(backend->context, (const winnow_buffer_desc *)data, &buffer);
    if (status != WINNOW_OK) return buffer == NULL ? status : ABI_CONTRADICTION;
    return backend->api->buffer_destroy(buffer);
}
/* A contradiction where `supports` and the call do not agree, and where a refused call changed an output. */
static int32_t call_work(const abi_backend *backend, void *data, const winnow_sdpa_desc *sdpa,
                         const winnow_kv_append_desc *append) {
    abi_work *work = (abi_work *)data;
    const uint32_t operation = sdpa ? WINNOW_OPERATION_SDPA : WINNOW_OPERATION_KV_APPEND;
    const void *desc = sdpa ? (const void *)sdpa : (const void *)append;
    const int32_t supported = backend->api->supports(backend->context, operation, desc, NULL, 0);
    const int32_t status = sdpa ? backend->api->sdpa(backend->context, sdpa, NULL)
                                : backend->api->kv_append(backend->context, append, NULL);
    if (supported != status || backend->api->finish(backend->context) != WINNOW_OK) return ABI_CONTRADICTION;
    if (status != WINNOW_OK && !abi_is_untouched(work)) return ABI_CONTRADICTION;
    if (status == WINNOW_OK) abi_prepare(work);
    return status;
}

typedef struct longer_work {
    abi_work work;
    LONGER(winnow_sdpa_desc) sdpa;
    LONGER(winnow_kv_append_desc) append;
    LONGER(winnow_tensor) tensor; /* stands for q, or for the cache */
} longer_work;

static int32_t call_sdpa(const abi_backend *backend, void *data) {
    longer_work *longer = (longer_work *)data;
    return call_work(backend, &longer->work, &longer->sdpa.first, NULL);
}
static int32_t call_append(const abi_backend *backend, void *data) {
    longer_work *longer = (longer_work *)data;
    return call_work(backend, &longer->work, NULL, &longer->append.first);
}

/* What a struct_size cuts in two is not read: half an address, or half a number. */
static void check_half_a_pointer(abi_run *run, const abi_backend *backend, const abi_work *of) {
    abi_work work = *of;
    const uint32_t ours = sizeof work.sdpa;
    uint32_t short_by;
    abi_prepare(&work);
    memset(&work.sdpa.q_offsets, 0xee, sizeof work.sdpa.q_offsets);
    for (short_by = 1; short_by <= sizeof work.sdpa.q_offsets; ++short_by) {
        work.sdpa.struct_size = ours - short_by;
        abi_about(run, "winnow_sdpa_desc, struct_size %u cuts q_offsets", (unsigned)(ours - short_by));
        EXPECT_STATUS(call_work(backend, &work, &work.sdpa, NULL), WINNOW_ERROR_INVALID_ARGUMENT);
    }
    abi_about(run, "");
}

void check_input_structs(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    LONGER(winnow_context_desc) context;
    LONGER(winnow_buffer_desc) buffer;
    longer_work longer;
    abi_read_case what;
    memset(&what, 0, sizeof what);
    if (backend.api) {
        memset(&context, 0, sizeof context);
        context.first.device = run->device;
        what.name = "winnow_context_desc";
        what.struct_size = &context.first.struct_size;
        what.ours = sizeof context.first;
        what.tail = context.tail;
        what.call = call_context;
        what.data = &context;
        abi_check_read(run, &backend, &what);

        memset(&buffer, 0, sizeof buffer);
        buffer.first.kind = WINNOW_BUFFER_ALLOCATE;
        buffer.first.size = 16;
        what.name = "winnow_buffer_desc";
        what.struct_size = &buffer.first.struct_size;
        what.ours = sizeof buffer.first;
        what.tail = buffer.tail;
        what.call = call_buffer;
        what.data = &buffer;
        abi_check_read(run, &backend, &what);

        memset(&longer, 0, sizeof longer);
        abi_prepare(&longer.work);
        longer.sdpa.first = longer.work.sdpa;
        longer.append.first = longer.work.append;
        what.name = "winnow_sdpa_desc";
        what.struct_size = &longer.sdpa.first.struct_size;
        what.ours = sizeof longer.sdpa.first;
        what.tail = longer.sdpa.tail;
        what.call = call_sdpa;
        what.data = &longer;
        abi_check_read(run, &backend, &what);
        what.name = "winnow_kv_append_desc";
        what.struct_size = &longer.append.first.struct_size;
        what.ours = sizeof longer.append.first;
        what.tail = longer.append.tail;
        what.call = call_append;
        abi_check_read(run, &backend, &what);
        check_half_a_pointer(run, &backend, &longer.work);

        longer.tensor.first = longer.work.q_view;
        longer.sdpa.first.q = &longer.tensor.first;
        what.name = "winnow_tensor q of sdpa";
        what.struct_size = &longer.tensor.first.struct_size;
        what.ours = sizeof longer.tensor.first;
        what.tail = longer.tensor.tail;
        what.call = call_sdpa;
        abi_check_read(run, &backend, &what);
        longer.tensor.first = longer.work.cache_view;
        longer.append.first.k_cache = &longer.tensor.first;
        what.name = "winnow_tensor k_cache of kv_append";
        what.call = call_append;
        abi_check_read(run, &backend, &what);
    }
    abi_close(run, &backend);
}

/* ---- Extensions ---------------------------------------------------------------------------------------------------
 */

void check_extension_chains(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    winnow_extension first, second;
    winnow_context_desc context;
    winnow_buffer_desc buffer;
    abi_work work;
    int is_required;
    if (backend.api) {
        memset(&first, 0, sizeof first);
        first.struct_size = sizeof first;
        first.type = 0x7ffffff1u;
        first.next = &second;
        second = first;
        second.type = 0x7ffffff2u;
        second.next = NULL;
        memset(&context, 0, sizeof context);
        context.struct_size = sizeof context;
        context.device = run->device;
        context.next = &first;
        memset(&buffer, 0, sizeof buffer);
        buffer.struct_size = sizeof buffer;
        buffer.kind = WINNOW_BUFFER_ALLOCATE;
        buffer.size = 16;
        buffer.next = &first;
        /* Unknown ones are skipped; where the last of the chain is required, the whole is refused. */
        for (is_required = 0; is_required < 2; ++is_required) {
            const int32_t want = is_required ? WINNOW_ERROR_UNSUPPORTED : WINNOW_OK;
            second.flags = is_required ? WINNOW_EXTENSION_REQUIRED : 0;
            abi_about(run, "a chain of the unknown extensions 0x7ffffff1 and 0x7ffffff2, the flags of the second %u",
                      (unsigned)second.flags);
            abi_prepare(&work);
            work.sdpa.next = work.append.next = &first;
            EXPECT_STATUS(call_context(&backend, &context), want);
            EXPECT_STATUS(call_buffer(&backend, &buffer), want);
            EXPECT_STATUS(call_work(&backend, &work, &work.sdpa, NULL), want);
            abi_prepare(&work);
            work.sdpa.next = work.append.next = &first;
            EXPECT_STATUS(call_work(&backend, &work, NULL, &work.append), want);
        }
        second.flags = 0;
        first.struct_size = 4;
        abi_about(run, "winnow_extension, struct_size 4");
        EXPECT_STATUS(call_context(&backend, &context), WINNOW_ERROR_INVALID_ARGUMENT);
        abi_about(run, "");
    }
    abi_close(run, &backend);
}

/* ---- NULL ---------------------------------------------------------------------------------------------------------
 */

void check_null_arguments(abi_run *run) {
    const int32_t invalid = WINNOW_ERROR_INVALID_ARGUMENT;
    abi_backend backend = abi_open_context(run);
    const winnow_api *api = backend.api;
    winnow_context *context = backend.context;
    winnow_context *made = NULL;
    winnow_buffer *buffer = NULL;
    winnow_buffer_desc buffer_desc;
    winnow_context_desc context_desc;
    winnow_device_info info;
    winnow_stats stats;
    winnow_event *event = NULL;
    void *pointer = NULL;
    uint64_t offset = 0;
    uint8_t uuid[16];
    unsigned char byte = 0;
    abi_work work;
    if (api) {
        abi_prepare(&work);
        memset(&context_desc, 0, sizeof context_desc);
        context_desc.struct_size = sizeof context_desc;
        context_desc.device = run->device;
        memset(&buffer_desc, 0, sizeof buffer_desc);
        buffer_desc.struct_size = sizeof buffer_desc;
        buffer_desc.kind = WINNOW_BUFFER_ALLOCATE;
        buffer_desc.size = 16;
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        memset(&stats, 0, sizeof stats);
        stats.struct_size = sizeof stats;

        EXPECT_STATUS(api->device_count(NULL, NULL, 0), invalid);
        EXPECT_STATUS(api->device_info(0, NULL, NULL, 0), invalid);
        EXPECT_STATUS(api->context_create(NULL, &made, NULL, 0), invalid);
        EXPECT_STATUS(api->context_create(&context_desc, NULL, NULL, 0), invalid);
        EXPECT(made == NULL);
        EXPECT(api->context_message(NULL) != NULL);
        EXPECT(api->context_message(context) != NULL);
        EXPECT_STATUS(api->context_info(NULL, &info), invalid);
        EXPECT_STATUS(api->context_info(context, NULL), invalid);
        EXPECT_STATUS(api->context_stats(NULL, &stats), invalid);
        EXPECT_STATUS(api->context_stats(context, NULL), invalid);
        EXPECT_STATUS(api->buffer_create(NULL, &buffer_desc, &buffer), invalid);
        EXPECT_STATUS(api->buffer_create(context, NULL, &buffer), invalid);
        EXPECT_STATUS(api->buffer_create(context, &buffer_desc, NULL), invalid);
        EXPECT(buffer == NULL);
        EXPECT_STATUS(api->buffer_write(NULL, 0, &byte, 1), invalid);
        EXPECT_STATUS(api->buffer_read(NULL, 0, &byte, 1), invalid);
        EXPECT_STATUS(api->supports(NULL, WINNOW_OPERATION_SDPA, &work.sdpa, NULL, 0), invalid);
        EXPECT_STATUS(api->supports(context, WINNOW_OPERATION_SDPA, NULL, NULL, 0), invalid);
        EXPECT_STATUS(api->supports(NULL, WINNOW_OPERATION_KV_APPEND, &work.append, NULL, 0), invalid);
        EXPECT_STATUS(api->supports(context, WINNOW_OPERATION_KV_APPEND, NULL, NULL, 0), invalid);
        EXPECT_STATUS(api->supports(context, 0, &work.sdpa, NULL, 0), invalid);
        EXPECT_STATUS(api->sdpa(NULL, &work.sdpa, &event), invalid);
        EXPECT_STATUS(api->sdpa(context, NULL, &event), invalid);
        EXPECT_STATUS(api->kv_append(NULL, &work.append, &event), invalid);
        EXPECT_STATUS(api->kv_append(context, NULL, &event), invalid);
        EXPECT(event == NULL);
        EXPECT_STATUS(api->flush(NULL), invalid);
        EXPECT_STATUS(api->finish(NULL), invalid);
        EXPECT_STATUS(api->event_wait(NULL), invalid);
        if (backend.opencl) {
            EXPECT_STATUS(backend.opencl->wait_event(NULL, &byte), invalid);
            EXPECT_STATUS(backend.opencl->wait_event(context, NULL), invalid);
            EXPECT_STATUS(backend.opencl->get_event(NULL, &pointer), invalid);
            EXPECT_STATUS(backend.opencl->get_memory(NULL, &pointer, &offset), invalid);
            EXPECT_STATUS(backend.opencl->device_uuid(NULL, uuid), invalid);
            EXPECT_STATUS(backend.opencl->device_uuid(context, NULL), invalid);
        }
        EXPECT_STATUS(api->context_destroy(NULL), WINNOW_OK);
        EXPECT_STATUS(api->buffer_destroy(NULL), WINNOW_OK);
        EXPECT_STATUS(api->event_destroy(NULL), WINNOW_OK);
        EXPECT(abi_is_untouched(&work));
    }
    abi_close(run, &backend);
}
