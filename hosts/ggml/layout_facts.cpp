// What this host takes for granted of ggml's headers, and where it depends on their layout. CMake compiles this file
// against each source tree that it is given and reads the lines of `facts` in the object: a `fault` says where the
// headers are not as this host needs them; trees whose `layout` lines are equal share a library. What can only be seen
// in a running process is in layout_check.cpp.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

namespace {

// "[with Type = int]" or "[Type = int]", as the compiler spells it.
template <typename Type>
constexpr const char* function_with() {
    return __PRETTY_FUNCTION__;
}

template <typename Type>
constexpr std::string_view name_of() {
    constexpr std::string_view text = function_with<Type>(), before = "Type = ";
    constexpr size_t begin = text.find(before) + before.size();
    return text.substr(begin, text.rfind(']') - begin);
}

class Facts {
public:
    // A number on which compiled code depends.
    constexpr void layout(std::string_view what, long long number) {
        add("winnow layout ");
        add(what);
        add(" ");
        add(number);
        add("\n");
    }

    constexpr void fault(std::string_view what, std::string_view is, std::string_view expected) {
        add("winnow fault ");
        add(what);
        add(" is ");
        add(is);
        add(", expected ");
        add(expected);
        add("\n");
    }

    template <typename Found, typename Expected>
    constexpr void type(std::string_view what) {
        if (!std::is_same_v<Found, Expected>) fault(what, name_of<Found>(), name_of<Expected>());
    }

    // An array of at least so many elements, some of which are used by number.
    template <typename Found, typename Element>
    constexpr void array(std::string_view what, size_t least) {
        if (!std::is_same_v<std::remove_extent_t<Found>, Element> || std::extent_v<Found> < least)
            fault(what, name_of<Found>(), "a larger array, or one of other elements");
        layout(what, std::extent_v<Found>);
    }

private:
    constexpr void add(std::string_view text) {
        for (const char character : text) text_.at(size_++) = character;
    }

    constexpr void add(long long number) {
        if (number < 0) add("-");
        const long long size = number < 0 ? -number : number;
        if (size >= 10) add(size / 10);
        const char digit = static_cast<char>('0' + size % 10);
        add(std::string_view(&digit, 1));
    }

