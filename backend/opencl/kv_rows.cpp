// Checks, division and launch of the operations on rows.
#include "opencl/kv_rows.hpp"

#include <algorithm>
#include <limits>

#include "kv_rows_params.h"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

// Whether the kernel has to have a row in private memory before it writes any of it (kv_move_row.h).
bool is_whole(const RowsMoved& args) {
    const Type src = args.src.type, dst = args.dst.type;
    return is_rotated(src) || is_rotated(dst) || (args.may_be_in_place && !(is_in_order(src) && is_in_order(dst)));
}

const Variant& variant_for(const Runtime& runtime, const RowsMoved& args) {
    check_row(args.src, args.src_name, is_whole(args));
    check_row(args.dst, args.dst_name, is_whole(args));
    const auto& shape = args.dst.shape;
    check_row_count({shape[0], shape[1], args.rows, shape[3]}, args.dst_name);
    runtime.check_extent(args.src, args.src_name);
    runtime.check_extent(args.dst, args.dst_name);
    runtime.check_extent(args.row_indices, args.indices_name);
    // Of many work-items each would have a long row in private memory.
    const bool is_long = is_whole(args) && shape[3] > largest_rotation;
    return rows_variant(runtime, args.operation, is_long ? "cpu" : "");
}

kv_rows_params make_params(const RowsMoved& args, const Variant& variant, uint32_t compute_units) {
    kv_rows_params params{};
    params.slots = args.src.shape[2];
    params.batch = static_cast<uint32_t>(args.dst.shape[0]);
    params.heads = static_cast<uint32_t>(args.dst.shape[1]);
    params.rows = static_cast<uint32_t>(args.rows);
    params.size = static_cast<uint32_t>(args.dst.shape[3]);
    params.index_batch = params.index_heads = 1;
    if (args.row_indices) {
        params.index_batch = static_cast<uint32_t>(args.row_indices.shape[0]);
        params.index_heads = static_cast<uint32_t>(args.row_indices.shape[1]);
    }
    params.index_type = static_cast<uint32_t>(args.row_indices.type);
    params.norm = static_cast<uint32_t>(args.norm);
    const uint64_t rows = static_cast<uint64_t>(params.batch) * params.heads * params.rows;
    params.rows_per_group = rows_per_group(variant, rows, params.size, compute_units);
    return params;
}

} // namespace

void check_row(const Tensor& tensor, const char* name, bool is_whole, const char* side) {
    if (!is_storage_format(tensor.type)) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    std::string(name) + side + ": no kernel takes the format " + type_name(tensor.type));
    }
    if (is_in_order(tensor.type)) return; // if anything limits its rows, the other tensor does
    int64_t most = std::numeric_limits<int64_t>::max();
    if (is_rotated(tensor.type))
        most = largest_rotation;
    else if (is_whole)
        most = largest_whole_row;
    if (tensor.shape[3] > most) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    std::string(name) + side + ": rows of " + type_name(tensor.type) + " of up to " +
                        std::to_string(most) + " elements are supported, given are " + std::to_string(tensor.shape[3]));
    }
}

void check_row_count(const std::array<int64_t, 4>& rows, const char* name) {
    // Of a group's rows the pieces, and the bytes of one row, are counted in 32 bits.
    constexpr int64_t most = std::numeric_limits<int32_t>::max(), most_elements = most / 64;
    if (rows[2] > most || rows[1] > most / rows[2] || rows[0] > most / (rows[1] * rows[2]) || rows[3] > most_elements) {
        throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + ": more than " + std::to_string(most) + " rows, or " +
                                                  std::to_string(most_elements) + " elements of a row");
    }
}

const Variant& rows_variant(const Runtime& runtime, std::string_view operation, std::string_view shape) {
    VariantOptions forced;
    forced.shape = shape.empty() ? runtime.slot_shape() : shape;
    return choose_variant(operation, runtime.capabilities(), forced, 0, 0);
}

