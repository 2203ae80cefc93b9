// From winnow::KvDequantize to a launch of kv_dequantize.
#include "opencl/kv_dequantize.hpp"

#include "opencl/kv_rows.hpp"

namespace winnow::opencl {
namespace {

RowsMoved rows_of(const KvDequantize& args) {
    const int64_t rows = args.dst.shape[2];
    return {args.src, args.dst, args.row_indices, rows, Norm::corrected, Access::write};
}

} // namespace

std::string KvDequantizeLauncher::validate(const KvDequantize& args) const {
    return validate_rows(runtime_, "kv_dequantize", rows_of(args));
}

std::unique_ptr<Event> KvDequantizeLauncher::launch(const KvDequantize& args, bool want_event) {
    return launch_rows(runtime_, "kv_dequantize", rows_of(args), want_event);
}

} // namespace winnow::opencl
