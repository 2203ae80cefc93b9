// The stores' rows, one store after another, and then attention as it always is.
#include "reference/slot_attention.hpp"

#include "reference/sdpa.hpp"
#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

void gather(const Store& store, int64_t head, Stored& to) {
    for (int64_t slot = 0; slot < store.slots(); ++slot) {
        const int32_t token = entry(store.tokens, head, slot);
        to.keys.push_back(slot_row(store.k, store.k_mean, head, slot));
        to.values.push_back(slot_row(store.v, store.v_mean, head, slot));
        to.positions.push_back(is_live(token) ? number_of(token) : free_slot);
    }
}

} // namespace

std::string validate_slot_attention(const SlotAttention& args) {
    std::string variant;
    for (const Store& store : args.stores) {
        Sdpa one = args.sdpa;
        one.k = store.k;
        one.v = store.v;
        variant = validate_sdpa(one);
    }
    return variant;
}

void slot_attention(const SlotAttention& args) {
    const int64_t kv_heads = args.stores.front().kv_heads();
    const int64_t group = args.sdpa.q_heads() / kv_heads;
    for (int64_t head = 0; head < kv_heads; ++head) {
        Stored stored;
        for (const Store& store : args.stores) gather(store, head, stored);
        attend(args.sdpa, 0, head * group, group, stored);
    }
}

} // namespace winnow::reference
