/* A process that forks: its child may not have what the backend needs, and is told so; nothing there waits forever. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

/* An operation either does its work or is refused, with a reason and without a trace. */
static int is_told(int32_t status, const char *message) {
    return status == WINNOW_ERROR_UNSUPPORTED && strstr(message, "fork") != NULL;
}

static int computes_or_is_told(const winnow_api *api, winnow_context *context) {
    abi_work work;
    winnow_event *event = NULL;
    char message[512] = "";
    int32_t status, supports;
    abi_prepare(&work);
    supports = api->supports(context, WINNOW_OPERATION_SDPA, &work.sdpa, NULL, 0);
    snprintf(message, sizeof message, "%s", api->context_message(context));
    status = api->sdpa(context, &work.sdpa, &event);
    if (status != WINNOW_OK)
        return supports == status && is_told(status, message) && is_told(status, api->context_message(context)) &&
               is_told(api->finish(context), api->context_message(context)) && abi_is_untouched(&work);
    return supports == WINNOW_OK && api->kv_append(context, &work.append, NULL) == WINNOW_OK &&
           api->finish(context) == WINNOW_OK && abi_is_right(&work) && api->event_destroy(event) == WINNOW_OK;
}

/* Gives the number of the first step that went wrong, or 0. */
static int run_child(const abi_run *run, const abi_backend *backend, winnow_buffer *buffer) {
    const winnow_api *api = backend->api;
    winnow_context_desc desc;
    winnow_context *own = NULL;
    uint32_t count = 0;
    char message[512] = "", bytes[16];
    int32_t status;
    alarm(60);
    if (!computes_or_is_told(api, backend->context)) return 1;
    status = api->buffer_read(buffer, 0, bytes, sizeof bytes);
    if (status != WINNOW_OK && !is_told(status, api->context_message(backend->context))) return 2;
    status = api->device_count(&count, message, sizeof message);
    if (status != WINNOW_OK && !is_told(status, message)) return 3;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.device = run->device;
    status = api->context_create(&desc, &own, message, sizeof message);
    if (status != WINNOW_OK && (own != NULL || !is_told(status, message))) return 4;
    if (status == WINNOW_OK && !computes_or_is_told(api, own)) return 5;
    if (api->context_destroy(own) != WINNOW_OK) return 6;
    if (api->buffer_destroy(buffer) != WINNOW_OK) return 7;
    if (api->context_destroy(backend->context) != WINNOW_OK) return 8;
    return 0;
}

void check_fork(abi_run *run) {
    abi_backend backend = abi_open_context(run);
    winnow_buffer_desc desc;
    winnow_buffer *buffer = NULL;
    if (backend.api) {
        const winnow_api *api = backend.api;
        int ended = -1;
        pid_t child;
        memset(&desc, 0, sizeof desc);
        desc.struct_size = sizeof desc;
        desc.kind = WINNOW_BUFFER_ALLOCATE;
        desc.size = 16;
        EXPECT_STATUS(api->buffer_create(backend.context, &desc, &buffer), WINNOW_OK);
        EXPECT(computes_or_is_told(api, backend.context));
        child = fork();
        if (child == 0) _exit(run_child(run, &backend, buffer));
        EXPECT(child > 0);
        EXPECT(waitpid(child, &ended, 0) == child);
        EXPECT(WIFEXITED(ended)); /* and did not hang until its alarm */
        EXPECT_STATUS(WEXITSTATUS(ended), 0);
        EXPECT(computes_or_is_told(api, backend.context)); /* the parent goes on */
        EXPECT_STATUS(api->buffer_destroy(buffer), WINNOW_OK);
    }
    abi_close(run, &backend);
}