uint32_t rows_per_group(const Variant& variant, uint64_t rows, int64_t elements, uint32_t compute_units) {
    if (variant.slots_of_group > 0) return variant.slots_of_group;
    constexpr int64_t elements_of_a_group = 8192;
    const auto smallest = static_cast<uint64_t>(std::max<int64_t>(1, elements_of_a_group / elements));
    return static_cast<uint32_t>(std::max(smallest, rows / (8 * compute_units) + 1));
}

uint64_t work_of_element(Type src, Type dst) { return is_packed(src) || is_packed(dst) ? 30 : 1; }

std::string uses_options(std::vector<Type> types) {
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
    std::string options;
    for (const Type type : types)
        if (is_packed(type)) options.append("-DUSES_").append(format_name(type)).append(" ");
    return options;
}

std::string kv_options(const Tensor& k, const Tensor& v, std::span<const Segment> lower) {
    std::vector<Type> types{k.type, v.type};
    bool k_is_rotated = is_rotated(k.type), v_is_rotated = is_rotated(v.type);
    for (const Segment& segment : lower) {
        types.insert(types.end(), {segment.k.type, segment.v.type});
        k_is_rotated = k_is_rotated || is_rotated(segment.k.type);
        v_is_rotated = v_is_rotated || is_rotated(segment.v.type);
    }
    std::string options = uses_options(std::move(types));
    if (k_is_rotated) options += "-DK_SIZE=" + std::to_string(k.shape[3]) + " ";
    if (v_is_rotated) options += "-DV_SIZE=" + std::to_string(v.shape[3]) + " ";
    options.append("-DK_FORMAT=").append(format_name(k.type));
    options.append(" -DV_FORMAT=").append(format_name(v.type));
    if (lower.empty()) return options;
    options += " -DTIERS=" + std::to_string(1 + lower.size());
    for (size_t i = 0; i < lower.size(); ++i) {
        const std::string number = std::to_string(i + 2);
        options.append(" -DK_FORMAT_").append(number).append("=").append(format_name(lower[i].k.type));
        options.append(" -DV_FORMAT_").append(number).append("=").append(format_name(lower[i].v.type));
    }
    return options;
}

std::string validate_rows(const Runtime& runtime, const RowsMoved& args) {
    const Variant& variant = variant_for(runtime, args);
    std::string name(variant.entry_point);
    name.append("_").append(variant.shape).append("_").append(format_name(args.src.type));
    name.append("_").append(format_name(args.dst.type));
    if (is_whole(args)) name += "_d" + std::to_string(args.dst.shape[3]);
    return name;
}

std::unique_ptr<Event> launch_rows(Runtime& runtime, const RowsMoved& args, bool want_event) {
    const Variant& variant = variant_for(runtime, args);
    std::string options = uses_options({args.src.type, args.dst.type});
    if (is_whole(args)) options += "-DSIZE=" + std::to_string(args.dst.shape[3]) + " ";
    options.append("-DSRC_FORMAT=").append(format_name(args.src.type));
    options.append(" -DDST_FORMAT=").append(format_name(args.dst.type));
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, options);

    Operation bound(runtime);
    const Bound src = bound.bind(args.src, Access::read);
    const Bound dst = bound.bind(args.dst, args.access);
    const Bound row_indices = bound.bind(args.row_indices, Access::read);
    kv_rows_params params = make_params(args, variant, runtime.capabilities().compute_units);
    params.src = view(args.src, src);
    params.dst = view(args.dst, dst);
    if (args.row_indices) params.row_indices = view(args.row_indices, row_indices);
    const uint64_t rows = static_cast<uint64_t>(params.batch) * params.heads * params.rows;
    const uint64_t groups = (rows + params.rows_per_group - 1) / params.rows_per_group;
    bound.launch(kernel, params, {src.memory, dst.memory, row_indices.memory},
                 Grid{.groups = {static_cast<size_t>(groups), 1, 1},
                      .group_size = {variant.group_size, 1, 1},
                      .work = rows * params.size * work_of_element(args.src.type, args.dst.type),
                      .bytes = rows * (row_bytes(args.src.type, params.size) + row_bytes(args.dst.type, params.size))});
    return bound.complete(want_event);
}

} // namespace winnow::opencl
