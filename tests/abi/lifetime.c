/* Contexts and their refusals, the log, and unloading: a backend that is closed is gone, and comes back as new. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <string.h>

#include "abi.h"

static winnow_context_desc context_desc(const char *device) {
    winnow_context_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.device = device;
    return desc;
}

/* A record of OpenCL objects: known to a backend with OpenCL, which wants all of them, and no device beside them. */
static void check_opencl_objects(abi_run *run, const abi_backend *backend) {
    winnow_context *context = NULL;
    winnow_opencl_objects objects;
    winnow_context_desc desc;
    char message[512] = "";
    int32_t want = backend->opencl ? WINNOW_ERROR_INVALID_ARGUMENT : WINNOW_ERROR_UNSUPPORTED;
    memset(&objects, 0, sizeof objects);
    objects.extension.struct_size = sizeof objects;
    objects.extension.type = WINNOW_EXTENSION_OPENCL_OBJECTS;
    objects.extension.flags = WINNOW_EXTENSION_REQUIRED;
    objects.context = &desc; /* one of three */
    desc = context_desc(NULL);
    desc.next = &objects.extension;
    EXPECT_STATUS(backend->api->context_create(&desc, &context, message, sizeof message), want);
    EXPECT(!run->is_complete ||
           strstr(message, backend->opencl ? "winnow_opencl_objects.device" : "extension type 1") != NULL);
    objects.device = objects.queue = &desc;
    desc.device = "0"; /* three and a device */
    EXPECT_STATUS(backend->api->context_create(&desc, &context, message, sizeof message), want);
    EXPECT(!run->is_complete ||
           strstr(message, backend->opencl ? "device is given together" : "extension type 1") != NULL);
    desc.device = NULL;
    winnow_opencl_objects again = objects; /* twice */
    objects.extension.next = &again.extension;
    EXPECT_STATUS(backend->api->context_create(&desc, &context, message, sizeof message), want);
    EXPECT(!run->is_complete || strstr(message, backend->opencl ? "comes twice" : "extension type 1") != NULL);
    EXPECT(context == NULL);
}

void check_contexts(abi_run *run) {
    winnow_context *const untouched = (winnow_context *)(uintptr_t)0x5a5a;
    abi_backend backend = abi_open(run);
    winnow_context_desc desc;
    winnow_context *context = untouched;
    winnow_device_info info;
    uint32_t count = 0, at;
    char message[512] = "";
    if (backend.api) {
        const winnow_api *api = backend.api;
        EXPECT_STATUS(api->device_count(&count, message, sizeof message), WINNOW_OK);
        EXPECT(count > 0);
        for (at = 0; at < count; ++at) {
            memset(&info, 0, sizeof info);
            info.struct_size = sizeof info;
            EXPECT_STATUS(api->device_info(at, &info, message, sizeof message), WINNOW_OK);
            EXPECT(info.name[0] != 0);
        }
        EXPECT_STATUS(api->device_info(count, &info, message, sizeof message), WINNOW_ERROR_NOT_FOUND);

        desc = context_desc("there is no such device");
        EXPECT_STATUS(api->context_create(&desc, &context, message, sizeof message), WINNOW_ERROR_NOT_FOUND);
        EXPECT(strstr(message, "there is no such device") != NULL);
        desc = context_desc("1000000");
        EXPECT_STATUS(api->context_create(&desc, &context, message, sizeof message), WINNOW_ERROR_NOT_FOUND);
        desc = context_desc(run->device);
        desc.flags = 1;
        abi_about(run, "winnow_context_desc, flags 1");
        EXPECT_STATUS(api->context_create(&desc, &context, message, sizeof message), WINNOW_ERROR_UNSUPPORTED);
        EXPECT(strstr(message, "flags") != NULL);
        abi_about(run, "winnow_context_desc, log_level 99");
        desc = context_desc(run->device);
        desc.log_level = 99;
        EXPECT_STATUS(api->context_create(&desc, &context, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(strstr(message, "log_level") != NULL);
        abi_about(run, "");
        desc = context_desc(run->device);
        desc.variants = "no such thing";
        EXPECT_STATUS(api->context_create(&desc, &context, message, sizeof message), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(strstr(message, "variants") != NULL);
        check_opencl_objects(run, &backend);
        EXPECT(context == untouched);
    }
    abi_close(run, &backend);
}

typedef struct log_book {
    void *self;
    int lines, is_foreign, errors;
} log_book;

static void WINNOW_CALL write_down(void *user_data, int32_t level, const char *text) {
    log_book *book = (log_book *)user_data;
    ++book->lines;
    book->errors += level == WINNOW_LOG_ERROR;
    if (book->self != book || level < WINNOW_LOG_ERROR || level > WINNOW_LOG_DEBUG || !text || strchr(text, '\n'))
        book->is_foreign = 1;
}

/* A failure is written down; each line carries our user_data, and only the levels that we asked for. */
void check_log(abi_run *run) {
    abi_backend backend = abi_open(run);
    winnow_context *context = NULL;
    winnow_context_desc desc;
    log_book book;
    if (backend.api) {
        memset(&book, 0, sizeof book);
        book.self = &book;
        desc = context_desc(run->device);
        desc.log = write_down;
        desc.log_user_data = &book;
        desc.log_level = WINNOW_LOG_ERROR;
        EXPECT_STATUS(backend.api->context_create(&desc, &context, NULL, 0), WINNOW_OK);
        EXPECT_STATUS(backend.api->sdpa(context, NULL, NULL), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT(backend.api->context_message(context)[0] != 0);
        EXPECT(book.lines > 0);
        EXPECT(book.lines == book.errors);
        EXPECT(!book.is_foreign);
        EXPECT_STATUS(backend.api->context_destroy(context), WINNOW_OK);
    }
    abi_close(run, &backend);
}

void check_reload(abi_run *run) {
    abi_work work;
    int round;
    for (round = 0; round < 4; ++round) {
        abi_backend backend = abi_open_context(run);
        if (backend.api) {
            winnow_event *event = NULL;
            abi_prepare(&work);
            EXPECT_STATUS(backend.api->sdpa(backend.context, &work.sdpa, NULL), WINNOW_OK);
            EXPECT_STATUS(backend.api->kv_append(backend.context, &work.append, &event), WINNOW_OK);
            EXPECT_STATUS(backend.api->event_wait(event), WINNOW_OK);
            EXPECT_STATUS(backend.api->event_destroy(event), WINNOW_OK);
            EXPECT_STATUS(backend.api->finish(backend.context), WINNOW_OK);
            EXPECT(abi_is_right(&work));
        }
        abi_close(run, &backend);
        /* Really gone: no thread, no handler and no unique symbol keeps it. */
        EXPECT(dlopen(run->path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    }
}
