// An append of a token, its attention, and what that showed, in one launch.
#include "opencl/sdpa_fused.hpp"

#include "opencl/slot_accumulate.hpp"
#include "opencl/slot_segment.hpp"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

constexpr uint64_t tile = 32; // keys of a weight tile: sdpa_vector.cl's TILE

// The weights (sdpa_importance.h), which kernels read and write in vectors of 16 floats.
Bound bind_weights(Operation& operation, const SdpaKernel& kernel, const SdpaDivision& division,
                   const Tensor& weights) {
    static_assert(fused_weight_slots == 2 * tile); // in pairs
    const uint64_t of_work_tile = (division.key_end + 2 * tile - 1) / (2 * tile) * 2;
    const uint64_t floats = division.work_tiles * of_work_tile * (16 + kernel.rows * tile);
    const Bound bound = operation.bind(weights, Access::read_write);
    if (bound.memory == nullptr || bound.offset % 64 != 0 || static_cast<uint64_t>(weights.shape[3]) < floats)
        throw Error(WINNOW_ERROR_INTERNAL, "the weights of fused attention have " + std::to_string(weights.shape[3]) +
                                               " floats, expected " + std::to_string(floats) +
                                               " at a multiple of 64 bytes");
    return bound;
}

void append_token(Operation& operation, const SlotAppend& append, sdpa_params& params,
                  std::vector<const Memory*>& memory) {
    const Bound k = operation.bind(append.k, Access::read);
    const Bound v = operation.bind(append.v, Access::read);
    const Bound positions = operation.bind(append.positions, Access::read_write);
    sdpa_step& step = params.step;
    step.appends_token = 1;
    step.k = view(append.k, k);
    step.v = view(append.v, v);
    step.k_type = static_cast<uint32_t>(append.k.type);
    step.v_type = static_cast<uint32_t>(append.v.type);
    step.slot = static_cast<uint32_t>(append.first + append.offset % append.count);
    step.token_id = static_cast<int32_t>(append.token_id);
    step.token_positions = positions.offset;
    step.position = static_cast<int32_t>(append.position);
    memory.insert(memory.end(), {k.memory, v.memory, positions.memory});
}

// One row of all heads, or a row for each: the view has a stride between heads.
tensor_view view_of_rows(const Tensor& rows, const Bound& bound, uint32_t heads) {
    tensor_view result = view(rows, bound);
    if (rows.shape[1] == 1) result.stride[1] = static_cast<int64_t>(row_bytes(rows.type, rows.shape[3] / heads));
    return result;
}

} // namespace

void bind_deferred(Operation& operation, const DeferredAppend& deferred, sdpa_params& params,
                   std::vector<const Memory*>& memory) {
    const Tensor &k_rows = deferred.args().k.src, &v_rows = deferred.args().v.src;
    const Bound k = operation.bind(k_rows, Access::read);
    const Bound v = operation.bind(v_rows, Access::read);
    sdpa_step& step = params.step;
    step.appends_token = 1;
    step.k = view_of_rows(k_rows, k, params.kv_heads);
    step.v = view_of_rows(v_rows, v, params.kv_heads);
    step.k_type = static_cast<uint32_t>(k_rows.type);
    step.v_type = static_cast<uint32_t>(v_rows.type);
    step.slot = deferred.slot();
    memory.insert(memory.end(), {k.memory, v.memory});
}

bool can_be_fused(const SdpaKernel& kernel, const Sdpa& args) {
    return kernel.variant->entry_point == "sdpa_vector" && args.q_len() == 1 && args.group() <= kernel.rows;
}

bool can_append_token(const SlotAppend& append, const Segment& first) {
    const auto is_same = [](const Tensor& a, const Tensor& b) {
        return a.buffer == b.buffer && a.data == b.data && a.offset == b.offset;
    };
    return !is_packed(first.k.type) && !is_packed(first.v.type) && is_same(append.segment.tokens, first.tokens) &&
           append.k.shape[2] == 1 && !append.slots && !append.token_ids && !first.k_mean && !first.v_mean;
}

std::vector<const Memory*> bind_fused(Operation& operation, const SdpaKernel& kernel, const SdpaFused& fused,
                                      const SdpaDivision& division, sdpa_params& params,
                                      std::vector<const Memory*>& memory) {
    const SlotAttend& args = *fused.args;
    if (fused.appends_token)
        append_token(operation, *args.append, params, memory);
    else
        memory.insert(memory.end(), 3, nullptr);

    Bound weights;
    if (args.counted_queries > 0) {
        const Accumulate accumulate = accumulate_of(args.importance, params.group);
        params.step.counts_query = 1;
        params.step.keep = accumulate.keep;
        params.step.gain = accumulate.gain;
        weights = bind_weights(operation, kernel, division, args.weights);
    }
    const Bound sum = operation.bind(args.counted_queries > 0 ? args.output_sum : Tensor{}, Access::read_write);
    if (sum.memory != nullptr) params.step.output_sum = view_of_heads(args.output_sum, sum);
    params.step.weights_offset = weights.offset;
    std::vector<const Memory*> accumulated{sum.memory, weights.memory};
    sdpa_segment* field = params.segment;
    for (const Segment& segment : args.attention.segments) {
        const Tensor& importance = segment.importance;
        const Bound bound = operation.bind(importance, Access::read_write);
        if (importance) field->importance = view_of_heads(importance, bound);
        accumulated.push_back(bound.memory);
        ++field;
    }
    memory.insert(memory.end(), accumulated.begin(), accumulated.end());
    return accumulated;
}

} // namespace winnow::opencl
