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

constexpr int scratch_slot = 3; // with SlotEvict: nothing in it is to last beyond a launch

int32_t bounded(int64_t token) {
    return static_cast<int32_t>(std::clamp<int64_t>(token, 0, std::numeric_limits<int32_t>::max()));
}

// A query group's scores of all centroids, as page_score_codes.h lays them out.
int64_t table_floats(int64_t head_size, int64_t group) {
    return head_size / centroid_elements * centroids * ((group + 3) / 4 * 4);
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
    const Variant& variant = choose_variant("page_pick", runtime.capabilities(), {}, 0, 0);
    const auto heads = static_cast<size_t>(args.hot.kv_heads());
    const int64_t group = args.q.shape[1] / args.hot.kv_heads();
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
    params.by_score = static_cast<uint32_t>(args.by_score);
    params.scale = args.scale;
    params.bonus = args.bonus;
    params.pinned_from = static_cast<uint32_t>(args.pinned_from);
    const int64_t block_slots = block_pages * args.index.page_slots;
    const auto blocks = static_cast<uint64_t>((args.cold.slots() + block_slots - 1) / block_slots);
    const auto frames = static_cast<uint64_t>(args.index.frames.shape[3] + 15) & ~uint64_t{15};
    const int64_t elements = args.q.shape[3], table = args.index.codebooks ? table_floats(elements, group) : 0;
    const uint64_t pages = blocks * block_pages, scores = pages * static_cast<uint64_t>(group);
    const uint64_t numbers = pages + scores + frames + static_cast<uint64_t>(table);
    params.scratch_bytes = (4 * numbers + 8 * blocks + 63) & ~uint64_t{63};
    const Memory* scratch = runtime.scratch(heads * params.scratch_bytes, scratch_slot);
    const auto work_of_page = static_cast<uint64_t>(group * (elements / 8 + 8) + 16);
    operation.launch(
        kernel, params,
        {index.signatures, index.frames, index.centers, index.codebooks, q.memory, mask.memory, cold.k, cold.v,
         cold.tokens, hot.k, hot.v, hot.tokens, counts.memory, scratch},
        Grid{.groups = {heads, 1, 1}, .work = heads * (pages * work_of_page + 8 * static_cast<uint64_t>(table))});
    operation.complete(false);
}

} // namespace winnow::opencl
