// From winnow::KvAppend to a launch of kv_append.
#include "opencl/kv_append.hpp"

#include <algorithm>
#include <limits>

#include "kv_append_params.h"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

// An absent side takes the format of the other one: its code is not reached.
Type format_of(const AppendRows& side, const AppendRows& other) { return side ? side.cache.type : other.cache.type; }

void check_side(const AppendRows& side, const std::string& name) {
    if (!side) return;
    if (!is_storage_format(side.cache.type)) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    name + "_cache: no kernel writes the format " + type_name(side.cache.type));
    }
    const auto& shape = side.src.shape;
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (shape[2] > most || shape[1] > most / shape[2] || shape[0] > most / (shape[1] * shape[2]) || shape[3] > most) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    name + "_src: more than " + std::to_string(most) + " rows or elements of a row");
    }
}

struct BoundSide {
    Bound src, cache, row_indices;
};

BoundSide bind_side(Operation& operation, const AppendRows& side) {
    if (!side) return {};
    return {operation.bind(side.src, Access::read), operation.bind(side.cache, Access::read_write),
            operation.bind(side.row_indices, Access::read)};
}

kv_append_side make_side(const AppendRows& side, const BoundSide& bound, uint32_t compute_units) {
    kv_append_side result{};
    if (!side) return result;
    result.src = view(side.src, bound.src);
    result.cache = view(side.cache, bound.cache);
    result.row_indices = view(side.row_indices, bound.row_indices);
    const auto& shape = side.src.shape;
    result.batch = static_cast<uint32_t>(shape[0]);
    result.heads = static_cast<uint32_t>(shape[1]);
    result.tokens = static_cast<uint32_t>(shape[2]);
    result.size = static_cast<uint32_t>(shape[3]);
    result.slots = side.cache.shape[2];
    result.index_batch = static_cast<uint32_t>(side.row_indices.shape[0]);
    result.index_heads = static_cast<uint32_t>(side.row_indices.shape[1]);
    result.src_type = static_cast<uint32_t>(side.src.type);
    result.index_type = static_cast<uint32_t>(side.row_indices.type);
    // A handful of groups for each unit of the device, but none with less work than its start costs.
    const uint32_t rows = result.batch * result.heads * result.tokens;
    const uint32_t elements_of_a_group = 8192;
    const uint32_t smallest = std::max(1u, elements_of_a_group / result.size);
    result.rows_per_group = std::max(smallest, rows / (8 * compute_units) + 1);
    result.groups = (rows + result.rows_per_group - 1) / result.rows_per_group;
    return result;
}

} // namespace

const Variant& KvAppendLauncher::choose() const {
    return choose_variant("kv_append", runtime_.capabilities(), {}, 0, 0);
}

std::string KvAppendLauncher::validate(const KvAppend& args) const {
    check_side(args.k, "k");
    check_side(args.v, "v");
    const Variant& variant = choose();
    std::string name(variant.entry_point);
    name.append("_").append(variant.shape).append("_").append(format_name(format_of(args.k, args.v)));
    return name.append("_").append(format_name(format_of(args.v, args.k)));
}

std::unique_ptr<Event> KvAppendLauncher::launch(const KvAppend& args, bool want_event) {
    check_side(args.k, "k");
    check_side(args.v, "v");
    const Variant& variant = choose();
    std::string options = "-DK_FORMAT=";
    options += format_name(format_of(args.k, args.v));
    options += " -DV_FORMAT=";
    options += format_name(format_of(args.v, args.k));
    Kernel& kernel = runtime_.kernel(variant.file, variant.entry_point, options);

    Operation operation(runtime_);
    const BoundSide k = bind_side(operation, args.k);
    const BoundSide v = bind_side(operation, args.v);
    kv_append_params params{};
    params.k = make_side(args.k, k, runtime_.capabilities().compute_units);
    params.v = make_side(args.v, v, runtime_.capabilities().compute_units);
    uint64_t elements = 0;
    for (const kv_append_side& side : {params.k, params.v}) {
        elements += uint64_t{side.batch} * side.heads * side.tokens * side.size;
    }
    operation.launch(
        kernel, params,
        {k.src.memory, k.cache.memory, k.row_indices.memory, v.src.memory, v.cache.memory, v.row_indices.memory},
        Grid{.groups = {params.k.groups + params.v.groups, 1, 1}, .work = elements});
    return operation.complete(want_event);
}

} // namespace winnow::opencl
