// Reading a SET_ROWS: rows of all heads of a token, and the cells they are for.
#include "deferred_rows.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

#include "ggml_api.hpp"
#include "tensors.hpp"
#include "translate.hpp"

namespace winnow::ggml {

void DeferredRows::check(const ggml_tensor* root, const ggml_tensor* node) {
    const ggml_tensor* rows = node->src[0];
    const ggml_tensor* indices = node->src[1];
    if (node->ne[0] != root->ne[0] || rows->ne[2] != 1 || rows->ne[3] != 1 || indices->ne[1] != 1 ||
        indices->ne[2] != 1) {
        throw std::runtime_error(std::string(root->name) +
                                 " is written in parts of a token's row; expected whole rows, as flash attention "
                                 "(-fa on) has them");
    }
    const uint32_t type = type_of(rows->type);
    const bool is_dense = type == WINNOW_TYPE_F32 || type == WINNOW_TYPE_F16 || type == WINNOW_TYPE_BF16;
    if (!is_dense || (indices->type != GGML_TYPE_I64 && indices->type != GGML_TYPE_I32)) {
        throw std::runtime_error(std::string(root->name) + ": rows of type " + ggml().type_name(rows->type) +
                                 " at indices of type " + ggml().type_name(indices->type) +
                                 ", expected f32, f16 or bf16 at i32 or i64");
    }
}

DeferredRows::DeferredRows(const ggml_tensor* root, const ggml_tensor* node)
    : root_(root), cells_of_stream_(root->ne[1]) {
    check(root, node);
    const ggml_tensor* rows = node->src[0];
    const ggml_tensor* indices = node->src[1];
    type_ = type_of(rows->type);
    data_ = static_cast<const char*>(rows->data);
    element_bytes_ = static_cast<int64_t>(rows->nb[0]);
    row_bytes_ = element_bytes_ * rows->ne[0];
    stride_ = static_cast<int64_t>(rows->nb[1]);
    for (int64_t i = 0; i < rows->ne[1]; ++i) {
        const char* at = static_cast<const char*>(indices->data) + static_cast<size_t>(i) * indices->nb[0];
        const int64_t cell = indices->type == GGML_TYPE_I64 ? *reinterpret_cast<const int64_t*>(at)
                                                            : *reinterpret_cast<const int32_t*>(at);
        if (cell < 0 || cell >= root->ne[1] * root->ne[2]) {
            throw std::runtime_error(std::string(root->name) + ": a row for cell " + std::to_string(cell) +
                                     ", expected 0 to " + std::to_string(root->ne[1] * root->ne[2] - 1));
        }
        cells_.push_back(cell);
    }
}

std::vector<int32_t> DeferredRows::cells(int64_t first, int64_t count) const {
    std::vector<int32_t> local;
    for (int64_t i = first; i < first + count; ++i)
        local.push_back(static_cast<int32_t>(cells_[static_cast<size_t>(i)] % cells_of_stream_));
    return local;
}

winnow_tensor DeferredRows::tensor(int64_t first, int64_t count, int64_t heads, int64_t size, int64_t stride,
                                   int64_t skip) const {
    return rows_over(type_, data_ + first * stride_, {heads, count, size, element_bytes_, stride_, stride, skip});
}

bool DeferredRows::overlaps(const ggml_tensor* other) const {
    const char* begin = static_cast<const char*>(other->data);
    return data_ < begin + ggml().nbytes(other) && begin < data_ + (tokens() - 1) * stride_ + row_bytes_;
}

void DeferredRows::detach() {
    if (!own_.empty()) return;
    std::vector<char> copy(static_cast<size_t>(tokens() * row_bytes_));
    for (int64_t i = 0; i < tokens(); ++i)
        std::memcpy(&copy[static_cast<size_t>(i * row_bytes_)], data_ + i * stride_, static_cast<size_t>(row_bytes_));
    own_ = std::move(copy);
    data_ = own_.data();
    stride_ = row_bytes_;
}

} // namespace winnow::ggml
