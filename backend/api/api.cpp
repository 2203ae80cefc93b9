// The C table: validates handles, translates exceptions into statuses and messages, and counts. Nothing else crosses
// the boundary; every function of the tables goes through one of the two guards of guard.hpp.
#include <cstddef>
#include <limits>

#include "api/cache.hpp"
#include "api/guard.hpp"
#include "api/negotiate.hpp"
#include "api/opencl.hpp"
#include "api/structs.hpp"
#include "api/validate.hpp"
#include "winnow.h"

namespace winnow::api {
namespace {

// ---- Devices -------------------------------------------------------------------------------------------------------

const char* WINNOW_CALL status_name(int32_t status) {
    switch (status) {
    case WINNOW_OK: return "WINNOW_OK";
    case WINNOW_ERROR_INVALID_ARGUMENT: return "WINNOW_ERROR_INVALID_ARGUMENT";
    case WINNOW_ERROR_UNSUPPORTED: return "WINNOW_ERROR_UNSUPPORTED";
    case WINNOW_ERROR_UNIMPLEMENTED: return "WINNOW_ERROR_UNIMPLEMENTED";
    case WINNOW_ERROR_VERSION: return "WINNOW_ERROR_VERSION";
    case WINNOW_ERROR_NOT_FOUND: return "WINNOW_ERROR_NOT_FOUND";
    case WINNOW_ERROR_OUT_OF_MEMORY: return "WINNOW_ERROR_OUT_OF_MEMORY";
    case WINNOW_ERROR_DEVICE: return "WINNOW_ERROR_DEVICE";
    case WINNOW_ERROR_INTERNAL: return "WINNOW_ERROR_INTERNAL";
    case WINNOW_ERROR_IO: return "WINNOW_ERROR_IO";
    case WINNOW_ERROR_WOULD_WAIT: return "WINNOW_ERROR_WOULD_WAIT";
    default: return "unknown status";
    }
}

int32_t WINNOW_CALL device_count(uint32_t* count, char* message, size_t message_size) {
    return with_message(message, message_size, [&] {
        checked(count, "device_count: count") = static_cast<uint32_t>(backend::enumerate().size());
    });
}

int32_t WINNOW_CALL device_info(uint32_t index, winnow_device_info* info, char* message, size_t message_size) {
    return with_message(message, message_size, [&] {
        checked_struct_size(info, "device_info: info");
        const std::vector<winnow_device_info> devices = backend::enumerate();
        if (index >= devices.size()) {
            throw Error(WINNOW_ERROR_NOT_FOUND, "device_info: index is " + std::to_string(index) + ", and there are " +
                                                    std::to_string(devices.size()) + " devices");
        }
        write_struct(info, devices[index], "device_info: info");
    });
}

// ---- Contexts ------------------------------------------------------------------------------------------------------

Log make_log(const winnow_context_desc& desc) {
    if (desc.log == nullptr) return [](int32_t, const std::string&) {};
    const int32_t most_verbose = desc.log_level == 0 ? WINNOW_LOG_WARNING : desc.log_level;
    return [callback = desc.log, user_data = desc.log_user_data, most_verbose](int32_t level, const std::string& text) {
        if (level <= most_verbose) callback(user_data, level, text.c_str());
    };
}

DeviceRequest to_request(const winnow_context_desc& desc) {
    if (desc.log_level < 0 || desc.log_level > WINNOW_LOG_DEBUG) {
        invalid("context_create: log_level is " + std::to_string(desc.log_level) + ", expected 0 to 4");
    }
    DeviceRequest request;
    request.device = desc.device != nullptr ? desc.device : "";
    read_objects(desc, request);
    request.variants = desc.variants != nullptr ? desc.variants : "";
    request.max_threads = desc.max_threads;
    request.parallel_for = desc.parallel_for;
    request.parallel_user_data = desc.parallel_user_data;
    request.launched = desc.launched;
    request.launched_user_data = desc.launched_user_data;
    request.log = make_log(desc);
    return request;
}

int32_t WINNOW_CALL context_create(const winnow_context_desc* desc, winnow_context** context, char* message,
                                   size_t message_size) {
    return with_message(message, message_size, [&] {
        winnow_context*& out = checked(context, "context_create: context");
        const winnow_context_desc given = read_struct(desc, "context_create: desc");
        check_flags(given.flags, "context_create: desc");
        DeviceRequest request = to_request(given);
        auto handle = std::make_unique<winnow_context>();
        handle->log = request.log;
        handle->device = backend::create(request);
        out = handle.release();
    });
}

int32_t WINNOW_CALL context_destroy(winnow_context* context) {
    if (context == nullptr) return WINNOW_OK;
    if (context->device->is_of_parent()) return WINNOW_OK; // nothing can be released in the child of a fork
    // Even if the device fails to finish, what it holds has to be released.
    const int32_t status = on_context(context, [&] { context->device->finish(); });
    const int32_t released = guarded([&] { delete context; }, [](int32_t, const char*) {});
    return status != WINNOW_OK ? status : released;
}

const char* WINNOW_CALL context_message(winnow_context* context) {
    return context != nullptr ? context->message.c_str() : "context is NULL";
}

int32_t WINNOW_CALL context_info(winnow_context* context, winnow_device_info* info) {
    return on_context(context, [&] {
        winnow_device_info value{};
        context->device->info(value);
        write_struct(info, value, "context_info: info");
    });
}

int32_t WINNOW_CALL context_stats(winnow_context* context, winnow_stats* stats) {
    return on_context(context, [&] {
        winnow_stats value{};
        context->device->stats(value);
        value.sdpa_calls = context->sdpa_calls;
        value.kv_append_calls = context->kv_append_calls;
        value.tokens_appended = context->tokens_appended;
        value.rows_requantized = context->rows_requantized;
        write_struct(stats, value, "context_stats: stats");
    });
}

// ---- Buffers -------------------------------------------------------------------------------------------------------

void make_buffer(winnow_context& context, const winnow_buffer_desc& given, winnow_buffer& handle) {
    const winnow_opencl_memory memory = read_memory(given.next);
    if (given.kind != WINNOW_BUFFER_IMPORT_DEVICE && memory.extension.struct_size != 0)
        invalid("buffer_create: winnow_opencl_memory is given, but kind is not WINNOW_BUFFER_IMPORT_DEVICE");
    if (given.kind != WINNOW_BUFFER_IMPORT_HOST && given.host_data != nullptr)
        invalid("buffer_create: host_data is given, but kind is not WINNOW_BUFFER_IMPORT_HOST");
    switch (given.kind) {
    case WINNOW_BUFFER_ALLOCATE: handle.buffer = context.device->allocate(given.size); return;
    case WINNOW_BUFFER_IMPORT_HOST:
        checked(static_cast<std::byte*>(given.host_data), "buffer_create: host_data");
        if (given.size > std::numeric_limits<uintptr_t>::max() - reinterpret_cast<uintptr_t>(given.host_data))
            invalid("buffer_create: size is " + std::to_string(given.size) +
                    ", which leads from host_data beyond the last address");
        handle.misalignment = reinterpret_cast<uintptr_t>(given.host_data) % 16;
        handle.buffer = context.device->import_host(given.host_data, given.size);
        return;
    case WINNOW_BUFFER_IMPORT_DEVICE: import_memory(context, given, memory, handle); return;
    default: invalid("buffer_create: kind is " + std::to_string(given.kind) + ", expected 1, 2 or 3");
    }
}

int32_t WINNOW_CALL buffer_create(winnow_context* context, const winnow_buffer_desc* desc, winnow_buffer** buffer) {
    return on_context(context, [&] {
        winnow_buffer*& out = checked(buffer, "buffer_create: buffer");
        const winnow_buffer_desc given = read_struct(desc, "buffer_create: desc");
        if (given.size == 0) invalid("buffer_create: size is 0, expected at least 1 byte");
        auto handle = std::make_unique<winnow_buffer>();
        handle->context = context;
        make_buffer(*context, given, *handle);
        winnow_buffer* const key = handle.get();
        context->buffers.emplace(key, std::move(handle));
        out = key;
    });
}

int32_t WINNOW_CALL buffer_destroy(winnow_buffer* buffer) {
    if (buffer == nullptr) return WINNOW_OK;
    winnow_context* const context = buffer->context;
    return releasing(context, [&] {
        context->device->wait();
        context->buffers.erase(buffer);
    });
}

void check_range(const winnow_buffer& buffer, uint64_t offset, uint64_t size, const char* function) {
    const uint64_t available = buffer.buffer->size();
    if (size > available || offset > available - size) {
        invalid(std::string(function) + ": bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) +
                " do not lie in a buffer of " + std::to_string(available) + " bytes");
    }
}

int32_t WINNOW_CALL buffer_write(winnow_buffer* buffer, uint64_t offset, const void* data, uint64_t size) {
    return on_context(context_of(buffer), [&] {
        check_range(*buffer, offset, size, "buffer_write");
        if (size == 0) return;
        checked(static_cast<const std::byte*>(data), "buffer_write: data");
        buffer->buffer->write(offset, data, size);
    });
}

int32_t WINNOW_CALL buffer_read(winnow_buffer* buffer, uint64_t offset, void* data, uint64_t size) {
    return on_context(context_of(buffer), [&] {
        check_range(*buffer, offset, size, "buffer_read");
        if (size == 0) return;
        checked(static_cast<std::byte*>(data), "buffer_read: data");
        buffer->buffer->read(offset, data, size);
    });
}

// ---- Operations ----------------------------------------------------------------------------------------------------

// What the device answers to a description; throws what the operation would.
template <class Args, class Desc>
std::string variant_of(winnow_context& context, const void* desc,
                       Args (*translate)(const winnow_context&, const Desc*, Memory)) {
    return context.device->validate(translate(context, static_cast<const Desc*>(desc), Memory::optional));
}

std::string variant_of(winnow_context& context, uint32_t operation, const void* desc) {
    switch (operation) {
    case WINNOW_OPERATION_SDPA: return variant_of(context, desc, to_sdpa);
    case WINNOW_OPERATION_KV_APPEND: return variant_of(context, desc, to_kv_append);
    case WINNOW_OPERATION_KV_REQUANTIZE: return variant_of(context, desc, to_kv_requantize);
    case WINNOW_OPERATION_KV_DEQUANTIZE: return variant_of(context, desc, to_kv_dequantize);
    case WINNOW_OPERATION_HADAMARD: return variant_of(context, desc, to_hadamard);
    default: invalid("supports: operation is " + std::to_string(operation) + ", expected one of WINNOW_OPERATION_*");
    }
}

int32_t WINNOW_CALL supports(winnow_context* context, uint32_t operation, const void* desc, char* answer,
                             size_t answer_size) {
    return on_question(context, [&] {
        check_process(*context);
        copy_message(variant_of(*context, operation, desc).c_str(), answer, answer_size);
    });
}

template <class Args>
void launch(winnow_context& context, const Args& args, winnow_event** event) {
    NewEvent made(context, event);
    made.store(context.device->launch(args, event != nullptr));
}

int32_t WINNOW_CALL sdpa(winnow_context* context, const winnow_sdpa_desc* desc, winnow_event** event) {
    return on_context(context, [&] {
        const Sdpa args = to_sdpa(*context, desc, Memory::required);
        launch(*context, args, event);
        ++context->sdpa_calls;
    });
}

int32_t WINNOW_CALL kv_append(winnow_context* context, const winnow_kv_append_desc* desc, winnow_event** event) {
    return on_context(context, [&] {
        const KvAppend args = to_kv_append(*context, desc, Memory::required);
        launch(*context, args, event);
        ++context->kv_append_calls;
        const auto tokens = [](const AppendRows& side) { return side ? side.src.shape[0] * side.src.shape[2] : 0; };
        context->tokens_appended += static_cast<uint64_t>(std::max(tokens(args.k), tokens(args.v)));
    });
}

int32_t WINNOW_CALL kv_requantize(winnow_context* context, const winnow_kv_requantize_desc* desc,
                                  winnow_event** event) {
    return on_context(context, [&] {
        const KvRequantize args = to_kv_requantize(*context, desc, Memory::required);
        launch(*context, args, event);
        const int64_t rows = args.row_indices ? args.row_indices.shape[3] : args.src.shape[2];
        context->rows_requantized += static_cast<uint64_t>(args.src.shape[0] * args.src.shape[1] * rows);
    });
}

int32_t WINNOW_CALL kv_dequantize(winnow_context* context, const winnow_kv_dequantize_desc* desc,
                                  winnow_event** event) {
    return on_context(context, [&] {
        const KvDequantize args = to_kv_dequantize(*context, desc, Memory::required);
        launch(*context, args, event);
    });
}

int32_t WINNOW_CALL hadamard(winnow_context* context, const winnow_hadamard_desc* desc, winnow_event** event) {
    return on_context(context, [&] {
        const Hadamard args = to_hadamard(*context, desc, Memory::required);
        launch(*context, args, event);
    });
}

// ---- Formats ---------------------------------------------------------------------------------------------------

int32_t WINNOW_CALL row_bytes_of(uint32_t type, int64_t elements, uint64_t* bytes, char* message, size_t message_size) {
    return with_message(message, message_size, [&] {
        uint64_t& out = checked(bytes, "row_bytes: bytes");
        const auto wanted = static_cast<Type>(type);
        const int64_t multiple = row_multiple(wanted);
        if (alignment(wanted) == 0) {
            invalid("row_bytes: type is " + std::to_string(type) + ", expected one of WINNOW_TYPE_*");
        }
        if (elements < 1 || elements > std::numeric_limits<int32_t>::max() || elements % multiple != 0) {
            invalid("row_bytes: elements is " + std::to_string(elements) +
                    ", expected 1 to 2147483647 and a multiple of " + std::to_string(multiple) + " for " +
                    type_name(wanted));
        }
        out = row_bytes(wanted, elements);
    });
}

// ---- Synchronisation -----------------------------------------------------------------------------------------------

int32_t WINNOW_CALL flush(winnow_context* context) {
    return on_context(context, [&] { context->device->flush(); });
}

int32_t WINNOW_CALL finish(winnow_context* context) {
    return on_context(context, [&] { context->device->finish(); });
}

int32_t WINNOW_CALL event_wait(winnow_event* event) {
    return on_context(context_of(event), [&] { event->event->wait(); });
}

int32_t WINNOW_CALL event_destroy(winnow_event* event) {
    if (event == nullptr) return WINNOW_OK;
    winnow_context* const context = event->context;
    return releasing(context, [&] { context->events.erase(event); });
}

// ---- Tables --------------------------------------------------------------------------------------------------------

// One for each version of a table that is spoken; an older one is the beginning of the next.
struct FurtherTable {
    const char* name;
    uint32_t version;
    const void* table;
    bool is_offered;
};

const FurtherTable further_tables[] = {{WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, &cache_table, true},
                                       {WINNOW_OPENCL_TABLE, WINNOW_OPENCL_VERSION, &opencl_table, backend::is_opencl}};

int32_t WINNOW_CALL get_table(const char* name, uint32_t version, const void** table, char* message,
                              size_t message_size) {
    return with_message(message, message_size, [&] {
        const std::string wanted = &checked(name, "get_table: name");
        const void*& out = checked(table, "get_table: table");
        std::string versions;
        for (const FurtherTable& each : further_tables) {
            if (!each.is_offered || wanted != each.name) continue;
            versions += (versions.empty() ? "" : ", ") + version_text(each.version);
            if (version != each.version) continue;
            out = each.table;
            return;
        }
        if (!versions.empty())
            throw Error(WINNOW_ERROR_VERSION, "get_table: version is " + version_text(version) +
                                                  ", and this backend has " + wanted + " in version " + versions);
        throw Error(WINNOW_ERROR_UNIMPLEMENTED, "get_table: this backend has no table \"" + wanted + "\"");
    });
}

// ---- Negotiation ---------------------------------------------------------------------------------------------------

// An older version is the beginning of the table.
winnow_api table_of(uint32_t version, size_t size) {
    return {
        .struct_size = static_cast<uint32_t>(size),
        .version = version,
        .backend_name = backend::name,
        .backend_version = WINNOW_RELEASE,
        .status_name = status_name,
        .get_table = get_table,
        .device_count = device_count,
        .device_info = device_info,
        .context_create = context_create,
        .context_destroy = context_destroy,
        .context_message = context_message,
        .context_info = context_info,
        .context_stats = context_stats,
        .buffer_create = buffer_create,
        .buffer_destroy = buffer_destroy,
        .buffer_write = buffer_write,
        .buffer_read = buffer_read,
        .supports = supports,
        .sdpa = sdpa,
        .kv_append = kv_append,
        .kv_requantize = kv_requantize,
        .kv_dequantize = kv_dequantize,
        .hadamard = hadamard,
        .flush = flush,
        .finish = finish,
        .event_wait = event_wait,
        .event_destroy = event_destroy,
        .row_bytes = row_bytes_of,
    };
}

// One per version that is spoken; the oldest first.
const winnow_api tables[] = {table_of(WINNOW_API_VERSION, sizeof(winnow_api))};

} // namespace
} // namespace winnow::api

extern "C" WINNOW_EXPORT int32_t WINNOW_CALL winnow_get_api(const winnow_host_info* host, const winnow_api** api,
                                                            char* message, size_t message_size) {
    using namespace winnow::api;
    return with_message(message, message_size, [&] {
        const winnow_api*& out = checked(api, "winnow_get_api: api");
        const winnow_host_info given = read_struct(host, "winnow_get_api: host");
        check_flags(given.flags, "winnow_get_api: host");
        out = &negotiate(given, tables);
    });
}
