// ggml's buffer interface over virtual buffers. Its functions return nothing: what they cannot do poisons the caches,
// so that every attention after it fails and says why.
#include <exception>

#include "device.hpp"
#include "ggml_api.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

VirtualBuffer& of(ggml_backend_buffer_t buffer) { return *static_cast<VirtualBuffer*>(buffer->context); }

template <typename Action>
void guarded(ggml_backend_buffer_t buffer, Action&& action) {
    try {
        action(of(buffer));
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        of(buffer).poison(error.what());
    }
}

void free_buffer(ggml_backend_buffer_t buffer) { delete &of(buffer); }

void* get_base(ggml_backend_buffer_t buffer) { return of(buffer).base(); }

enum ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) {
    bool is_added = false;
    guarded(buffer, [&](VirtualBuffer& own) {
        own.add(tensor);
        is_added = true;
    });
    return is_added ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, uint8_t value, size_t offset, size_t size) {
    guarded(buffer, [&](VirtualBuffer& own) { own.fill(tensor, value, offset, size); });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
    guarded(buffer, [&](VirtualBuffer& own) { own.write(tensor, data, offset, size); });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
    try {
        of(buffer).read(tensor, data, offset, size);
    } catch (const std::exception& error) { // what was read is NaN
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
    }
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    guarded(buffer, [&](VirtualBuffer& own) { own.clear(value); });
}

// What is not named, ggml does without; of what else there is, releases have more or less.
constexpr ggml_backend_buffer_i buffer_interface = [] {
    ggml_backend_buffer_i made{};
    made.free_buffer = free_buffer;
    made.get_base = get_base;
    made.init_tensor = init_tensor;
    made.memset_tensor = memset_tensor;
    made.set_tensor = set_tensor;
    made.get_tensor = get_tensor;
    made.clear = clear;
    return made;
}();

} // namespace

VirtualBuffer* virtual_buffer_of(const ggml_tensor* tensor) {
    const ggml_tensor* root = root_of(tensor);
    if (!root->buffer || root->buffer->iface.free_buffer != free_buffer) return nullptr;
    VirtualBuffer& buffer = of(root->buffer);
    return buffer.has_root(root) ? &buffer : nullptr;
}

VirtualBuffer* virtual_buffer_touched(const ggml_tensor* node) {
    if (!VirtualBuffer::are_any()) return nullptr;
    if (VirtualBuffer* buffer = virtual_buffer_of(node)) return buffer;
    for (const ggml_tensor* source : node->src) {
        if (!source) continue;
        if (VirtualBuffer* buffer = virtual_buffer_of(source)) return buffer;
    }
    return nullptr;
}

ggml_backend_buffer_t make_virtual_buffer(ggml_backend_buffer_type_t type, size_t size, const KvConfig& config) {
    auto made = std::make_unique<VirtualBuffer>(registration()->plugin.library(), registration()->report, config, size);
    ggml_backend_buffer_t buffer = ggml().backend_buffer_init(type, buffer_interface, made.get(), size);
    made.release();
    return buffer;
}

} // namespace winnow::ggml
