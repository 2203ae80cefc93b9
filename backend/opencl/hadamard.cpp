// From winnow::Hadamard to a launch of hadamard.
#include "opencl/launchers.hpp"

#include "hadamard_params.h"
#include "opencl/kv_rows.hpp"
#include "opencl/variants.hpp"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

constexpr uint64_t work_of_an_element = 10; // a step for each doubling of the block

const Variant& check(const Runtime& runtime, const Hadamard& args) {
    const int64_t size = args.src.shape[3];
    if (size > largest_rotation) {
        throw Error(WINNOW_ERROR_UNSUPPORTED, "hadamard: src: rows of up to " + std::to_string(largest_rotation) +
                                                  " elements are supported, given are " + std::to_string(size));
    }
    check_row_count(args.src.shape, "hadamard: src");
    runtime.check_extent(args.src, "hadamard: src");
    runtime.check_extent(args.dst, "hadamard: dst");
    return rows_variant(runtime, "hadamard");
}

} // namespace

std::string validate(const Runtime& runtime, const Hadamard& args) {
    const Variant& variant = check(runtime, args);
    std::string name(variant.entry_point);
    return name.append("_").append(variant.shape).append("_d").append(std::to_string(args.src.shape[3]));
}

std::unique_ptr<Event> launch(Runtime& runtime, const Hadamard& args, bool want_event) {
    const Variant& variant = check(runtime, args);
    const auto& shape = args.src.shape;
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "-DSIZE=" + std::to_string(shape[3]));

    Operation operation(runtime);
    const Bound src = operation.bind(args.src, Access::read);
    const Bound dst = operation.bind(args.dst, Access::write);
    hadamard_params params{};
    params.src = view(args.src, src);
    params.dst = view(args.dst, dst);
    params.batch = static_cast<uint32_t>(shape[0]);
    params.heads = static_cast<uint32_t>(shape[1]);
    params.rows = static_cast<uint32_t>(shape[2]);
    params.src_type = static_cast<uint32_t>(args.src.type);
    params.dst_type = static_cast<uint32_t>(args.dst.type);
    params.inverse = args.inverse;
    const uint64_t rows = static_cast<uint64_t>(params.batch) * params.heads * params.rows;
    params.rows_per_group = rows_per_group(variant, rows, shape[3], runtime.capabilities().compute_units);
    const uint64_t groups = (rows + params.rows_per_group - 1) / params.rows_per_group;
    operation.launch(kernel, params, {src.memory, dst.memory},
                     Grid{.groups = {static_cast<size_t>(groups), 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = rows * static_cast<uint64_t>(shape[3]) * work_of_an_element,
                          .bytes = args.src.stored_bytes() + args.dst.stored_bytes()});
    return operation.complete(want_event);
}

} // namespace winnow::opencl
