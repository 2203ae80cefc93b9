// An eviction pass that takes what is below a quantile of the importances, and rows that leave the residual window and
// are packed as the policy "winnow" has it.
#include <algorithm>

#include "opencl/self_test_cases.hpp"
#include "opencl/self_test_turbo.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t evicting_heads = 2, evicting_size = 32, packed_slots = 300;
constexpr int64_t sinks = 4, residual = 16, dense_slots = sinks + residual, leaving = 5, leaving_offset = 13;
constexpr int64_t seen = 500, listed = 8;
constexpr double quantile = .3;

// A row as it is packed; of one that not every device takes to the same bytes another one is drawn before.
TurboRow packed_row(CaseRows<uint16_t>& rows, int64_t head, int64_t slot, bool is_key, CaseNumbers* numbers) {
    for (;;) {
        std::vector<double> x;
        for (int64_t e = 0; e < evicting_size; ++e) x.push_back(half_number(rows.at(head, slot, e)));
        bool is_clear = false;
        TurboRow row =
            is_key ? quantized(4, Norm::unit_slope, x, is_clear) : quantized(3, Norm::corrected, x, is_clear);
        if (is_clear || numbers == nullptr) return row;
        for (int64_t e = 0; e < evicting_size; ++e) rows.at(head, slot, e) = half_bits(numbers->number());
    }
}

struct EvictionCase {
    CaseSegment dense, packed;
    CaseRows<int32_t> free{Type::i32, evicting_heads, 1, listed}, state{Type::i32, evicting_heads, 1, 4, 7};

    explicit EvictionCase(CaseNumbers& numbers)
        : dense(numbers, evicting_heads, dense_slots, evicting_size),
          packed(numbers, evicting_heads, packed_slots, evicting_size, Type::turbo4, Type::turbo3) {
        for (int64_t head = 0; head < evicting_heads; ++head) {
            for (int64_t slot = 0; slot < dense_slots; ++slot) {
                packed_row(dense.k, head, slot, true, &numbers);
                packed_row(dense.v, head, slot, false, &numbers);
            }
            for (int64_t slot = 0; slot < sinks; ++slot) dense.tokens.at(head, 0, slot) = static_cast<int32_t>(slot);
            for (int64_t i = 0; i < residual; ++i) // the oldest leave
                dense.tokens.at(head, 0, sinks + (leaving_offset + i) % residual) =
                    static_cast<int32_t>(seen - residual + i);
            for (int64_t slot = 0; slot < packed_slots; ++slot)
                if ((slot + head) % 10 != 7) packed.tokens.at(head, 0, slot) = static_cast<int32_t>(sinks + slot);
        }
    }

    static void store(const TurboRow& row, uint16_t* at) { row.store(reinterpret_cast<uint8_t*>(at)); }

    // As SlotEvict has it in words.
    void evict(int64_t head) {
        std::vector<float> importances;
        for (CaseSegment* segment : {&dense, &packed})
            for (int64_t slot = 0; slot < segment->tokens.elements; ++slot)
                if (segment->tokens.at(head, 0, slot) >= 0)
                    importances.push_back(segment->importance.at(head, 0, slot));
        const auto live = static_cast<double>(importances.size());
        std::sort(importances.begin(), importances.end());
        const float threshold = importances[static_cast<size_t>(std::ceil(quantile * live)) - 1];
        int32_t evicted = 0;
        for (int64_t slot = 0; slot < packed_slots; ++slot) { // all of the dense ones are protected
            int32_t& token = packed.tokens.at(head, 0, slot);
            if (token < 0 || packed.importance.at(head, 0, slot) >= threshold) continue;
            token = free_slot;
            ++evicted;
        }
        const std::vector<int64_t> places = packed.free_slots(head);
        for (int64_t i = 0; i < leaving; ++i) {
            const int64_t slot = sinks + (leaving_offset + i) % residual;
            const int64_t place = places[static_cast<size_t>(i)];
            store(packed_row(dense.k, head, slot, true, nullptr), &packed.k.at(head, place, 0));
            store(packed_row(dense.v, head, slot, false, nullptr), &packed.v.at(head, place, 0));
            packed.tokens.at(head, 0, place) = dense.tokens.at(head, 0, slot);
            packed.importance.at(head, 0, place) = dense.importance.at(head, 0, slot);
            dense.tokens.at(head, 0, slot) = free_slot;
        }
        for (int64_t i = 0; i < listed; ++i)
            free.at(head, 0, i) = static_cast<int32_t>(places[static_cast<size_t>(leaving + i)]);
        state.at(head, 0, 0) = static_cast<int32_t>(live) - evicted;
        state.at(head, 0, 1) += evicted;
        state.at(head, 0, 2) = 0;
    }
};

} // namespace

std::string test_slot_evict(Device& device) {
    CaseNumbers numbers;
    EvictionCase found(numbers), right = found;
    for (int64_t head = 0; head < evicting_heads; ++head) right.evict(head);
    SlotEvict args;
    args.description.ranking = Ranking::importance;
    args.description.sink = sinks;
    args.description.recent = residual;
    args.description.budget = 280; // of 290: so many have to go, and up to 190 may
    args.description.target = 100;
    args.description.threshold = 1;
    args.description.quantile = quantile;
    args.dense = found.dense.segment();
    args.packed = found.packed.segment();
    args.k_norm = Norm::unit_slope;
    args.seen = seen;
    args.wanted_free = listed;
    args.residual_first = sinks;
    args.residual_count = residual;
    args.leaving_offset = leaving_offset;
    args.leaving_count = leaving;
    args.free_slots = found.free.tensor();
    args.head_state = found.state.tensor();
    device.launch(args);
    device.finish();
    return first_of({found.packed.compared(right.packed), found.dense.compared(right.dense),
                     found.free.compared("free slot", right.free),
                     found.state.compared("number of the state", right.state)});
}

} // namespace winnow::opencl
