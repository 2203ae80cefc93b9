// The records and functions of winnow_opencl.h. Where the backend does not compute with OpenCL, no record is known.
#include "api/opencl.hpp"

#include <algorithm>
#include <span>
#include <tuple>

#include "api/guard.hpp"
#include "api/structs.hpp"

namespace winnow::api {
namespace {

// The record of a type; zeros where the chain has none.
template <class Record>
Record read_record(const winnow_extension* next, uint32_t type, const char* chain, const char* name) {
    KnownExtension known{type};
    read_extensions(next, chain, {&known, backend::is_opencl ? size_t{1} : size_t{0}});
    return known.found ? read_struct(reinterpret_cast<const Record*>(known.found), name) : Record{};
}

int32_t WINNOW_CALL wait_event(winnow_context* context, void* cl_event) {
    return on_context(context, [&] {
        checked(static_cast<std::byte*>(cl_event), "opencl_wait_event: cl_event");
        context->device->wait_cl_event(cl_event);
    });
}

int32_t WINNOW_CALL get_event(winnow_event* event, void** cl_event) {
    return on_context(context_of(event),
                      [&] { checked(cl_event, "opencl_get_event: cl_event") = event->event->cl_event(); });
}

int32_t WINNOW_CALL get_memory(winnow_buffer* buffer, void** cl_mem, uint64_t* offset) {
    return on_context(context_of(buffer), [&] {
        void*& out = checked(cl_mem, "opencl_get_memory: cl_mem");
        uint64_t& begin = checked(offset, "opencl_get_memory: offset");
        std::tie(out, begin) = buffer->buffer->cl_memory();
    });
}

int32_t WINNOW_CALL device_uuid(winnow_context* context, uint8_t* uuid) {
    return on_question(context, [&] {
        check_process(*context);
        checked(uuid, "opencl_device_uuid: uuid");
        std::ranges::copy(context->device->cl_device_uuid(), uuid);
    });
}

} // namespace

const winnow_opencl_api opencl_table = {
    sizeof opencl_table, WINNOW_OPENCL_VERSION, wait_event, get_event, get_memory, device_uuid,
};

void read_objects(const winnow_context_desc& desc, DeviceRequest& request) {
    const auto objects = read_record<winnow_opencl_objects>(
        desc.next, WINNOW_EXTENSION_OPENCL_OBJECTS, "context_create: desc", "context_create: winnow_opencl_objects");
    if (objects.extension.struct_size == 0) return;
    const std::string of = "context_create: winnow_opencl_objects.";
    checked(static_cast<std::byte*>(objects.context), (of + "context").c_str());
    checked(static_cast<std::byte*>(objects.device), (of + "device").c_str());
    checked(static_cast<std::byte*>(objects.queue), (of + "queue").c_str());
    if (desc.device != nullptr)
        invalid("context_create: device is given together with winnow_opencl_objects, expected one of them");
    request.cl_context = objects.context;
    request.cl_device_id = objects.device;
    request.cl_command_queue = objects.queue;
}

winnow_opencl_memory read_memory(const winnow_extension* next) {
    return read_record<winnow_opencl_memory>(next, WINNOW_EXTENSION_OPENCL_MEMORY, "buffer_create: desc",
                                             "buffer_create: winnow_opencl_memory");
}

void import_memory(winnow_context& context, const winnow_buffer_desc& desc, const winnow_opencl_memory& memory,
                   winnow_buffer& handle) {
    if (!backend::is_opencl)
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "buffer_create: kind is WINNOW_BUFFER_IMPORT_DEVICE, and this backend has no OpenCL");
    if (memory.extension.struct_size == 0)
        invalid("buffer_create: kind is WINNOW_BUFFER_IMPORT_DEVICE, and next has no winnow_opencl_memory");
    checked(static_cast<std::byte*>(memory.memory), "buffer_create: winnow_opencl_memory.memory");
    handle.misalignment = memory.offset % 16;
    handle.buffer = context.device->import_cl_mem(memory.memory, memory.offset, desc.size);
}

} // namespace winnow::api
