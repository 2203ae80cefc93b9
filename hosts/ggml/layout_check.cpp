// ggml is let make a few things of each kind, and use a few of ours. What a wrong guess could break comes last: numbers
// first, then tensors and graphs, then interfaces. A wrong guess must not end the process: no pointer is followed that
// was not seen to lead into memory of ours, and whatever ggml calls is a function.
#include "layout_check.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml-impl.h"

#include "ggml_api.hpp"
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
    }
}

struct Freed {
    void operator()(ggml_context* context) const { ggml().free(context); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml().backend_buffer_free(buffer); }
};

// What ggml makes lies in here.
using Memory = std::vector<std::max_align_t>;

// Whether a pointer leads to so many bytes of this memory.
bool holds(const Memory& memory, const void* pointer, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data()), from = reinterpret_cast<uintptr_t>(pointer);
    const size_t size = memory.size() * sizeof memory[0];
    return from >= begin && from - begin <= size && bytes <= size - (from - begin);
}

void check_graph(const Memory& memory, ggml_context* context, ggml_tensor* attention, const ggml_tensor* mask) {
    const GgmlApi& api = ggml();
    ggml_cgraph* graph = api.new_graph(context);
    api.build_forward_expand(graph, attention);
    expect(graph->n_nodes == api.graph_n_nodes(graph) && graph->n_nodes > 0, "the number of nodes of ggml_cgraph");
    const auto last = static_cast<size_t>(graph->n_nodes - 1);
    expect(holds(memory, graph->nodes, (last + 1) * sizeof graph->nodes[0]) && graph->nodes[last] == attention &&
               api.graph_node(graph, graph->n_nodes - 1) == attention,
           "the nodes of ggml_cgraph");
    expect(has_work(attention), "the flags of ggml_tensor");
    const ggml_hash_set& visited = graph->visited_hash_set;
    expect(visited.size <= memory.size() && holds(memory, visited.keys, visited.size * sizeof visited.keys[0]) &&
               holds(memory, visited.used, visited.size / 8),
           "the hash table of ggml_cgraph");
    size_t keys = 0;
    for (size_t i = 0; i < visited.size; ++i) {
        keys += ggml_bitset_get(visited.used, i) && (visited.keys[i] == attention || visited.keys[i] == mask);
    }
    expect(keys == 2, "the keys of the hash table of ggml_cgraph");
}

// Nodes as llama.cpp makes them for a cache. The arguments are those of which ggml's own functions make a node.
void check_nodes(const Memory& memory, ggml_context* context) {
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

    check_graph(memory, context, attention, mask);
}

// A structure of ggml's with functions in it, and more behind it than any has: in each place is a function that says
// from which one it was called.
constexpr size_t places = 64;
constexpr size_t nowhere = places;
size_t called_at = nowhere;
using Places = std::array<void*, places>;
struct Block {
    Places at;
};

template <size_t Place>
void* stub() {
    called_at = Place;
    return nullptr; // or false, or nothing
}

// A buffer's base, which must not be NULL.
template <size_t Place>
void* stub_with_base() {
    called_at = Place;
    return &called_at;
}

template <size_t... Place>
Block stubs(std::index_sequence<Place...>) {
    return {{reinterpret_cast<void*>(stub<Place>)...}};
}

Block stubs() { return stubs(std::make_index_sequence<places>()); }

template <typename Structure>
Structure* as(Block& block) {
    return reinterpret_cast<Structure*>(block.at.data());
}

// Puts a pointer where a structure has this field.
#define WINNOW_SET(block, structure, field, pointer) (block).at.at(offsetof(structure, field) / sizeof(void*)) = pointer

template <typename Call>
void expect_call(const char* function, size_t offset, Call&& call) {
    called_at = nowhere;
    call();
    if (called_at == offset / sizeof(void*)) return;
    differ(std::string(function) + " is " +
           (called_at == nowhere ? "not called" : "at " + std::to_string(called_at * sizeof(void*))) +
           ", expected at " + std::to_string(offset));
}

#define WINNOW_EXPECT_CALL(structure, interface, function, call)                                                       \
    expect_call(#interface "::" #function, offsetof(structure, iface) + offsetof(interface, function), [&] { call; })

void check_registration() {
    const GgmlApi& api = ggml();
    Block block = stubs();
    auto* reg = as<ggml_backend_reg>(block);
    WINNOW_EXPECT_CALL(ggml_backend_reg, ggml_backend_reg_i, get_name, api.backend_reg_name(reg));
    WINNOW_EXPECT_CALL(ggml_backend_reg, ggml_backend_reg_i, get_device_count, api.backend_reg_dev_count(reg));
    WINNOW_EXPECT_CALL(ggml_backend_reg, ggml_backend_reg_i, get_proc_address,
                       api.backend_reg_get_proc_address(reg, ""));
}

void check_device() {
    const GgmlApi& api = ggml();
    Block block = stubs(), registration = stubs();
    auto* device = as<ggml_backend_device>(block);
    WINNOW_SET(block, ggml_backend_device, reg, &registration);
    expect(api.backend_dev_backend_reg(device) == as<ggml_backend_reg>(registration), "the reg of ggml_backend_device");
    using Device = ggml_backend_device;
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_name, api.backend_dev_name(device));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_description, api.backend_dev_description(device));
    size_t free = 0, total = 0;
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_memory, api.backend_dev_memory(device, &free, &total));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_type, api.backend_dev_type(device));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, init_backend, api.backend_dev_init(device, nullptr));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_buffer_type, api.backend_dev_buffer_type(device));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, supports_op, api.backend_dev_supports_op(device, nullptr));
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, supports_buft, api.backend_dev_supports_buft(device, nullptr));

    // ggml sets all of a device's properties to 0 before the device fills them in.
    constexpr unsigned char untouched = 0xa5;
    alignas(ggml_backend_dev_props) std::array<unsigned char, 4 * sizeof(ggml_backend_dev_props)> properties;
    properties.fill(untouched);
    WINNOW_EXPECT_CALL(Device, ggml_backend_device_i, get_props,
                       api.backend_dev_get_props(device, reinterpret_cast<ggml_backend_dev_props*>(properties.data())));
    const auto end = std::find(properties.begin(), properties.end(), untouched);
    expect_equal("the size of a device's properties", static_cast<size_t>(end - properties.begin()),
                 sizeof(ggml_backend_dev_props));
}

