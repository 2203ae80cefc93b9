// From winnow::KvDequantize to a launch of kv_dequantize.
#include "opencl/launchers.hpp"

#include "opencl/kv_rows.hpp"

namespace winnow::opencl {
namespace {

RowsMoved rows_of(const KvDequantize& args) {
    return {.operation = "kv_dequantize",
            .src_name = "kv_dequantize: src",
            .dst_name = "kv_dequantize: dst",
            .indices_name = "kv_dequantize: row_indices",
            .src = args.src,
            .dst = args.dst,
            .row_indices = args.row_indices,
            .rows = args.dst.shape[2],
            .access = Access::write,
            .may_be_in_place = false};
}

} // namespace

std::string validate(const Runtime& runtime, const KvDequantize& args) { return validate_rows(runtime, rows_of(args)); }

std::unique_ptr<Event> launch(Runtime& runtime, const KvDequantize& args, bool want_event) {
    return launch_rows(runtime, rows_of(args), want_event);
}

} // namespace winnow::opencl
