// One of the families for each type.
#include "reference/row.hpp"

#include <string>

#include "reference/element.hpp"
#include "reference/formats.hpp"

namespace winnow::reference {

void decode_row(Type type, const std::byte* row, int64_t n, double* x) {
    if (is_ggml(type)) return decode_ggml(type, row, n, x);
    if (is_affine(type)) return decode_affine(type, row, n, x);
    if (is_sparse(type)) return decode_sparse(type, row, n, x);
    if (is_rotated(type)) return decode_turbo(type, row, n, x);
    const int64_t size = static_cast<int64_t>(type_size(type));
    for (int64_t i = 0; i < n; ++i) x[i] = load(type, row + i * size);
}

void encode_row(Type type, std::byte* row, int64_t n, const double* x, Norm norm) {
    if (is_ggml(type)) return encode_ggml(type, row, n, x);
    if (is_affine(type)) return encode_affine(type, row, n, x);
    if (is_sparse(type)) return encode_sparse(type, row, n, x);
    if (is_rotated(type)) return encode_turbo(type, row, n, x, norm);
    const int64_t size = static_cast<int64_t>(type_size(type));
    for (int64_t i = 0; i < n; ++i) store(type, row + i * size, x[i]);
}

void require_rows(const Tensor& tensor, const char* name) {
    if (!is_storage_format(tensor.type)) refuse_type(tensor.type);
    if (is_rotated(tensor.type) && tensor.shape[3] > largest_rotation)
        throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + ": " + type_name(tensor.type) + " rows of " +
                                                  std::to_string(tensor.shape[3]) + " elements, expected at most " +
                                                  std::to_string(largest_rotation));
}

} // namespace winnow::reference