void check_buffer(ggml_context* context) {
    const GgmlApi& api = ggml();
    Block device = stubs(), type_block = stubs();
    auto* type = as<ggml_backend_buffer_type>(type_block);
    WINNOW_SET(type_block, ggml_backend_buffer_type, device, &device);
    expect(api.backend_buft_get_device(type) == as<ggml_backend_device>(device), "the device of a type of buffers");
    using Type = ggml_backend_buffer_type;
    WINNOW_EXPECT_CALL(Type, ggml_backend_buffer_type_i, get_name, api.backend_buft_name(type));
    WINNOW_EXPECT_CALL(Type, ggml_backend_buffer_type_i, alloc_buffer, api.backend_buft_alloc_buffer(type, 1));
    WINNOW_EXPECT_CALL(Type, ggml_backend_buffer_type_i, get_alignment, api.backend_buft_get_alignment(type));
    WINNOW_EXPECT_CALL(Type, ggml_backend_buffer_type_i, is_host, api.backend_buft_is_host(type));

    // An interface goes by value. The callee takes as much of it as it knows, which more than that does no harm.
    using Init = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, Block, void*, size_t);
    Block interface = stubs();
    constexpr size_t base = offsetof(ggml_backend_buffer_i, get_base) / sizeof(void*);
    interface.at.at(base) = reinterpret_cast<void*>(stub_with_base<base>);
    constexpr size_t size = 4096;
    const std::unique_ptr<ggml_backend_buffer, Freed> buffer(
        reinterpret_cast<Init>(reinterpret_cast<void*>(api.backend_buffer_init))(type, interface, &device, size));
    expect(buffer->buft == type && buffer->context == &device && buffer->size == size &&
               api.backend_buffer_get_size(buffer.get()) == size,
           "what is behind the interface of ggml_backend_buffer");
    float memory = 0;
    ggml_tensor* tensor = api.new_tensor_1d(context, GGML_TYPE_F32, 1);
    tensor->buffer = buffer.get();
    tensor->data = &memory;
    using Buffer = ggml_backend_buffer;
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, clear, api.backend_buffer_clear(buffer.get(), 0));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, init_tensor,
                       api.backend_buffer_init_tensor(buffer.get(), tensor));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, memset_tensor, api.backend_tensor_memset(tensor, 0, 0, 1));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, set_tensor, api.backend_tensor_set(tensor, &memory, 0, 1));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, get_tensor, api.backend_tensor_get(tensor, &memory, 0, 1));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, cpy_tensor, api.backend_buffer_copy_tensor(tensor, tensor));
    WINNOW_EXPECT_CALL(Buffer, ggml_backend_buffer_i, get_base, api.backend_buffer_get_base(buffer.get()));
}

void check_backend() {
    const GgmlApi& api = ggml();
    Block block = stubs(), device = stubs();
    auto* backend = as<ggml_backend>(block);
    WINNOW_SET(block, ggml_backend, device, &device);
    expect(api.backend_get_device(backend) == as<ggml_backend_device>(device), "the device of ggml_backend");
    WINNOW_EXPECT_CALL(ggml_backend, ggml_backend_i, get_name, api.backend_name(backend));
    WINNOW_EXPECT_CALL(ggml_backend, ggml_backend_i, graph_compute, api.backend_graph_compute_async(backend, nullptr));
    WINNOW_EXPECT_CALL(ggml_backend, ggml_backend_i, free, api.backend_free(backend));
}

} // namespace

std::string layout_difference() {
    try {
        check_operations();
        check_types();
        constexpr size_t object = 32; // what ggml keeps before each tensor
        expect_equal("the size of ggml_tensor", ggml().tensor_overhead() - object, sizeof(ggml_tensor));
        constexpr size_t enough = size_t{1} << 20;
        Memory memory(enough / sizeof(std::max_align_t));
        const std::unique_ptr<ggml_context, Freed> context(
            ggml().init({.mem_size = enough, .mem_buffer = memory.data(), .no_alloc = true}));
        if (!context) differ("ggml_init has no memory");
        expect(ggml().get_mem_buffer(context.get()) == memory.data() && ggml().get_mem_size(context.get()) == enough &&
                   ggml().get_no_alloc(context.get()),
               "what is in ggml_init_params");
        check_nodes(memory, context.get());
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
