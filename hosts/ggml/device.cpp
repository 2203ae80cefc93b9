// A ggml device of type IGPU: llama.cpp then gives it the KV cache and offers it the graph, as it would an integrated
// GPU, and needs no copies because the memory is the host's.
#include "device.hpp"

#include <exception>
#include <unistd.h>

#include "backend.hpp"
#include "buffer.hpp"
#include "ggml_api.hpp"
#include "translate.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

Registration* the_registration = nullptr;

Registration& of(ggml_backend_dev_t device) { return *static_cast<Registration*>(device->context); }

const char* get_name(ggml_backend_dev_t) { return "Winnow"; }

const char* get_description(ggml_backend_dev_t device) { return of(device).description.c_str(); }

// The buffers are host memory, whatever the device is. Never 0, which llama.cpp takes for "cannot hold anything".
void get_memory(ggml_backend_dev_t, size_t* free, size_t* total) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    *total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page;
    *free = *total; // as ggml's CPU device says: the page cache makes way
}

enum ggml_backend_dev_type get_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_IGPU; }

// Lets llama.cpp map files in spite of this device, where it asks: the field is not in all versions.
template <typename Capabilities>
void allow_mmap(Capabilities& capabilities) {
    if constexpr (requires { capabilities.mmap_support; }) capabilities.mmap_support = true;
}

void get_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
    *props = ggml_backend_dev_props{};
    props->name = get_name(device);
    props->description = get_description(device);
    get_memory(device, &props->memory_free, &props->memory_total);
    props->type = get_type(device);
    allow_mmap(props->caps);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) { return make_backend(of(device)); }

// A buffer that does not claim a node is in place from then on; another may have tensors of the node as well.
bool is_claimed(const ggml_tensor* node) {
    try {
        while (VirtualBuffer* buffer = virtual_buffer_touched(node)) {
            if (buffer->claims(node)) return true;
        }
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        return true; // nobody else could
    }
    return false;
}

// Whether rows lie in a tensor that lasts, as a cache does, and that llama.cpp gave to no other device; where it lies
// is not known before it has memory. What a graph computes by itself stays with the backend that computed it: ggml's
// scheduler offers each node to this device, since the memory of the two is one type (get_host_buffer_type).
bool may_lie_here(ggml_backend_dev_t device, const ggml_tensor* rows) {
    const ggml_tensor* root = root_of(rows);
    while (root->op == GGML_OP_CPY) root = root_of(root->src[0]); // a cache in f32, which llama.cpp converts
    return root->op == GGML_OP_NONE && (!root->buffer || root->buffer->buft == buffer_type(device));
}

bool supports_op(ggml_backend_dev_t device, const ggml_tensor* node) {
    if (is_claimed(node)) return true;
    switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE: return true;
    case GGML_OP_FLASH_ATTN_EXT: {
        SdpaNode sdpa;
        return may_lie_here(device, node->src[1]) && sdpa.translate(node, nullptr) &&
               of(device).plugin.supports(sdpa.desc());
    }
    case GGML_OP_SET_ROWS: {
        if (node->view_src && !may_lie_here(device, node->view_src)) return false;
        if (sets_no_rows(node)) return true;
        AppendNode append;
        return append.translate(node, nullptr) && of(device).plugin.supports(append.desc());
    }
    default: return false;
    }
}

bool supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return ggml().backend_buft_is_host(type); }

// What is not named, ggml does without; of what else there is, versions have more or less.
constexpr ggml_backend_device_i device_interface = [] {
    ggml_backend_device_i made{};
    made.get_name = get_name;
    made.get_description = get_description;
    made.get_memory = get_memory;
    made.get_type = get_type;
    made.get_props = get_props;
    made.init_backend = init_backend;
    made.get_buffer_type = buffer_type;
    // llama.cpp's CPU backend computes in such memory then. Where two backends compute in one type of memory, the
    // scheduler gives a node to the first that takes it: without that an attention that follows none of Winnow's nodes,
    // as in layers that use the keys of another, would stay with the CPU backend.
    made.get_host_buffer_type = buffer_type;
    made.supports_op = supports_op;
    made.supports_buft = supports_buft;
    return made;
}();

} // namespace

Registration* registration() { return the_registration; }

void set_registration(Registration* registration) { the_registration = registration; }

void make_device(Registration& registration, ggml_backend_reg_t reg) {
    const winnow_device_info& info = registration.plugin.device();
    registration.description =
        std::string(info.name) + " (" + registration.plugin.api().backend_name + ", " + info.kernel_shape + ")";
    registration.device.iface = device_interface;
    registration.device.reg = reg;
    registration.device.context = &registration;
}

} // namespace winnow::ggml
