// Descriptions without memory, as winnow_api.supports takes them.
#include "probe_shapes.hpp"

#include <array>

namespace winnow::tools {
namespace {

struct StorageType {
    const char* name;
    uint32_t type;
    int64_t size;
};
constexpr std::array<StorageType, 3> storage_types{
    {{"f32", WINNOW_TYPE_F32, 4}, {"f16", WINNOW_TYPE_F16, 2}, {"bf16", WINNOW_TYPE_BF16, 2}}};

struct Shape {
    const char* name;
    int64_t q_heads, kv_heads, head_size, q_len, kv_len;
};
constexpr std::array<Shape, 4> shapes{{
    {"decode", 32, 8, 128, 1, 4096},
    {"decode, long", 32, 8, 128, 1, 32768},
    {"draft", 32, 8, 128, 8, 4096},
    {"prompt", 32, 8, 128, 512, 4096},
}};

winnow_tensor dense(const StorageType& type, int64_t a, int64_t b, int64_t c, int64_t d) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type.type;
    const int64_t sizes[4] = {a, b, c, d};
    int64_t stride = type.size;
    for (int axis = 3; axis >= 0; --axis) {
        tensor.shape[axis] = sizes[axis];
        tensor.stride[axis] = stride;
        stride *= sizes[axis];
    }
    return tensor;
}

VariantAnswer ask(const winnow_api& api, winnow_context* context, uint32_t operation, const void* desc,
                  VariantAnswer question) {
    char variant[512] = "";
    question.status = api.supports(context, operation, desc, variant, sizeof variant);
    question.text = question.status == WINNOW_OK ? variant : api.context_message(context);
    return question;
}

VariantAnswer ask_sdpa(const winnow_api& api, winnow_context* context, const Shape& shape, const StorageType& kv) {
    const winnow_tensor q = dense(storage_types[0], 1, shape.q_heads, shape.q_len, shape.head_size);
    const winnow_tensor k = dense(kv, 1, shape.kv_heads, shape.kv_len, shape.head_size);
    const winnow_tensor out = dense(storage_types[0], 1, shape.q_heads, shape.q_len, shape.head_size);
    winnow_sdpa_desc desc{};
    desc.struct_size = sizeof desc;
    desc.q = &q;
    desc.k = &k;
    desc.v = &k; // the same shape; nothing is read
    desc.out = &out;
    desc.is_causal = 1;
    desc.q_offset = shape.kv_len - shape.q_len;
    const std::string text = std::string(shape.name) + " " + kv.name + ", " + std::to_string(shape.q_heads) + "/" +
                             std::to_string(shape.kv_heads) + " heads x " + std::to_string(shape.head_size) + ", " +
                             std::to_string(shape.q_len) + " x " + std::to_string(shape.kv_len) + " tokens";
    return ask(api, context, WINNOW_OPERATION_SDPA, &desc, {"sdpa", text, WINNOW_OK, ""});
}

VariantAnswer ask_append(const winnow_api& api, winnow_context* context, const StorageType& kv) {
    const StorageType indices{"i64", WINNOW_TYPE_I64, 8};
    const winnow_tensor src = dense(storage_types[0], 1, 8, 1, 128);
    const winnow_tensor cache = dense(kv, 1, 8, 4096, 128);
    const winnow_tensor rows = dense(indices, 1, 1, 1, 1);
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = desc.v_src = &src;
    desc.k_cache = desc.v_cache = &cache;
    desc.k_row_indices = &rows;
    const std::string text = std::string("append ") + kv.name + ", 8 heads x 128, 1 token";
    return ask(api, context, WINNOW_OPERATION_KV_APPEND, &desc, {"kv_append", text, WINNOW_OK, ""});
}

} // namespace

std::vector<VariantAnswer> ask_variants(const winnow_api& api, winnow_context* context) {
    std::vector<VariantAnswer> answers;
    for (const Shape& shape : shapes)
        for (const StorageType& type : storage_types) answers.push_back(ask_sdpa(api, context, shape, type));
    for (const StorageType& type : storage_types) answers.push_back(ask_append(api, context, type));
    return answers;
}

} // namespace winnow::tools