    std::array<char, 1 << 15> text_{};
    size_t size_ = 0;
};

// Names of ggml's are looked up as a template's, so that one that is gone is a fault and no error of the compiler's.
// Functions alone cannot be, and the compiler says which there is not.
#define WINNOW_FIELD(structure, member, ...)                                                                           \
    [&]<typename Struct>() {                                                                                           \
        if constexpr (requires { &Struct::member; }) {                                                                 \
            facts.layout(#structure "::" #member, offsetof(Struct, member));                                           \
            facts.type<decltype(Struct::member), __VA_ARGS__>(#structure "::" #member);                                \
        } else {                                                                                                       \
            facts.fault(#structure "::" #member, "gone", name_of<__VA_ARGS__>());                                      \
        }                                                                                                              \
    }.template operator()<structure>()
#define WINNOW_ARRAY(structure, member, element, least)                                                                \
    [&]<typename Struct>() {                                                                                           \
        if constexpr (requires { &Struct::member; }) {                                                                 \
            facts.layout(#structure "::" #member, offsetof(Struct, member));                                           \
            facts.array<decltype(Struct::member), element>(#structure "::" #member, least);                            \
        } else {                                                                                                       \
            facts.fault(#structure "::" #member, "gone", "an array of " #element);                                     \
        }                                                                                                              \
    }.template operator()<structure>()
#define WINNOW_NUMBER(enumeration, name)                                                                               \
    [&]<typename Enum>() {                                                                                             \
        if constexpr (requires { Enum::name; })                                                                        \
            facts.layout(#name, static_cast<long long>(Enum::name));                                                   \
        else                                                                                                           \
            facts.fault(#name, "gone", "a number of " #enumeration);                                                   \
    }.template operator()<enumeration>()
#define WINNOW_SIZE(structure) facts.layout("sizeof " #structure, sizeof(structure))
#define WINNOW_FUNCTION(function, ...) facts.type<decltype(function), __VA_ARGS__>(#function)

using Type = ggml_type;
using Tensor = ggml_tensor*;
using ConstTensor = const ggml_tensor*;
using Buffer = ggml_backend_buffer_t;
using BufferType = ggml_backend_buffer_type_t;
using Backend = ggml_backend_t;
using Device = ggml_backend_dev_t;
using Registry = ggml_backend_reg_t;
using Context = ggml_context*;
using Graph = ggml_cgraph*;
using DeviceType = enum ggml_backend_dev_type; // a function has the same name

constexpr void tensors(Facts& facts) {
    WINNOW_SIZE(ggml_tensor);
    WINNOW_FIELD(ggml_tensor, type, ggml_type);
    WINNOW_FIELD(ggml_tensor, buffer, Buffer);
    WINNOW_FIELD(ggml_tensor, ne, int64_t[4]);
    WINNOW_FIELD(ggml_tensor, nb, size_t[4]);
    WINNOW_FIELD(ggml_tensor, op, ggml_op);
    WINNOW_ARRAY(ggml_tensor, op_params, int32_t, 16);
    WINNOW_FIELD(ggml_tensor, flags, int32_t);
    WINNOW_ARRAY(ggml_tensor, src, ggml_tensor*, 10);
    WINNOW_FIELD(ggml_tensor, view_src, Tensor);
    WINNOW_FIELD(ggml_tensor, view_offs, size_t);
    WINNOW_FIELD(ggml_tensor, data, void*);
    WINNOW_ARRAY(ggml_tensor, name, char, 64);
    WINNOW_NUMBER(ggml_tensor_flag, GGML_TENSOR_FLAG_COMPUTE);
}

constexpr void graphs(Facts& facts) {
    WINNOW_SIZE(ggml_cgraph);
    WINNOW_FIELD(ggml_cgraph, n_nodes, int);
    WINNOW_FIELD(ggml_cgraph, nodes, ggml_tensor**);
    WINNOW_FIELD(ggml_cgraph, visited_hash_set, ggml_hash_set);
    WINNOW_SIZE(ggml_hash_set);
    WINNOW_FIELD(ggml_hash_set, size, size_t);
    WINNOW_FIELD(ggml_hash_set, used, uint32_t*);
    WINNOW_FIELD(ggml_hash_set, keys, ggml_tensor**);
}

constexpr void operations_and_types(Facts& facts) {
    WINNOW_NUMBER(ggml_op, GGML_OP_NONE);
    WINNOW_NUMBER(ggml_op, GGML_OP_ADD);
    WINNOW_NUMBER(ggml_op, GGML_OP_CONCAT);
    WINNOW_NUMBER(ggml_op, GGML_OP_CPY);
    WINNOW_NUMBER(ggml_op, GGML_OP_CONT);
    WINNOW_NUMBER(ggml_op, GGML_OP_RESHAPE);
    WINNOW_NUMBER(ggml_op, GGML_OP_VIEW);
    WINNOW_NUMBER(ggml_op, GGML_OP_PERMUTE);
    WINNOW_NUMBER(ggml_op, GGML_OP_TRANSPOSE);
    WINNOW_NUMBER(ggml_op, GGML_OP_SET_ROWS);
    WINNOW_NUMBER(ggml_op, GGML_OP_ROPE);
    WINNOW_NUMBER(ggml_op, GGML_OP_FLASH_ATTN_EXT);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_F32);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_F16);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_BF16);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_I32);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_I64);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_Q4_0);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_Q4_1);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_Q5_0);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_Q5_1);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_Q8_0);
    WINNOW_NUMBER(ggml_type, GGML_TYPE_IQ4_NL);
}

constexpr void small_enumerations(Facts& facts) {
    WINNOW_NUMBER(ggml_status, GGML_STATUS_FAILED);
    WINNOW_NUMBER(ggml_status, GGML_STATUS_SUCCESS);
    WINNOW_NUMBER(ggml_status, GGML_STATUS_ABORTED);
    WINNOW_NUMBER(ggml_status, GGML_STATUS_ALLOC_FAILED);
    WINNOW_NUMBER(ggml_log_level, GGML_LOG_LEVEL_DEBUG);
    WINNOW_NUMBER(ggml_log_level, GGML_LOG_LEVEL_INFO);
    WINNOW_NUMBER(ggml_log_level, GGML_LOG_LEVEL_WARN);
    WINNOW_NUMBER(ggml_log_level, GGML_LOG_LEVEL_ERROR);
    WINNOW_NUMBER(DeviceType, GGML_BACKEND_DEVICE_TYPE_CPU);
    WINNOW_NUMBER(DeviceType, GGML_BACKEND_DEVICE_TYPE_IGPU);
}

