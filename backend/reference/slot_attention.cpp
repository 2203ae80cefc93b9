// The segments' rows, one segment after another, and then attention as it always is.
#include "reference/slot_attention.hpp"

#include "reference/sdpa.hpp"
#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

void gather(const Segment& segment, int64_t head, Stored& to) {
    if (!segment.has_rows_of(head)) return; // a segment that shares these slots has them
    const Segment its = heads_of(segment, head, 1);
    for (int64_t slot = 0; slot < segment.slots(); ++slot) {
        const int32_t token = entry(its.tokens, 0, slot);
        if (!is_live(token)) { // whatever lies there
            to.keys.emplace_back(static_cast<size_t>(segment.k.shape[3]), 0.0);
            to.values.emplace_back(static_cast<size_t>(segment.v.shape[3]), 0.0);
            to.positions.push_back(free_slot);
            continue;
        }
        to.keys.push_back(slot_row(its.k, its.k_mean, 0, slot));
        to.values.push_back(slot_row(its.v, its.v_mean, 0, slot));
        to.positions.push_back(token_id_of(token));
    }
}

} // namespace

void validate_slot_attention(const SlotAttention& args) {
    for (const Segment& segment : args.segments) {
        Sdpa one = args.sdpa;
        one.k = segment.k;
        one.v = segment.v;
        validate_sdpa(one);
    }
}

void slot_attention(const SlotAttention& args) {
    const int64_t kv_heads = args.segments.front().kv_heads();
    const int64_t group = args.sdpa.q_heads() / kv_heads;
    for (int64_t head = 0; head < kv_heads; ++head) {
        Stored stored;
        for (const Segment& segment : args.segments) gather(segment, head, stored);
        attend(args.sdpa, 0, head * group, group, stored);
    }
}

} // namespace winnow::reference
