// What this host takes for granted of ggml's headers, as far as the compiler can see it. Compiled against every release
// that the build is given, for a release that says otherwise needs a file of its own in versions/. What can be seen in
// a running process alone is in layout_check.cpp.
#include <type_traits>

#include "ggml-impl.h"

#include "layout.hpp"

namespace winnow::ggml {

namespace {

template <typename Expected, typename Found>
constexpr bool same = std::is_same_v<Expected, Found>;

// The file of versions/ that belongs to these headers.
static_assert(sizeof(ggml_backend_buffer_i) == layout.buffer_interface);
static_assert(sizeof(ggml_backend_i) == layout.backend_interface);
static_assert(sizeof(ggml_cgraph) == layout.graph);
static_assert(sizeof(ggml_backend_dev_caps) == layout.capabilities);
static_assert(GGML_OP_FLASH_ATTN_EXT == layout.flash_attn_ext);
static_assert(same<GraphOptimize, decltype(ggml_backend_i::graph_optimize)>);

static_assert(GGML_BACKEND_API_VERSION == 2);

// Tensors.
static_assert(GGML_MAX_DIMS == 4 && GGML_MAX_SRC == 10);
static_assert(sizeof(ggml_tensor) == 336);
static_assert(offsetof(ggml_tensor, type) == 0 && sizeof(ggml_type) == 4);
static_assert(offsetof(ggml_tensor, buffer) == 8);
static_assert(offsetof(ggml_tensor, ne) == 16 && same<int64_t[4], decltype(ggml_tensor::ne)>);
static_assert(offsetof(ggml_tensor, nb) == 48 && same<size_t[4], decltype(ggml_tensor::nb)>);
static_assert(offsetof(ggml_tensor, op) == 80 && sizeof(ggml_op) == 4);
static_assert(offsetof(ggml_tensor, op_params) == 84 && same<int32_t[16], decltype(ggml_tensor::op_params)>);
static_assert(offsetof(ggml_tensor, flags) == 148 && same<int32_t, decltype(ggml_tensor::flags)>);
static_assert(offsetof(ggml_tensor, src) == 152 && same<ggml_tensor* [10], decltype(ggml_tensor::src)>);
static_assert(offsetof(ggml_tensor, view_src) == 232);
static_assert(offsetof(ggml_tensor, view_offs) == 240);
static_assert(offsetof(ggml_tensor, data) == 248);
static_assert(offsetof(ggml_tensor, name) == 256 && same<char[64], decltype(ggml_tensor::name)>);
static_assert(GGML_TENSOR_FLAG_COMPUTE == 16);

// Graphs.
static_assert(offsetof(ggml_cgraph, n_nodes) == 4 && same<int, decltype(ggml_cgraph::n_nodes)>);
static_assert(offsetof(ggml_cgraph, nodes) == 16 && same<ggml_tensor**, decltype(ggml_cgraph::nodes)>);
static_assert(offsetof(ggml_cgraph, visited_hash_set) == 56);
static_assert(sizeof(ggml_hash_set) == 24 && offsetof(ggml_hash_set, used) == 8 && offsetof(ggml_hash_set, keys) == 16);
static_assert(same<uint32_t, ggml_bitset_t>);

// Operations.
static_assert(GGML_OP_NONE == 0 && GGML_OP_CPY == 34 && GGML_OP_CONT == 35 && GGML_OP_RESHAPE == 36);
static_assert(GGML_OP_VIEW == 37 && GGML_OP_PERMUTE == 38 && GGML_OP_TRANSPOSE == 39 && GGML_OP_SET_ROWS == 42);
static_assert(GGML_OP_ROPE == 48);

// Types.
static_assert(GGML_TYPE_F32 == 0 && GGML_TYPE_F16 == 1 && GGML_TYPE_Q4_0 == 2 && GGML_TYPE_Q4_1 == 3);
static_assert(GGML_TYPE_Q5_0 == 6 && GGML_TYPE_Q5_1 == 7 && GGML_TYPE_Q8_0 == 8 && GGML_TYPE_Q2_K == 10);
static_assert(GGML_TYPE_Q3_K == 11 && GGML_TYPE_Q4_K == 12 && GGML_TYPE_Q5_K == 13 && GGML_TYPE_Q6_K == 14);
static_assert(GGML_TYPE_IQ4_NL == 20 && GGML_TYPE_IQ4_XS == 23 && GGML_TYPE_I32 == 26 && GGML_TYPE_I64 == 27);
static_assert(GGML_TYPE_BF16 == 30 && GGML_TYPE_TQ1_0 == 34 && GGML_TYPE_TQ2_0 == 35 && GGML_TYPE_MXFP4 == 39);
static_assert(GGML_TYPE_NVFP4 == 40);
static_assert(sizeof(ggml_type_traits) == 56 && offsetof(ggml_type_traits, type_name) == 0);
static_assert(offsetof(ggml_type_traits, to_float) == 40 && offsetof(ggml_type_traits, from_float_ref) == 48);
static_assert(same<void (*)(const void*, float*, int64_t), ggml_to_float_t>);
static_assert(same<void (*)(const float*, void*, int64_t), ggml_from_float_t>);

// Small enumerations.
static_assert(GGML_STATUS_FAILED == -1 && GGML_STATUS_SUCCESS == 0 && GGML_STATUS_ABORTED == 1);
static_assert(GGML_LOG_LEVEL_DEBUG == 1 && GGML_LOG_LEVEL_INFO == 2 && GGML_LOG_LEVEL_WARN == 3);
static_assert(GGML_LOG_LEVEL_ERROR == 4);
static_assert(GGML_BACKEND_DEVICE_TYPE_CPU == 0 && GGML_BACKEND_DEVICE_TYPE_IGPU == 2);

// Buffers.
using Tensor = ggml_tensor*;
using ConstTensor = const ggml_tensor*;
using Buffer = ggml_backend_buffer_t;
using BufferType = ggml_backend_buffer_type_t;
using BufferInterface = ggml_backend_buffer_i;
constexpr size_t interface_end = sizeof(BufferInterface);
static_assert(sizeof(ggml_backend_buffer) == interface_end + 32 && offsetof(ggml_backend_buffer, iface) == 0);
static_assert(offsetof(ggml_backend_buffer, buft) == interface_end);
static_assert(offsetof(ggml_backend_buffer, context) == interface_end + 8);
static_assert(offsetof(ggml_backend_buffer, size) == interface_end + 16);
static_assert(offsetof(BufferInterface, free_buffer) == 0 && same<void (*)(Buffer), decltype(BufferInterface::reset)>);
static_assert(same<void (*)(Buffer), decltype(BufferInterface::free_buffer)>);
static_assert(offsetof(BufferInterface, get_base) == 8 && same<void* (*)(Buffer), decltype(BufferInterface::get_base)>);
static_assert(offsetof(BufferInterface, init_tensor) == 16);
static_assert(same<ggml_status (*)(Buffer, Tensor), decltype(BufferInterface::init_tensor)>);
static_assert(offsetof(BufferInterface, memset_tensor) == 24);
static_assert(same<void (*)(Buffer, Tensor, uint8_t, size_t, size_t), decltype(BufferInterface::memset_tensor)>);
static_assert(offsetof(BufferInterface, set_tensor) == 32);
static_assert(same<void (*)(Buffer, Tensor, const void*, size_t, size_t), decltype(BufferInterface::set_tensor)>);
static_assert(offsetof(BufferInterface, get_tensor) == 40);
static_assert(same<void (*)(Buffer, ConstTensor, void*, size_t, size_t), decltype(BufferInterface::get_tensor)>);
static_assert(offsetof(BufferInterface, cpy_tensor) == interface_end - 24);
static_assert(same<bool (*)(Buffer, ConstTensor, Tensor), decltype(BufferInterface::cpy_tensor)>);
static_assert(offsetof(BufferInterface, clear) == interface_end - 16);
static_assert(same<void (*)(Buffer, uint8_t), decltype(BufferInterface::clear)>);
static_assert(offsetof(BufferInterface, reset) == interface_end - 8);

using BufferTypeInterface = ggml_backend_buffer_type_i;
static_assert(sizeof(ggml_backend_buffer_type) == 64 && offsetof(ggml_backend_buffer_type, iface) == 0);
static_assert(offsetof(ggml_backend_buffer_type, device) == 48 && offsetof(ggml_backend_buffer_type, context) == 56);
static_assert(offsetof(BufferTypeInterface, get_name) == 0);
static_assert(same<const char* (*)(BufferType), decltype(BufferTypeInterface::get_name)>);
static_assert(offsetof(BufferTypeInterface, alloc_buffer) == 8);
static_assert(same<Buffer (*)(BufferType, size_t), decltype(BufferTypeInterface::alloc_buffer)>);
static_assert(offsetof(BufferTypeInterface, get_alignment) == 16);
static_assert(same<size_t (*)(BufferType), decltype(BufferTypeInterface::get_alignment)>);
static_assert(offsetof(BufferTypeInterface, get_max_size) == 24);
static_assert(offsetof(BufferTypeInterface, get_alloc_size) == 32);
static_assert(offsetof(BufferTypeInterface, is_host) == 40);
static_assert(same<bool (*)(BufferType), decltype(BufferTypeInterface::is_host)>);

// Backends. Those functions of the interface that this host leaves out are not looked at, but where they end.
using Backend = ggml_backend_t;
using BackendInterface = ggml_backend_i;
static_assert(sizeof(ggml_backend) == sizeof(BackendInterface) + 24 && offsetof(ggml_backend, guid) == 0);
static_assert(offsetof(ggml_backend, iface) == 8);
static_assert(offsetof(ggml_backend, device) == sizeof(BackendInterface) + 8);
static_assert(offsetof(ggml_backend, context) == sizeof(BackendInterface) + 16);
static_assert(same<uint8_t (*)[16], ggml_guid_t>);
static_assert(offsetof(BackendInterface, get_name) == 0);
static_assert(same<const char* (*)(Backend), decltype(BackendInterface::get_name)>);
static_assert(offsetof(BackendInterface, free) == 8 && same<void (*)(Backend), decltype(BackendInterface::free)>);
static_assert(offsetof(BackendInterface, synchronize) == sizeof(BackendInterface) - 72);
static_assert(offsetof(BackendInterface, graph_compute) == sizeof(BackendInterface) - 32);
static_assert(same<ggml_status (*)(Backend, ggml_cgraph*), decltype(BackendInterface::graph_compute)>);
static_assert(offsetof(BackendInterface, graph_optimize) == sizeof(BackendInterface) - 8);

// Devices and their registration.
using Device = ggml_backend_dev_t;
using DeviceInterface = ggml_backend_device_i;
static_assert(sizeof(DeviceInterface) == 120 && sizeof(ggml_backend_device) == 136);
static_assert(offsetof(ggml_backend_device, reg) == 120 && offsetof(ggml_backend_device, context) == 128);
static_assert(offsetof(DeviceInterface, get_name) == 0);
static_assert(same<const char* (*)(Device), decltype(DeviceInterface::get_name)>);
static_assert(offsetof(DeviceInterface, get_description) == 8);
static_assert(same<const char* (*)(Device), decltype(DeviceInterface::get_description)>);
static_assert(offsetof(DeviceInterface, get_memory) == 16);
static_assert(same<void (*)(Device, size_t*, size_t*), decltype(DeviceInterface::get_memory)>);
static_assert(offsetof(DeviceInterface, get_type) == 24);
static_assert(same<enum ggml_backend_dev_type (*)(Device), decltype(DeviceInterface::get_type)>);
static_assert(offsetof(DeviceInterface, get_props) == 32);
static_assert(same<void (*)(Device, ggml_backend_dev_props*), decltype(DeviceInterface::get_props)>);
static_assert(offsetof(DeviceInterface, init_backend) == 40);
static_assert(same<Backend (*)(Device, const char*), decltype(DeviceInterface::init_backend)>);
static_assert(offsetof(DeviceInterface, get_buffer_type) == 48);
static_assert(same<BufferType (*)(Device), decltype(DeviceInterface::get_buffer_type)>);
static_assert(offsetof(DeviceInterface, supports_op) == 72);
static_assert(same<bool (*)(Device, ConstTensor), decltype(DeviceInterface::supports_op)>);
static_assert(offsetof(DeviceInterface, supports_buft) == 80);
static_assert(same<bool (*)(Device, BufferType), decltype(DeviceInterface::supports_buft)>);
static_assert(sizeof(ggml_backend_dev_props) == 56 && offsetof(ggml_backend_dev_props, name) == 0);
static_assert(offsetof(ggml_backend_dev_props, description) == 8);
static_assert(offsetof(ggml_backend_dev_props, memory_free) == 16);
static_assert(offsetof(ggml_backend_dev_props, memory_total) == 24);
static_assert(offsetof(ggml_backend_dev_props, type) == 32 && offsetof(ggml_backend_dev_props, caps) == 48);

using Registry = ggml_backend_reg_t;
using RegistryInterface = ggml_backend_reg_i;
static_assert(sizeof(ggml_backend_reg) == 48 && offsetof(ggml_backend_reg, api_version) == 0);
static_assert(offsetof(ggml_backend_reg, iface) == 8 && offsetof(ggml_backend_reg, context) == 40);
static_assert(offsetof(RegistryInterface, get_name) == 0);
static_assert(same<const char* (*)(Registry), decltype(RegistryInterface::get_name)>);
static_assert(offsetof(RegistryInterface, get_device_count) == 8);
static_assert(same<size_t (*)(Registry), decltype(RegistryInterface::get_device_count)>);
static_assert(offsetof(RegistryInterface, get_device) == 16);
static_assert(same<Device (*)(Registry, size_t), decltype(RegistryInterface::get_device)>);
static_assert(offsetof(RegistryInterface, get_proc_address) == 24);
static_assert(same<void* (*)(Registry, const char*), decltype(RegistryInterface::get_proc_address)>);

// What is looked up by name: ggml_api.hpp.
using Context = ggml_context*;
static_assert(same<const char*(), decltype(ggml_version)>);
static_assert(same<Buffer(BufferType, BufferInterface, void*, size_t), decltype(ggml_backend_buffer_init)>);
static_assert(same<bool(BufferType), decltype(ggml_backend_buft_is_host)>);
static_assert(same<size_t(ConstTensor), decltype(ggml_nbytes)>);
static_assert(same<const ggml_type_traits*(ggml_type), decltype(ggml_get_type_traits)>);
static_assert(same<const char*(ggml_op), decltype(ggml_op_name)>);
static_assert(same<int(ggml_cgraph*), decltype(ggml_graph_n_nodes)>);
static_assert(same<Tensor(ggml_cgraph*, int), decltype(ggml_graph_node)>);
static_assert(sizeof(ggml_init_params) == 24 && same<Context(ggml_init_params), decltype(ggml_init)>);
static_assert(same<void(Context), decltype(ggml_free)>);
static_assert(same<Tensor(Context, ggml_type, int64_t), decltype(ggml_new_tensor_1d)>);
static_assert(same<Tensor(Context, ggml_type, int64_t, int64_t, int64_t), decltype(ggml_new_tensor_3d)>);
static_assert(same<Tensor(Context, Tensor, Tensor, Tensor, int, int, int, float, float, float, float, float, float),
                   decltype(ggml_rope_ext)>);
static_assert(same<ggml_cgraph*(Context), decltype(ggml_new_graph)>);
static_assert(same<void(ggml_cgraph*, Tensor), decltype(ggml_build_forward_expand)>);
static_assert(same<Device(enum ggml_backend_dev_type), decltype(ggml_backend_dev_by_type)>);
static_assert(same<Backend(Device, const char*), decltype(ggml_backend_dev_init)>);
static_assert(same<ggml_status(Backend, ggml_cgraph*), decltype(ggml_backend_graph_compute)>);
static_assert(same<void(Backend), decltype(ggml_backend_free)>);
static_assert(same<size_t(), decltype(ggml_tensor_overhead)>);
static_assert(same<const char*(ggml_type), decltype(ggml_type_name)>);
static_assert(same<int64_t(ggml_type), decltype(ggml_blck_size)>);
static_assert(same<size_t(ggml_type), decltype(ggml_type_size)>);
static_assert(same<Tensor(Tensor, const char*), decltype(ggml_set_name)>);
static_assert(same<Tensor(Context, ggml_type, int64_t, int64_t, int64_t, int64_t), decltype(ggml_new_tensor_4d)>);
static_assert(same<Tensor(Context, Tensor, int64_t, size_t), decltype(ggml_view_1d)>);
static_assert(same<Tensor(Context, Tensor, Tensor, Tensor), decltype(ggml_set_rows)>);
static_assert(
    same<Tensor(Context, Tensor, Tensor, Tensor, Tensor, float, float, float), decltype(ggml_flash_attn_ext)>);
static_assert(same<void(Tensor, Tensor), decltype(ggml_flash_attn_ext_add_sinks)>);
static_assert(same<void(Buffer, uint8_t), decltype(ggml_backend_buffer_clear)>);
static_assert(same<bool(ConstTensor, Tensor), decltype(ggml_backend_buffer_copy_tensor)>);
static_assert(same<void(Buffer), decltype(ggml_backend_buffer_free)>);
static_assert(same<void*(Buffer), decltype(ggml_backend_buffer_get_base)>);
static_assert(same<size_t(Buffer), decltype(ggml_backend_buffer_get_size)>);
static_assert(same<ggml_status(Buffer, Tensor), decltype(ggml_backend_buffer_init_tensor)>);
static_assert(same<Buffer(BufferType, size_t), decltype(ggml_backend_buft_alloc_buffer)>);
static_assert(same<size_t(BufferType), decltype(ggml_backend_buft_get_alignment)>);
static_assert(same<Device(BufferType), decltype(ggml_backend_buft_get_device)>);
static_assert(same<const char*(BufferType), decltype(ggml_backend_buft_name)>);
static_assert(same<Registry(Device), decltype(ggml_backend_dev_backend_reg)>);
static_assert(same<BufferType(Device), decltype(ggml_backend_dev_buffer_type)>);
static_assert(same<const char*(Device), decltype(ggml_backend_dev_description)>);
static_assert(same<void(Device, ggml_backend_dev_props*), decltype(ggml_backend_dev_get_props)>);
static_assert(same<void(Device, size_t*, size_t*), decltype(ggml_backend_dev_memory)>);
static_assert(same<const char*(Device), decltype(ggml_backend_dev_name)>);
static_assert(same<bool(Device, BufferType), decltype(ggml_backend_dev_supports_buft)>);
static_assert(same<bool(Device, ConstTensor), decltype(ggml_backend_dev_supports_op)>);
static_assert(same<enum ggml_backend_dev_type(Device), decltype(ggml_backend_dev_type)>);
static_assert(same<Device(Backend), decltype(ggml_backend_get_device)>);
static_assert(same<ggml_status(Backend, ggml_cgraph*), decltype(ggml_backend_graph_compute_async)>);
static_assert(same<const char*(Backend), decltype(ggml_backend_name)>);
static_assert(same<size_t(Registry), decltype(ggml_backend_reg_dev_count)>);
static_assert(same<void*(Registry, const char*), decltype(ggml_backend_reg_get_proc_address)>);
static_assert(same<const char*(Registry), decltype(ggml_backend_reg_name)>);
static_assert(same<void(ConstTensor, void*, size_t, size_t), decltype(ggml_backend_tensor_get)>);
static_assert(same<void(Tensor, uint8_t, size_t, size_t), decltype(ggml_backend_tensor_memset)>);
static_assert(same<void(Tensor, const void*, size_t, size_t), decltype(ggml_backend_tensor_set)>);
static_assert(requires(ggml_log_level level, const char* text) { ggml_log_internal(level, "%s", text); });
static_assert(same<bool (*)(void*), ggml_abort_callback>);

} // namespace

} // namespace winnow::ggml