constexpr void buffers(Facts& facts) {
    WINNOW_SIZE(ggml_backend_buffer);
    WINNOW_FIELD(ggml_backend_buffer, iface, ggml_backend_buffer_i);
    WINNOW_FIELD(ggml_backend_buffer, buft, BufferType);
    WINNOW_FIELD(ggml_backend_buffer, context, void*);
    WINNOW_FIELD(ggml_backend_buffer, size, size_t);
    WINNOW_SIZE(ggml_backend_buffer_i);
    WINNOW_FIELD(ggml_backend_buffer_i, free_buffer, void (*)(Buffer));
    WINNOW_FIELD(ggml_backend_buffer_i, get_base, void* (*)(Buffer));
    WINNOW_FIELD(ggml_backend_buffer_i, init_tensor, ggml_status(*)(Buffer, Tensor));
    WINNOW_FIELD(ggml_backend_buffer_i, memset_tensor, void (*)(Buffer, Tensor, uint8_t, size_t, size_t));
    WINNOW_FIELD(ggml_backend_buffer_i, set_tensor, void (*)(Buffer, Tensor, const void*, size_t, size_t));
    WINNOW_FIELD(ggml_backend_buffer_i, get_tensor, void (*)(Buffer, ConstTensor, void*, size_t, size_t));
    WINNOW_FIELD(ggml_backend_buffer_i, cpy_tensor, bool (*)(Buffer, ConstTensor, Tensor));
    WINNOW_FIELD(ggml_backend_buffer_i, clear, void (*)(Buffer, uint8_t));
    WINNOW_SIZE(ggml_backend_buffer_type);
    WINNOW_FIELD(ggml_backend_buffer_type, iface, ggml_backend_buffer_type_i);
    WINNOW_FIELD(ggml_backend_buffer_type, device, Device);
    WINNOW_FIELD(ggml_backend_buffer_type, context, void*);
    WINNOW_SIZE(ggml_backend_buffer_type_i);
    WINNOW_FIELD(ggml_backend_buffer_type_i, get_name, const char* (*)(BufferType));
    WINNOW_FIELD(ggml_backend_buffer_type_i, alloc_buffer, Buffer(*)(BufferType, size_t));
    WINNOW_FIELD(ggml_backend_buffer_type_i, get_alignment, size_t(*)(BufferType));
    WINNOW_FIELD(ggml_backend_buffer_type_i, is_host, bool (*)(BufferType));
}

// graph_optimize may have more parameters than these two.
template <typename Function>
struct Parameters;
template <typename... Others>
struct Parameters<void (*)(Backend, Graph, Others...)> {
    static constexpr size_t count = 2 + sizeof...(Others);
};

template <typename Interface>
constexpr void graph_optimize(Facts& facts) {
    using Function = decltype(Interface::graph_optimize);
    if constexpr (requires { Parameters<Function>::count; })
        facts.layout("parameters of ggml_backend_i::graph_optimize", Parameters<Function>::count);
    else
        facts.fault("ggml_backend_i::graph_optimize", name_of<Function>(),
                    "void (*)(ggml_backend*, ggml_cgraph*), with or without more parameters");
}

constexpr void backends(Facts& facts) {
    facts.layout("GGML_BACKEND_API_VERSION", GGML_BACKEND_API_VERSION);
    WINNOW_SIZE(ggml_backend);
    WINNOW_FIELD(ggml_backend, guid, uint8_t(*)[16]);
    WINNOW_FIELD(ggml_backend, iface, ggml_backend_i);
    WINNOW_FIELD(ggml_backend, device, Device);
    WINNOW_FIELD(ggml_backend, context, void*);
    WINNOW_SIZE(ggml_backend_i);
    WINNOW_FIELD(ggml_backend_i, get_name, const char* (*)(Backend));
    WINNOW_FIELD(ggml_backend_i, free, void (*)(Backend));
    WINNOW_FIELD(ggml_backend_i, graph_compute, ggml_status(*)(Backend, Graph));
    WINNOW_FIELD(ggml_backend_i, graph_optimize, decltype(ggml_backend_i::graph_optimize));
    graph_optimize<ggml_backend_i>(facts);
}

