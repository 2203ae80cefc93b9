// From winnow::KvRequantize to a launch of kv_requantize.
#include "opencl/kv_requantize.hpp"

#include "opencl/kv_rows.hpp"

namespace winnow::opencl {
namespace {

RowsMoved rows_of(const KvRequantize& args) {
    const int64_t rows = args.row_indices ? args.row_indices.shape[3] : args.src.shape[2];
    return {args.src, args.dst, args.row_indices, rows, args.norm, Access::read_write};
}

} // namespace

std::string KvRequantizeLauncher::validate(const KvRequantize& args) const {
    return validate_rows(runtime_, "kv_requantize", rows_of(args));
}

std::unique_ptr<Event> KvRequantizeLauncher::launch(const KvRequantize& args, bool want_event) {
    return launch_rows(runtime_, "kv_requantize", rows_of(args), want_event);
}

} // namespace winnow::opencl
