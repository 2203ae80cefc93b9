// Shapes and strides.
#include "tensors.hpp"

#include <cstring>

namespace winnow::ggml {

winnow_tensor flat(uint32_t type, int64_t element_bytes, const void* data, int64_t count) {
    return rows_over(type, data, {1, 1, count, element_bytes, element_bytes * count, count});
}

winnow_tensor token_ids_over(const std::vector<int32_t>& ids) {
    return flat(WINNOW_TYPE_I32, sizeof(int32_t), ids.data(), static_cast<int64_t>(ids.size()));
}

winnow_cache_rows_desc rows_desc(int64_t layer, int64_t stream, const winnow_tensor& tokens) {
    winnow_cache_rows_desc desc{};
    desc.struct_size = sizeof desc;
    desc.layer = layer;
    desc.sequence = stream;
    desc.tokens = &tokens;
    return desc;
}

winnow_tensor rows_over(uint32_t type, const void* data, const RowsLayout& layout) {
    winnow_tensor to{};
    to.struct_size = sizeof to;
    to.type = type;
    to.data = const_cast<char*>(static_cast<const char*>(data)) + layout.skip * layout.element_bytes;
    const int64_t shape[4] = {1, layout.heads, layout.rows, layout.size};
    const int64_t strides[4] = {layout.row_bytes * layout.rows, layout.stride * layout.element_bytes, layout.row_bytes,
                                layout.element_bytes};
    std::memcpy(to.shape, shape, sizeof shape);
    std::memcpy(to.stride, strides, sizeof strides);
    return to;
}

} // namespace winnow::ggml
