// ggml is let make a few things of each kind, and use a few of ours. What a wrong guess could break comes last: numbers
// first, then tensors and graphs, then interfaces.
#include "layout_check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ggml-impl.h"

#include "ggml_api.hpp"
#include "layout.hpp"
#include "translate.hpp"

namespace winnow::ggml {

namespace {

[[noreturn]] void differ(const std::string& what) { throw std::runtime_error(what); }

void expect(bool agrees, const char* what) {
    if (!agrees) differ(std::string(what) + " lies elsewhere");
}

template <typename Number>
void expect_equal(const std::string& what, Number found, Number expected) {
    if (found != expected) differ(what + " is " + std::to_string(found) + ", expected " + std::to_string(expected));
}

void check_operations() {
    constexpr std::pair<ggml_op, std::string_view> expected[] = {
        {GGML_OP_NONE, "NONE"},           {GGML_OP_CPY, "CPY"},
        {GGML_OP_CONT, "CONT"},           {GGML_OP_RESHAPE, "RESHAPE"},
        {GGML_OP_VIEW, "VIEW"},           {GGML_OP_PERMUTE, "PERMUTE"},
        {GGML_OP_TRANSPOSE, "TRANSPOSE"}, {GGML_OP_SET_ROWS, "SET_ROWS"},
        {GGML_OP_ROPE, "ROPE"},           {GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT"}};
    for (const auto& [number, name] : expected) {
        const std::string found = ggml().op_name(number);
        if (found != name)
            differ("operation " + std::to_string(number) + " is " + found + ", expected " + std::string(name));
    }
}

void check_types() {
    constexpr struct {
        ggml_type number;
        std::string_view name;
        int64_t block;
        size_t bytes;
    } expected[] = {
        {GGML_TYPE_F32, "f32", 1, 4},     {GGML_TYPE_F16, "f16", 1, 2},        {GGML_TYPE_BF16, "bf16", 1, 2},
        {GGML_TYPE_I32, "i32", 1, 4},     {GGML_TYPE_I64, "i64", 1, 8},        {GGML_TYPE_Q8_0, "q8_0", 32, 34},
        {GGML_TYPE_Q5_1, "q5_1", 32, 24}, {GGML_TYPE_Q5_0, "q5_0", 32, 22},    {GGML_TYPE_Q4_1, "q4_1", 32, 20},
        {GGML_TYPE_Q4_0, "q4_0", 32, 18}, {GGML_TYPE_IQ4_NL, "iq4_nl", 32, 18}};
    for (const auto& [number, name, block, bytes] : expected) {
        const std::string found = ggml().type_name(number);
        if (found != name)
            differ("type " + std::to_string(number) + " is " + found + ", expected " + std::string(name));
        expect_equal("the block of " + found, ggml().blck_size(number), block);
        expect_equal("the size of " + found, ggml().type_size(number), bytes);
        const ggml_type_traits& traits = *ggml().get_type_traits(number);
        expect(traits.type_name == name && traits.blck_size == block && traits.type_size == bytes, "ggml_type_traits");
    }
}

struct Freed {
    void operator()(ggml_context* context) const { ggml().free(context); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml().backend_buffer_free(buffer); }
};

// Nodes as llama.cpp makes them for a cache. The arguments are those of which ggml's own functions make a node.
void check_nodes(ggml_context* context) {
    constexpr int64_t size = 32, tokens = 3, heads = 4, cells = 64;
    constexpr float scale = 0.25f, max_bias = 8.0f, softcap = 30.0f;
    const GgmlApi& api = ggml();
    ggml_tensor* cache = api.new_tensor_4d(context, GGML_TYPE_F16, size, cells, heads, 1);
    expect(cache->type == GGML_TYPE_F16 && cache->op == GGML_OP_NONE, "the type or the operation of ggml_tensor");
    const std::array<int64_t, 4> shape{size, cells, heads, 1};
    expect(std::equal(shape.begin(), shape.end(), cache->ne), "the shape of ggml_tensor");
    constexpr size_t row = 2 * size;
    const std::array<size_t, 4> strides{2, row, row * cells, row * cells * heads};
    expect(std::equal(strides.begin(), strides.end(), cache->nb), "the strides of ggml_tensor");
    expect(cache->buffer == nullptr && cache->data == nullptr, "the memory of ggml_tensor");
    constexpr std::string_view name = "a name";
    api.set_name(cache, name.data());
    expect(cache->name == name, "the name of ggml_tensor");

    const ggml_tensor* view = api.view_1d(context, cache, size, row);
    expect(view->op == GGML_OP_VIEW && view->view_src == cache && view->view_offs == row, "the view of ggml_tensor");

    ggml_tensor* query = api.new_tensor_4d(context, GGML_TYPE_F32, size, tokens, heads, 1);
    ggml_tensor* values = api.new_tensor_4d(context, GGML_TYPE_F16, size, cells, heads, 1);
    ggml_tensor* mask = api.new_tensor_4d(context, GGML_TYPE_F16, cells, size, 1, 1); // rows to spare, as is padded
    ggml_tensor* sinks = api.new_tensor_1d(context, GGML_TYPE_F32, heads);
    ggml_tensor* attention = api.flash_attn_ext(context, query, cache, values, mask, scale, max_bias, softcap);
    api.flash_attn_ext_add_sinks(attention, sinks);
    const std::array<const ggml_tensor*, 5> sources{query, cache, values, mask, sinks};
    expect(attention->op == GGML_OP_FLASH_ATTN_EXT && std::equal(sources.begin(), sources.end(), attention->src) &&
               !attention->src[5],
           "the sources of FLASH_ATTN_EXT");
    const std::array<float, 3> parameters{scale, max_bias, softcap};
    std::array<float, 3> found{};
    std::memcpy(found.data(), attention->op_params, sizeof found);
    expect(found == parameters, "the parameters of FLASH_ATTN_EXT");

    ggml_tensor* rows = api.new_tensor_3d(context, GGML_TYPE_F32, size, tokens, heads);
    ggml_tensor* indices = api.new_tensor_1d(context, GGML_TYPE_I64, tokens);
    const ggml_tensor* append = api.set_rows(context, cache, rows, indices);
    expect(append->op == GGML_OP_SET_ROWS && append->src[0] == rows && append->src[1] == indices &&
               append->view_src == cache && append->type == cache->type,
           "the sources of SET_ROWS");

    ggml_cgraph* graph = api.new_graph(context);
    api.build_forward_expand(graph, attention);
    expect(graph->n_nodes == api.graph_n_nodes(graph) && graph->n_nodes > 0, "the number of nodes of ggml_cgraph");
    expect(graph->nodes[graph->n_nodes - 1] == attention && api.graph_node(graph, graph->n_nodes - 1) == attention,
           "the nodes of ggml_cgraph");
    expect(has_work(attention), "the flags of ggml_tensor");
    const ggml_hash_set& visited = graph->visited_hash_set;
    size_t keys = 0;
    for (size_t i = 0; i < visited.size; ++i) {
        keys += ggml_bitset_get(visited.used, i) && (visited.keys[i] == attention || visited.keys[i] == mask);
    }
    expect(keys == 2, "the hash table of ggml_cgraph");
}

// What ggml's functions called last, of the interfaces below.
std::string_view called;

// A function of an interface that says that it was called.
template <const char* name, typename Function>
struct Stub;
template <const char* name, typename Result, typename... Arguments>
struct Stub<name, Result (*)(Arguments...)> {
    static Result call(Arguments...) {
        called = name;
        if constexpr (std::is_pointer_v<Result>)
            return const_cast<Result>(reinterpret_cast<const std::remove_pointer_t<Result>*>(name));
        else if constexpr (!std::is_void_v<Result>)
            return Result{};
    }
};

// Puts a stub into an interface.
#define WINNOW_STUB(interface, member)                                                                                 \
    static constexpr char member[] = #member;                                                                          \
    (interface).member = Stub<member, decltype((interface).member)>::call

void expect_called(std::string_view name) {
    if (called != name) differ(std::string(called) + " is called for " + std::string(name));
    called = {};
}

// Interfaces of our own: a structure's size shows in what ggml finds behind it, the order of functions in which of
// them it calls.
void check_registration() {
    const GgmlApi& api = ggml();
    ggml_backend_reg reg{};
    reg.api_version = GGML_BACKEND_API_VERSION;
    WINNOW_STUB(reg.iface, get_name);
    WINNOW_STUB(reg.iface, get_device_count);
    WINNOW_STUB(reg.iface, get_device);
    WINNOW_STUB(reg.iface, get_proc_address);
    api.backend_reg_name(&reg);
    expect_called("get_name");
    api.backend_reg_dev_count(&reg);
    expect_called("get_device_count");
    api.backend_reg_get_proc_address(&reg, "");
    expect_called("get_proc_address");
}

void check_device() {
    const GgmlApi& api = ggml();
    ggml_backend_reg reg{};
    ggml_backend_device device{};
    device.reg = &reg;
    if (api.backend_dev_backend_reg(&device) != &reg) differ("the interface of devices has another size");
    WINNOW_STUB(device.iface, get_name);
    WINNOW_STUB(device.iface, get_description);
    WINNOW_STUB(device.iface, get_memory);
    WINNOW_STUB(device.iface, get_type);
    WINNOW_STUB(device.iface, get_props);
    WINNOW_STUB(device.iface, init_backend);
    WINNOW_STUB(device.iface, get_buffer_type);
    WINNOW_STUB(device.iface, supports_op);
    WINNOW_STUB(device.iface, supports_buft);
    api.backend_dev_name(&device);
    expect_called("get_name");
    api.backend_dev_description(&device);
    expect_called("get_description");
    size_t free = 0, total = 0;
    api.backend_dev_memory(&device, &free, &total);
    expect_called("get_memory");
    api.backend_dev_type(&device);
    expect_called("get_type");
    api.backend_dev_init(&device, nullptr);
    expect_called("init_backend");
    api.backend_dev_buffer_type(&device);
    expect_called("get_buffer_type");
    api.backend_dev_supports_op(&device, nullptr);
    expect_called("supports_op");
    api.backend_dev_supports_buft(&device, nullptr);
    expect_called("supports_buft");

    // ggml sets all of a device's properties to 0 before the device fills them in.
    constexpr unsigned char untouched = 0xa5;
    alignas(ggml_backend_dev_props) std::array<unsigned char, 4 * sizeof(ggml_backend_dev_props)> properties;
    properties.fill(untouched);
    api.backend_dev_get_props(&device, reinterpret_cast<ggml_backend_dev_props*>(properties.data()));
    expect_called("get_props");
    const auto end = std::find(properties.begin(), properties.end(), untouched);
    expect_equal("the size of a device's properties", static_cast<size_t>(end - properties.begin()),
                 sizeof(ggml_backend_dev_props));
}

void check_buffer(ggml_context* context) {
    const GgmlApi& api = ggml();
    ggml_backend_device device{};
    ggml_backend_buffer_type type{};
    type.device = &device;
    if (api.backend_buft_get_device(&type) != &device) differ("the interface of buffer types has another size");
    WINNOW_STUB(type.iface, get_name);
    WINNOW_STUB(type.iface, alloc_buffer);
    WINNOW_STUB(type.iface, get_alignment);
    WINNOW_STUB(type.iface, is_host);
    api.backend_buft_name(&type);
    expect_called("get_name");
    api.backend_buft_alloc_buffer(&type, 1);
    expect_called("alloc_buffer");
    api.backend_buft_get_alignment(&type);
    expect_called("get_alignment");
    api.buft_is_host(&type);
    expect_called("is_host");

    ggml_backend_buffer_i interface {};
    WINNOW_STUB(interface, free_buffer);
    WINNOW_STUB(interface, get_base);
    WINNOW_STUB(interface, init_tensor);
    WINNOW_STUB(interface, memset_tensor);
    WINNOW_STUB(interface, set_tensor);
    WINNOW_STUB(interface, get_tensor);
    WINNOW_STUB(interface, cpy_tensor);
    WINNOW_STUB(interface, clear);
    constexpr size_t size = 4096;
    const std::unique_ptr<ggml_backend_buffer, Freed> buffer(api.buffer_init(&type, interface, &device, size));
    if (buffer->buft != &type || buffer->context != &device || buffer->size != size ||
        buffer->iface.clear != interface.clear || api.backend_buffer_get_size(buffer.get()) != size)
        differ("the interface of buffers has another size");
    api.backend_buffer_get_base(buffer.get());
    expect_called("get_base");
    api.backend_buffer_clear(buffer.get(), 0);
    expect_called("clear");
    float memory = 0;
    ggml_tensor* tensor = api.new_tensor_1d(context, GGML_TYPE_F32, 1);
    tensor->buffer = buffer.get();
    tensor->data = &memory;
    api.backend_buffer_init_tensor(buffer.get(), tensor);
    expect_called("init_tensor");
    api.backend_tensor_memset(tensor, 0, 0, sizeof memory);
    expect_called("memset_tensor");
    api.backend_tensor_set(tensor, &memory, 0, sizeof memory);
    expect_called("set_tensor");
    api.backend_tensor_get(tensor, &memory, 0, sizeof memory);
    expect_called("get_tensor");
    api.backend_buffer_copy_tensor(tensor, tensor);
    expect_called("cpy_tensor");
}

void check_backend() {
    const GgmlApi& api = ggml();
    ggml_backend_device device{};
    ggml_backend backend{};
    backend.device = &device;
    if (api.backend_get_device(&backend) != &device) differ("the interface of backends has another size");
    WINNOW_STUB(backend.iface, get_name);
    WINNOW_STUB(backend.iface, free);
    WINNOW_STUB(backend.iface, graph_compute);
    api.backend_name(&backend);
    expect_called("get_name");
    api.backend_graph_compute_async(&backend, nullptr);
    expect_called("graph_compute");
    api.backend_free(&backend);
    expect_called("free");
}

} // namespace

std::string layout_difference() {
    try {
        check_operations();
        check_types();
        constexpr size_t object = 32; // what ggml keeps before each tensor
        expect_equal("the size of ggml_tensor", ggml().tensor_overhead() - object, sizeof(ggml_tensor));
        constexpr size_t enough = size_t{1} << 20;
        const std::unique_ptr<ggml_context, Freed> context(
            ggml().init({.mem_size = enough, .mem_buffer = nullptr, .no_alloc = true}));
        if (!context) differ("ggml_init has no memory");
        check_nodes(context.get());
        check_registration();
        check_device();
        check_buffer(context.get());
        check_backend();
        return "";
    } catch (const std::runtime_error& difference) {
        return difference.what();
    }
}

} // namespace winnow::ggml
