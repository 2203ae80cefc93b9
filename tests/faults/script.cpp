// What the scripts share: a context's beginning and end.
#include "script.hpp"

namespace winnow::faults {

void Script::add_create() {
    add({.name = "context_create",
         .run = [this] { return session_.create(); },
         .recover = [this] { session_.destroy(); }});
}

void Script::unsettle() {
    if (context() == nullptr) return;
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = WINNOW_BUFFER_ALLOCATE;
    desc.size = 1;
    winnow_buffer* buffer = nullptr;
    if (api().buffer_create(context(), &desc, &buffer) == WINNOW_OK) api().buffer_destroy(buffer);
}

int32_t Script::finish() {
    const int32_t status = api().finish(context());
    return status == WINNOW_ERROR_OUT_OF_MEMORY ? api().finish(context()) : status;
}

int32_t Script::wait(winnow_event* event) {
    int32_t status = api().event_wait(event);
    // Lack of memory changes nothing, and can be over. What failed itself stays so, and has to be done again.
    if (status == WINNOW_ERROR_OUT_OF_MEMORY) status = api().event_wait(event);
    if (status != WINNOW_OK) api().finish(context());
    const int32_t destroyed = api().event_destroy(event);
    return status != WINNOW_OK ? status : destroyed;
}

void Script::add_destroy() {
    add({.name = "context_destroy",
         .run = [this] { return context() == nullptr ? not_run : session_.destroy(); },
         .effect = Effect::releases});
}

} // namespace winnow::faults
