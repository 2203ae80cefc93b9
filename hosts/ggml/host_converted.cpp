// The loops around ggml's row conversions.
#include "host_converted.hpp"

#include <cstdint>

#include "ggml_api.hpp"
#include "host_converted_types.hpp"

namespace winnow::ggml {

namespace {

char* row(const ggml_tensor* tensor, int64_t i1, int64_t i2, int64_t i3) {
    return static_cast<char*>(tensor->data) + static_cast<size_t>(i1) * tensor->nb[1] +
           static_cast<size_t>(i2) * tensor->nb[2] + static_cast<size_t>(i3) * tensor->nb[3];
}

int64_t row_index(const ggml_tensor* indices, int64_t i, int64_t i1, int64_t i2) {
    const char* at =
        row(indices, i1 % indices->ne[1], i2 % indices->ne[2], 0) + static_cast<size_t>(i) * indices->nb[0];
    return indices->type == GGML_TYPE_I64 ? *reinterpret_cast<const int64_t*>(at)
                                          : *reinterpret_cast<const int32_t*>(at);
}

// A template, whose names of types may be missing in the headers.
template <typename Type>
constexpr bool is_listed(Type type) {
#define WINNOW_IS_TYPE(name)                                                                                           \
    if constexpr (requires { Type::name; }) {                                                                          \
        if (type == Type::name) return true;                                                                           \
    }
    WINNOW_HOST_CONVERTED_TYPES(WINNOW_IS_TYPE)
#undef WINNOW_IS_TYPE
    return false;
}

} // namespace

bool is_host_converted(enum ggml_type type) { return is_listed(type); }

bool can_set_host_converted(const ggml_tensor* node) {
    const ggml_tensor* rows = node->src[0];
    const ggml_tensor* indices = node->src[1];
    return is_host_converted(node->type) && (rows->type == GGML_TYPE_F32 || rows->type == GGML_TYPE_F16) &&
           (indices->type == GGML_TYPE_I64 || indices->type == GGML_TYPE_I32);
}

void set_host_converted(const ggml_tensor* node) {
    const ggml_tensor* rows = node->src[0];
    const ggml_tensor* indices = node->src[1];
    const auto quantize = ggml().get_type_traits(node->type)->from_float_ref;
    const auto widen = ggml().get_type_traits(rows->type)->to_float;
    std::vector<float> wide(rows->type == GGML_TYPE_F32 ? 0 : static_cast<size_t>(rows->ne[0]));
    for (int64_t i3 = 0; i3 < rows->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < rows->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < rows->ne[1]; ++i1) {
                const int64_t target = row_index(indices, i1, i2, i3);
                if (target < 0 || target >= node->ne[1]) continue;
                const char* from = row(rows, i1, i2, i3);
                if (!wide.empty()) widen(from, wide.data(), rows->ne[0]);
                quantize(wide.empty() ? reinterpret_cast<const float*>(from) : wide.data(), row(node, target, i2, i3),
                         rows->ne[0]);
            }
        }
    }
}

std::vector<float> convert_to_f32(const ggml_tensor* tensor) {
    const auto widen = ggml().get_type_traits(tensor->type)->to_float;
    std::vector<float> wide(static_cast<size_t>(tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3]));
    float* to = wide.data();
    for (int64_t i3 = 0; i3 < tensor->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < tensor->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < tensor->ne[1]; ++i1, to += tensor->ne[0]) {
                widen(row(tensor, i1, i2, i3), to, tensor->ne[0]);
            }
        }
    }
    return wide;
}

} // namespace winnow::ggml
