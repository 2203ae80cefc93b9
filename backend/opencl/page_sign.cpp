// From winnow::PageSign to a launch of page_sign.
#include <algorithm>

#include "opencl/kv_rows.hpp"
#include "opencl/launchers.hpp"
#include "opencl/page_index.hpp"
#include "opencl/variants.hpp"
#include "opencl/view.hpp"
#include "page_sign_params.h"

namespace winnow::opencl {
namespace {

// So many slots of all KV heads: rows of K, and entries of the slot map.
uint64_t bytes_of_slots(const PageSign& args, int64_t slots) {
    const Tensor& k = args.cold.k;
    return static_cast<uint64_t>(std::max<int64_t>(slots, 0) * k.shape[1]) *
           (row_bytes(k.type, k.shape[3]) + sizeof(int32_t));
}

uint64_t bytes_of_signing(const PageSign& args) {
    const int64_t end = std::min(args.end * args.index.page_slots, args.first_slot + args.cold.slots());
    return bytes_of_slots(args, end - args.first * args.index.page_slots) +
           bytes_of_signatures(args.index, static_cast<uint64_t>(args.end - args.first)) +
           args.index.codebooks.stored_bytes();
}

uint64_t bytes_of_making_centers(const PageSign& args) {
    if (args.center_end == 0) return 0;
    return bytes_of_slots(args, args.center_end - args.first_slot) + args.index.centers.stored_bytes();
}

} // namespace

void launch(Runtime& runtime, const PageSign& args) {
    const Variant& variant = rows_variant(runtime, "page_sign");
    const Tensor& k = args.cold.k;
    std::string options = uses_options({k.type});
    options.append("-DK_SIZE=").append(std::to_string(k.shape[3]));
    options.append(" -DK_FORMAT=").append(format_name(k.type)).append(option_of(args.index.kind()));
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, options);

    Operation operation(runtime);
    const BoundPages index = bind_pages(operation, args.index, Access::read_write);
    const Bound rows = operation.bind(k, Access::read);
    const Bound cold_tokens = operation.bind(args.cold.tokens, Access::read);
    const Bound hot_tokens = operation.bind(args.hot.tokens, Access::read_write);
    page_sign_params params{};
    params.index = index.params;
    params.k = view(k, rows);
    params.cold_tokens = view_of_heads(args.cold.tokens, cold_tokens);
    params.hot_tokens = view_of_heads(args.hot.tokens, hot_tokens);
    params.cold_slots = static_cast<uint32_t>(args.cold.slots());
    params.first = static_cast<uint32_t>(args.first);
    params.end = static_cast<uint32_t>(args.end);
    params.cold_first = static_cast<uint32_t>(args.first_slot);
    params.center_end = static_cast<uint32_t>(args.center_end);
    params.keeps_frames = args.keeps_frames;
    const auto heads = static_cast<size_t>(k.shape[1]);
    const auto pages = static_cast<uint64_t>(args.end - args.first);
    const auto of_centers = static_cast<uint64_t>(std::max<int64_t>(args.center_end - args.first_slot, 0));
    const uint64_t row_elements =
        (pages * static_cast<uint64_t>(args.index.page_slots) + of_centers) * static_cast<uint64_t>(k.shape[3]);
    const uint64_t of_codes = args.index.codebooks ? pages * static_cast<uint64_t>(centroids * k.shape[3]) : 0;
    const auto launch = [&](uint64_t work, uint64_t bytes) {
        operation.launch(kernel, params,
                         {index.signatures, index.frames, index.centers, index.codebooks, rows.memory,
                          cold_tokens.memory, hot_tokens.memory},
                         Grid{.groups = {heads * params.parts, 1, 1},
                              .group_size = {variant.group_size, 1, 1},
                              .work = heads * work,
                              .bytes = bytes});
    };
    const uint64_t of_element = work_of_element(k.type, k.type);
    params.parts = 1;
    if (variant.group_size > 1 && args.center_end > 0) { // of many groups each needs the center
        launch(row_elements * of_element, bytes_of_making_centers(args));
        params.center_end = 0;
    }
    if (variant.group_size > 1) params.parts = parts_of(variant, pages * static_cast<uint64_t>(args.index.page_slots));
    const uint64_t of_centers_too = variant.group_size > 1 ? 0 : bytes_of_making_centers(args);
    if (params.parts > 0) launch(row_elements * of_element + of_codes, bytes_of_signing(args) + of_centers_too);
    operation.complete(false);
}

} // namespace winnow::opencl
