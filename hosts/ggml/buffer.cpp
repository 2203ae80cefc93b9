// Host memory behind ggml's buffer interface. A type of its own, rather than the CPU's, makes llama.cpp see a device
// that holds its KV cache; being host memory it costs no copy on either side.
#include "buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <sys/mman.h>

#include "ggml_api.hpp"
#include "kv_config.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

constexpr size_t tensor_alignment = 128;  // two cache lines: covers the widest vector a kernel loads
constexpr size_t buffer_alignment = 4096; // whole pages, so that a driver can map the memory into a device

void free_buffer(ggml_backend_buffer_t buffer) { std::free(buffer->context); }

void* get_base(ggml_backend_buffer_t buffer) { return buffer->context; }

void memset_tensor(ggml_backend_buffer_t, ggml_tensor* tensor, uint8_t value, size_t offset, size_t size) {
    std::memset(static_cast<char*>(tensor->data) + offset, value, size);
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
    std::memcpy(static_cast<char*>(tensor->data) + offset, data, size);
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
    std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
}

bool copy_tensor(ggml_backend_buffer_t, const ggml_tensor* source, ggml_tensor* destination) {
    const ggml_tensor* owner = root_of(source);
    if (!owner->buffer || !ggml().backend_buft_is_host(owner->buffer->buft)) return false;
    std::memcpy(destination->data, source->data, ggml().nbytes(source));
    return true;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) { std::memset(buffer->context, value, buffer->size); }

// What is not named, ggml does without; of what else there is, releases have more or less.
constexpr ggml_backend_buffer_i buffer_interface = [] {
    ggml_backend_buffer_i made{};
    made.free_buffer = free_buffer;
    made.get_base = get_base;
    made.memset_tensor = memset_tensor;
    made.set_tensor = set_tensor;
    made.get_tensor = get_tensor;
    made.cpy_tensor = copy_tensor;
    made.clear = clear;
    return made;
}();

const char* get_name(ggml_backend_buffer_type_t) { return "Winnow"; }

ggml_backend_buffer_t alloc_host_memory(ggml_backend_buffer_type_t type, size_t size) {
    // aligned_alloc wants a multiple of the alignment; large blocks are mapped and take memory only as they are
    // written.
    const size_t rounded = (size + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
    void* memory =
        rounded < size ? nullptr : std::aligned_alloc(buffer_alignment, rounded ? rounded : buffer_alignment);
    if (!memory) {
        log_line(GGML_LOG_LEVEL_ERROR, "cannot allocate a buffer of %zu bytes", size);
        return nullptr;
    }
#ifdef MADV_HUGEPAGE
    // A hint, and a third less time over a long cache: the hardware's prefetchers stop at the end of a page.
    madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return ggml().backend_buffer_init(type, buffer_interface, memory, size);
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    try {
        const KvConfig config = kv_config();
        return config.is_set() ? make_virtual_buffer(type, size, config) : alloc_host_memory(type, size);
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        return nullptr;
    }
}

size_t get_alignment(ggml_backend_buffer_type_t) { return tensor_alignment; }

bool is_host(ggml_backend_buffer_type_t) { return true; }

} // namespace

ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t device) {
    static ggml_backend_buffer_type type = [device] {
        ggml_backend_buffer_type made{};
        made.iface.get_name = get_name;
        made.iface.alloc_buffer = alloc_buffer;
        made.iface.get_alignment = get_alignment;
        made.iface.is_host = is_host;
        made.device = device;
        return made;
    }();
    return &type;
}

} // namespace winnow::ggml
