// From winnow::PagePick to a launch of page_pick.
#include <algorithm>
#include <limits>

#include "opencl/kv_rows.hpp"
#include "opencl/launchers.hpp"
#include "opencl/page_index.hpp"
#include "opencl/variants.hpp"
#include "opencl/view.hpp"
#include "page_pick_params.h"

namespace winnow::opencl {
namespace {

int32_t bounded(int64_t token) {
    return static_cast<int32_t>(std::clamp<int64_t>(token, 0, std::numeric_limits<int32_t>::max()));
}

int64_t group_of(const PagePick& args) { return args.q.shape[1] / args.hot.kv_heads(); }

uint64_t pages_of(const PagePick& args) {
    return static_cast<uint64_t>((args.cold.slots() + args.index.page_slots - 1) / args.index.page_slots);
}

// Scores of all centroids by so many query heads; none where signatures are of signs.
int64_t code_scores(const PagePick& args, int64_t heads) {
    return args.index.codebooks ? args.q.shape[3] / centroid_elements * centroids * heads : 0;
}

// Of a query group, as page_score_codes.h lays them out.
int64_t table_floats(const PagePick& args) { return code_scores(args, (group_of(args) + 3) / 4 * 4); }

uint64_t in_cache_lines(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

// Of a KV head, as page_pick.cl divides them.
uint64_t scratch_bytes(const PagePick& args) {
    const uint64_t blocks = (pages_of(args) + block_pages - 1) / block_pages, pages = blocks * block_pages;
    const uint64_t scores = pages * static_cast<uint64_t>(group_of(args));
    return in_cache_lines(4 * (pages + scores + static_cast<uint64_t>(table_floats(args))) + 8 * blocks);
}

// As page_pick_workgroup.cl does.
uint64_t group_scratch_bytes(const PagePick& args) {
    const int64_t heads = args.index.kind() == SignatureKind::codes
                              ? PAGE_CODE_HEADS
                              : std::min(group_of(args), PAGE_TABLE_ELEMENTS / args.q.shape[3]);
    const uint64_t pages = pages_of(args), frames = static_cast<uint64_t>(args.index.frames.shape[3]);
    const uint64_t slots = frames * static_cast<uint64_t>(args.index.page_slots);
    return in_cache_lines(4 * static_cast<uint64_t>(code_scores(args, heads)) + 8 * pages +
                          4 * (pages * static_cast<uint64_t>(heads + 1) + 2 * frames + 2 * slots) + pages);
}

void set_mask(const Tensor& mask, const Bound& bound, page_pick_params& params) {
    params.mask_type = static_cast<uint32_t>(mask.type);
    if (!mask) return;
    params.mask = view(mask, bound);
    if (mask.shape[1] == 1) params.mask.stride[1] = 0;
    params.mask_columns = static_cast<uint32_t>(mask.shape[3]);
    params.mask_key_broadcast = mask.shape[3] == 1;
}

} // namespace

void launch(Runtime& runtime, const PagePick& args) {
    const Variant& variant = rows_variant(runtime, "page_pick");
    const auto heads = static_cast<size_t>(args.hot.kv_heads());
    const int64_t group = group_of(args);
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point,
                                    "-DK_SIZE=" + std::to_string(args.q.shape[3]) +
                                        " -DGROUP=" + std::to_string(group) + option_of(args.index.kind()));

    Operation operation(runtime);
    const BoundPages index = bind_pages(operation, args.index, Access::read);
    const Bound q = operation.bind(args.q, Access::read);
    const Bound mask = operation.bind(args.mask, Access::read);
    const BoundSegment cold = bind_segment(operation, args.cold, Access::read);
    const BoundSegment hot = bind_segment(operation, args.hot, Access::read_write);
    const Bound counts = operation.bind(args.counts, Access::read_write);
    page_pick_params params{};
    params.index = index.params;
    params.cold = cold.params;
    params.hot = hot.params;
    params.q = view(args.q, q);
    params.q_type = static_cast<uint32_t>(args.q.type);
    set_mask(args.mask, mask, params);
    params.counts = view_of_heads(args.counts, counts);
    params.k_bytes = args.cold.k ? row_bytes(args.hot.k.type, args.hot.k.shape[3]) : 0; // the caller's to bring
    params.v_bytes = args.cold.v ? row_bytes(args.hot.v.type, args.hot.v.shape[3]) : 0;
    params.visible_from = bounded(args.visible_from);
    params.visible_end = bounded(args.visible_end);
    params.count = static_cast<uint32_t>(args.count);
    params.scale = args.scale;
    params.bonus = args.bonus;
    params.pinned_from = static_cast<uint32_t>(args.pinned_from);
    const bool is_one_work_item = variant.group_size == 1;
    params.scratch_bytes = is_one_work_item ? scratch_bytes(args) : group_scratch_bytes(args);
    const Memory* scratch = runtime.scratch(heads * params.scratch_bytes, slot_scratch);
    const int64_t elements = args.q.shape[3];
    const uint64_t work = pages_of(args) * static_cast<uint64_t>(group * (elements / 8 + 8) + 16) +
                          8 * static_cast<uint64_t>(table_floats(args));
    operation.launch(kernel, params,
                     {index.signatures, index.frames, index.centers, index.codebooks, q.memory, mask.memory, cold.k,
                      cold.v, cold.tokens, hot.k, hot.v, hot.tokens, counts.memory, scratch},
                     Grid{.groups = {heads, 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = heads * work,
                          // Which rows come the device decides.
                          .bytes = bytes_of_signatures(args.index, pages_of(args)) + args.index.frames.stored_bytes() +
                                   args.index.centers.stored_bytes() + args.index.codebooks.stored_bytes() +
                                   args.q.stored_bytes() + args.cold.tokens.stored_bytes()});
    operation.complete(false);
}

} // namespace winnow::opencl
