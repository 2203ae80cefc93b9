// From winnow::KvRequantize to a launch of kv_requantize.
#include "opencl/launchers.hpp"

#include "opencl/kv_rows.hpp"

namespace winnow::opencl {
namespace {

RowsMoved rows_of(const KvRequantize& args) {
    const int64_t rows = args.row_indices ? args.row_indices.shape[3] : args.src.shape[2];
    return {.operation = "kv_requantize",
            .src_name = "kv_requantize: src",
            .dst_name = "kv_requantize: dst",
            .indices_name = "kv_requantize: row_indices",
            .src = args.src,
            .dst = args.dst,
            .row_indices = args.row_indices,
            .rows = rows,
            .norm = args.norm,
            .access = Access::read_write,
            .may_be_in_place = true};
}

} // namespace

std::string validate(const Runtime& runtime, const KvRequantize& args) { return validate_rows(runtime, rows_of(args)); }

std::unique_ptr<Event> launch(Runtime& runtime, const KvRequantize& args, bool want_event) {
    return launch_rows(runtime, rows_of(args), want_event);
}

} // namespace winnow::opencl