constexpr void devices(Facts& facts) {
    WINNOW_SIZE(ggml_backend_device);
    WINNOW_FIELD(ggml_backend_device, iface, ggml_backend_device_i);
    WINNOW_FIELD(ggml_backend_device, reg, Registry);
    WINNOW_FIELD(ggml_backend_device, context, void*);
    WINNOW_SIZE(ggml_backend_device_i);
    WINNOW_FIELD(ggml_backend_device_i, get_name, const char* (*)(Device));
    WINNOW_FIELD(ggml_backend_device_i, get_description, const char* (*)(Device));
    WINNOW_FIELD(ggml_backend_device_i, get_memory, void (*)(Device, size_t*, size_t*));
    WINNOW_FIELD(ggml_backend_device_i, get_type, DeviceType(*)(Device));
    WINNOW_FIELD(ggml_backend_device_i, get_props, void (*)(Device, ggml_backend_dev_props*));
    WINNOW_FIELD(ggml_backend_device_i, init_backend, Backend(*)(Device, const char*));
    WINNOW_FIELD(ggml_backend_device_i, get_buffer_type, BufferType(*)(Device));
    WINNOW_FIELD(ggml_backend_device_i, supports_op, bool (*)(Device, ConstTensor));
    WINNOW_FIELD(ggml_backend_device_i, supports_buft, bool (*)(Device, BufferType));
    WINNOW_SIZE(ggml_backend_dev_props);
    WINNOW_FIELD(ggml_backend_dev_props, name, const char*);
    WINNOW_FIELD(ggml_backend_dev_props, description, const char*);
    WINNOW_FIELD(ggml_backend_dev_props, memory_free, size_t);
    WINNOW_FIELD(ggml_backend_dev_props, memory_total, size_t);
    WINNOW_FIELD(ggml_backend_dev_props, type, DeviceType);
    WINNOW_FIELD(ggml_backend_dev_props, caps, ggml_backend_dev_caps);
    WINNOW_SIZE(ggml_backend_dev_caps);
    WINNOW_SIZE(ggml_backend_reg);
    WINNOW_FIELD(ggml_backend_reg, api_version, int);
    WINNOW_FIELD(ggml_backend_reg, iface, ggml_backend_reg_i);
    WINNOW_FIELD(ggml_backend_reg, context, void*);
    WINNOW_FIELD(ggml_backend_reg_i, get_name, const char* (*)(Registry));
    WINNOW_FIELD(ggml_backend_reg_i, get_device_count, size_t(*)(Registry));
    WINNOW_FIELD(ggml_backend_reg_i, get_device, Device(*)(Registry, size_t));
    WINNOW_FIELD(ggml_backend_reg_i, get_proc_address, void* (*)(Registry, const char*));
}

