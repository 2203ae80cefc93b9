// Checks of the operations that take rows from one format to another.
#include <algorithm>

#include "api/shapes.hpp"
#include "api/structs.hpp"
#include "api/tensor.hpp"
#include "api/validate.hpp"

namespace winnow::api {
namespace {

// rows: how many row indices there have to be; negative: any number.
Tensor to_row_indices(const winnow_context& context, const winnow_tensor* desc, const char* name, const Tensor& of,
                      int64_t rows, Memory memory) {
    Tensor indices = to_tensor(context, desc, {name, index_types}, memory);
    if (!indices) return indices;
    expect_shape(indices, name, {-1, -1, 1, rows});
    expect_divides(indices.shape[0], name, 0, of.shape[0], "dst");
    expect_divides(indices.shape[1], name, 1, of.shape[1], "dst");
    return indices;
}

bool same_place(const Tensor& a, const Tensor& b) {
    return begin_together(a, b) && std::equal(a.stride.begin(), a.stride.begin() + 3, b.stride.begin());
}

// dst lies apart from src, or row for row on its beginning; a row of src reaches into no other one then.
void check_in_place(const Tensor& src, const Tensor& dst) {
    if (!certainly_share_a_byte(src, dst)) return;
    if (!same_place(src, dst)) {
        invalid("kv_requantize: dst overlaps src, expected to lie apart or to have its offset and strides");
    }
    const uint64_t from = row_bytes(src.type, src.shape[3]);
    const uint64_t to = row_bytes(dst.type, dst.shape[3]);
    if (to > from) {
        invalid("kv_requantize: dst lies on src with rows of " + std::to_string(to) +
                " bytes, expected at most src's " + std::to_string(from));
    }
    check_no_self_overlap(src, "kv_requantize: src", "rows that are rewritten in place");
}

} // namespace

KvRequantize to_kv_requantize(const winnow_context& context, const winnow_kv_requantize_desc* desc, Memory memory) {
    const winnow_kv_requantize_desc given = read_desc(desc, "kv_requantize: desc");
    check_reserved(given.reserved, "kv_requantize: desc");
    KvRequantize args;
    args.src = to_required_tensor(context, given.src, {"kv_requantize: src", storage_types}, memory);
    args.dst = to_required_tensor(context, given.dst, {"kv_requantize: dst", storage_types, Access::output}, memory);
    expect_shape(args.dst, "kv_requantize: dst", args.src.shape);
    args.row_indices = to_row_indices(context, given.row_indices, "kv_requantize: row_indices", args.dst, -1, memory);
    args.norm = to_norm(given.norm, "kv_requantize: norm");
    check_in_place(args.src, args.dst);
    if (certainly_overlap(args.dst, args.row_indices)) invalid("kv_requantize: dst overlaps row_indices");
    return args;
}

KvDequantize to_kv_dequantize(const winnow_context& context, const winnow_kv_dequantize_desc* desc, Memory memory) {
    const winnow_kv_dequantize_desc given = read_desc(desc, "kv_dequantize: desc");
    KvDequantize args;
    args.src = to_required_tensor(context, given.src, {"kv_dequantize: src", storage_types}, memory);
    args.dst = to_required_tensor(context, given.dst, {"kv_dequantize: dst", dense_types, Access::output}, memory);
    args.row_indices =
        to_row_indices(context, given.row_indices, "kv_dequantize: row_indices", args.dst, args.dst.shape[2], memory);
    const auto& [batch, heads, slots, elements] = args.src.shape;
    expect_shape(args.dst, "kv_dequantize: dst", {batch, heads, args.row_indices ? -1 : slots, elements});
    if (certainly_share_a_byte(args.src, args.dst)) invalid("kv_dequantize: dst overlaps src");
    if (certainly_overlap(args.dst, args.row_indices)) invalid("kv_dequantize: dst overlaps row_indices");
    return args;
}

Hadamard to_hadamard(const winnow_context& context, const winnow_hadamard_desc* desc, Memory memory) {
    const winnow_hadamard_desc given = read_desc(desc, "hadamard: desc");
    check_reserved(given.reserved, "hadamard: desc");
    Hadamard args;
    args.src = to_required_tensor(context, given.src, {"hadamard: src", dense_types}, memory);
    args.dst = to_required_tensor(context, given.dst, {"hadamard: dst", dense_types, Access::output}, memory);
    expect_shape(args.dst, "hadamard: dst", args.src.shape);
    const int64_t multiple = row_multiple(Type::turbo4);
    if (args.src.shape[3] % multiple != 0) {
        invalid("hadamard: src.shape[3] is " + std::to_string(args.src.shape[3]) + ", expected a multiple of " +
                std::to_string(multiple));
    }
    expect_flag(given.inverse, "hadamard: inverse");
    args.inverse = given.inverse != 0;
    if (certainly_share_a_byte(args.src, args.dst) &&
        (!same_place(args.src, args.dst) || args.src.type != args.dst.type)) {
        invalid("hadamard: dst overlaps src, expected to lie apart or to be src itself, in the same type");
    }
    return args;
}

} // namespace winnow::api
