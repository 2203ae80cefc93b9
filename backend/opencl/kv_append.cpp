// From winnow::KvAppend to a launch of kv_append.
#include "opencl/launchers.hpp"

#include "kv_append_params.h"
#include "opencl/kv_rows.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/variants.hpp"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

// A side's cache; an absent side stands in with that of the other one, its code is not reached.
const Tensor& cache_of(const AppendRows& side, const AppendRows& other) { return side ? side.cache : other.cache; }

// Where V's rows go may have been said by K's indices.
constexpr AppendNames v_names = {append_v_names.src, append_v_names.cache, "kv_append: row indices of v"};

void check_side(const Runtime& runtime, const AppendRows& side, const AppendNames& names) {
    if (!side) return;
    check_row(side.cache, names.cache);
    check_row_count(side.src.shape, names.src);
    runtime.check_extent(side.src, names.src);
    runtime.check_extent(side.cache, names.cache);
    runtime.check_extent(side.row_indices, names.row_indices);
}

// "_d128", or "_d128v64" where the sides' rows differ; only rotated formats make a program for one size.
std::string sizes_of(const Tensor& k, const Tensor& v) {
    std::string text;
    if (is_rotated(k.type)) text += "_d" + std::to_string(k.shape[3]);
    if (is_rotated(v.type) && (text.empty() || v.shape[3] != k.shape[3])) {
        text.append(text.empty() ? "_v" : "v").append(std::to_string(v.shape[3]));
    }
    return text;
}

struct BoundSide {
    Bound src, cache, row_indices;
};

BoundSide bind_side(Operation& operation, const AppendRows& side) {
    if (!side) return {};
    const Bound cache = operation.bind(side.cache, Access::read_write); // first: of two on a page the other is copied
    return {operation.bind(side.src, Access::read), cache, operation.bind(side.row_indices, Access::read)};
}

kv_append_side make_side(const AppendRows& side, const BoundSide& bound, const Variant& variant,
                         uint32_t compute_units) {
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
    result.norm = static_cast<uint32_t>(side.norm);
    const uint32_t rows = result.batch * result.heads * result.tokens;
    result.rows_per_group = rows_per_group(variant, rows, result.size, compute_units);
    result.groups = (rows + result.rows_per_group - 1) / result.rows_per_group;
    return result;
}

const Variant& variant_for(const Runtime& runtime) { return rows_variant(runtime, "kv_append"); }

const Variant& check(const Runtime& runtime, const KvAppend& args) {
    check_side(runtime, args.k, append_k_names);
    check_side(runtime, args.v, v_names);
    return variant_for(runtime);
}

std::unique_ptr<Event> enqueue(Runtime& runtime, const KvAppend& args, const Variant& variant, bool want_event) {
    const std::string options = kv_options(cache_of(args.k, args.v), cache_of(args.v, args.k));
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, options);

    Operation operation(runtime);
    const BoundSide k = bind_side(operation, args.k);
    const BoundSide v = bind_side(operation, args.v);
    kv_append_params params{};
    params.k = make_side(args.k, k, variant, runtime.capabilities().compute_units);
    params.v = make_side(args.v, v, variant, runtime.capabilities().compute_units);
    const auto rows_of = [](const kv_append_side& side) {
        return static_cast<uint64_t>(side.batch) * side.heads * side.tokens;
    };
    const auto work_of = [&](const AppendRows& side, const kv_append_side& rows) {
        return rows_of(rows) * rows.size * work_of_element(side.src.type, side.cache.type);
    };
    const auto bytes_of = [&](const AppendRows& side, const kv_append_side& rows) {
        return rows_of(rows) * (row_bytes(side.src.type, rows.size) + row_bytes(side.cache.type, rows.size));
    };
    operation.launch(
        kernel, params,
        {k.src.memory, k.cache.memory, k.row_indices.memory, v.src.memory, v.cache.memory, v.row_indices.memory},
        Grid{.groups = {params.k.groups + params.v.groups, 1, 1},
             .group_size = {variant.group_size, 1, 1},
             .work = work_of(args.k, params.k) + work_of(args.v, params.v),
             .bytes = bytes_of(args.k, params.k) + bytes_of(args.v, params.v)});
    return operation.complete(want_event);
}

} // namespace

std::string validate(const Runtime& runtime, const KvAppend& args) {
    const Variant& variant = check(runtime, args);
    const Tensor& k = cache_of(args.k, args.v);
    const Tensor& v = cache_of(args.v, args.k);
    std::string name(variant.entry_point);
    name.append("_").append(variant.shape).append("_").append(format_name(k.type));
    return name.append("_").append(format_name(v.type)).append(sizes_of(k, v));
}

std::unique_ptr<Event> launch(Runtime& runtime, const KvAppend& args, bool want_event) {
    const Variant& variant = check(runtime, args);
    RuntimeState& state = runtime.state();
    state.launch_deferred();
    if (!want_event && state.deferred.defer(state, args)) return nullptr;
    return enqueue(runtime, args, variant, want_event);
}

void launch_deferred_append(Runtime& runtime, const KvAppend& args) {
    enqueue(runtime, args, variant_for(runtime), false);
}

} // namespace winnow::opencl