// What is looked up by name: ggml_api.hpp, loader.cpp.
constexpr void functions(Facts& facts) {
    WINNOW_FUNCTION(ggml_version, const char*());
    WINNOW_FUNCTION(ggml_backend_buffer_init, Buffer(BufferType, ggml_backend_buffer_i, void*, size_t));
    WINNOW_FUNCTION(ggml_backend_buft_is_host, bool(BufferType));
    WINNOW_FUNCTION(ggml_nbytes, size_t(ConstTensor));
    WINNOW_FUNCTION(ggml_op_name, const char*(ggml_op));
    WINNOW_FUNCTION(ggml_graph_n_nodes, int(Graph));
    WINNOW_FUNCTION(ggml_graph_node, Tensor(Graph, int));
    WINNOW_SIZE(ggml_init_params);
    WINNOW_FIELD(ggml_init_params, mem_size, size_t);
    WINNOW_FIELD(ggml_init_params, mem_buffer, void*);
    WINNOW_FIELD(ggml_init_params, no_alloc, bool);
    WINNOW_FUNCTION(ggml_init, Context(ggml_init_params));
    WINNOW_FUNCTION(ggml_free, void(Context));
    WINNOW_FUNCTION(ggml_new_tensor_1d, Tensor(Context, ggml_type, int64_t));
    WINNOW_FUNCTION(ggml_new_tensor_3d, Tensor(Context, ggml_type, int64_t, int64_t, int64_t));
    WINNOW_FUNCTION(ggml_rope_ext,
                    Tensor(Context, Tensor, Tensor, Tensor, int, int, int, float, float, float, float, float, float));
    WINNOW_FUNCTION(ggml_new_graph, Graph(Context));
    WINNOW_FUNCTION(ggml_build_forward_expand, void(Graph, Tensor));
    WINNOW_FUNCTION(ggml_backend_dev_by_type, Device(DeviceType));
    WINNOW_FUNCTION(ggml_backend_dev_init, Backend(Device, const char*));
    WINNOW_FUNCTION(ggml_backend_graph_compute, ggml_status(Backend, Graph));
    WINNOW_FUNCTION(ggml_backend_free, void(Backend));
    WINNOW_FUNCTION(ggml_get_mem_buffer, void*(const ggml_context*));
    WINNOW_FUNCTION(ggml_get_mem_size, size_t(const ggml_context*));
    WINNOW_FUNCTION(ggml_get_no_alloc, bool(Context));
    WINNOW_FUNCTION(ggml_tensor_overhead, size_t());
    WINNOW_FUNCTION(ggml_type_name, const char*(ggml_type));
    WINNOW_FUNCTION(ggml_blck_size, int64_t(Type));
    WINNOW_FUNCTION(ggml_type_size, size_t(Type));
    WINNOW_FUNCTION(ggml_set_name, Tensor(Tensor, const char*));
    WINNOW_FUNCTION(ggml_new_tensor_4d, Tensor(Context, ggml_type, int64_t, int64_t, int64_t, int64_t));
    WINNOW_FUNCTION(ggml_view_1d, Tensor(Context, Tensor, int64_t, size_t));
    WINNOW_FUNCTION(ggml_set_rows, Tensor(Context, Tensor, Tensor, Tensor));
    WINNOW_FUNCTION(ggml_flash_attn_ext, Tensor(Context, Tensor, Tensor, Tensor, Tensor, float, float, float));
    WINNOW_FUNCTION(ggml_flash_attn_ext_add_sinks, void(Tensor, Tensor));
    WINNOW_FUNCTION(ggml_backend_buffer_clear, void(Buffer, uint8_t));
    WINNOW_FUNCTION(ggml_backend_buffer_copy_tensor, bool(ConstTensor, Tensor));
    WINNOW_FUNCTION(ggml_backend_buffer_free, void(Buffer));
    WINNOW_FUNCTION(ggml_backend_buffer_get_base, void*(Buffer));
    WINNOW_FUNCTION(ggml_backend_buffer_get_size, size_t(Buffer));
    WINNOW_FUNCTION(ggml_backend_buffer_init_tensor, ggml_status(Buffer, Tensor));
    WINNOW_FUNCTION(ggml_backend_buft_alloc_buffer, Buffer(BufferType, size_t));
    WINNOW_FUNCTION(ggml_backend_buft_get_alignment, size_t(BufferType));
    WINNOW_FUNCTION(ggml_backend_buft_get_device, Device(BufferType));
    WINNOW_FUNCTION(ggml_backend_buft_name, const char*(BufferType));
    WINNOW_FUNCTION(ggml_backend_dev_backend_reg, Registry(Device));
    WINNOW_FUNCTION(ggml_backend_dev_buffer_type, BufferType(Device));
    WINNOW_FUNCTION(ggml_backend_dev_description, const char*(Device));
    WINNOW_FUNCTION(ggml_backend_dev_get_props, void(Device, ggml_backend_dev_props*));
    WINNOW_FUNCTION(ggml_backend_dev_memory, void(Device, size_t*, size_t*));
    WINNOW_FUNCTION(ggml_backend_dev_name, const char*(Device));
    WINNOW_FUNCTION(ggml_backend_dev_supports_buft, bool(Device, BufferType));
    WINNOW_FUNCTION(ggml_backend_dev_supports_op, bool(Device, ConstTensor));
    WINNOW_FUNCTION(ggml_backend_dev_type, DeviceType(Device));
    WINNOW_FUNCTION(ggml_backend_get_device, Device(Backend));
    WINNOW_FUNCTION(ggml_backend_graph_compute_async, ggml_status(Backend, Graph));
    WINNOW_FUNCTION(ggml_backend_name, const char*(Backend));
    WINNOW_FUNCTION(ggml_backend_reg_count, size_t());
    WINNOW_FUNCTION(ggml_backend_reg_get, Registry(size_t));
    WINNOW_FUNCTION(ggml_backend_reg_dev_count, size_t(Registry));
    WINNOW_FUNCTION(ggml_backend_reg_get_proc_address, void*(Registry, const char*));
    WINNOW_FUNCTION(ggml_backend_reg_name, const char*(Registry));
    WINNOW_FUNCTION(ggml_backend_tensor_get, void(ConstTensor, void*, size_t, size_t));
    WINNOW_FUNCTION(ggml_backend_tensor_memset, void(Tensor, uint8_t, size_t, size_t));
    WINNOW_FUNCTION(ggml_backend_tensor_set, void(Tensor, const void*, size_t, size_t));
    WINNOW_FUNCTION(ggml_log_internal, void(enum ggml_log_level, const char*, ...));
    facts.type<ggml_abort_callback, bool (*)(void*)>("ggml_abort_callback");
}

} // namespace

// In the object, though nothing refers to it.
[[gnu::used]] constexpr Facts facts = [] {
    Facts made;
    tensors(made);
    graphs(made);
    operations_and_types(made);
    small_enumerations(made);
    buffers(made);
    backends(made);
    devices(made);
    functions(made);
    return made;
}();
