// An eviction pass that takes what is below a quantile of the importances, and rows that leave the residual window and
// are packed as the policy "winnow" has it.
#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t evicting_heads = 2, evicting_size = 32, packed_slots = 300;
constexpr int64_t sinks = 4, residual = 16, dense_slots = sinks + residual, leaving = 5, leaving_offset = 13;
constexpr int64_t seen = 500, listed = 8;

// A row that every device packs to the same bytes.
void draw(CaseRows<uint16_t>& rows, int64_t head, int64_t slot, Type type, Norm norm, CaseNumbers& numbers) {
    std::vector<float> row(evicting_size);
    do
        for (float& x : row) x = numbers.number();
    while (!is_clear(type, norm, row));
    for (int64_t e = 0; e < evicting_size; ++e) rows.at(head, slot, e) = half_bits(row[static_cast<size_t>(e)]);
}

struct EvictionCase {
    CaseSegment dense, packed;
    CaseRows<int32_t> free{Type::i32, evicting_heads, 1, listed}, state{Type::i32, evicting_heads, 1, 4, 7};

    explicit EvictionCase(CaseNumbers& numbers)
        : dense(numbers, evicting_heads, dense_slots, evicting_size),
          packed(numbers, evicting_heads, packed_slots, evicting_size, Type::turbo4, Type::turbo3) {
        for (int64_t head = 0; head < evicting_heads; ++head) {
            for (int64_t slot = 0; slot < dense_slots; ++slot) {
                draw(dense.k, head, slot, Type::turbo4, Norm::unit_slope, numbers);
                draw(dense.v, head, slot, Type::turbo3, Norm::corrected, numbers);
            }
            for (int64_t slot = 0; slot < sinks; ++slot) dense.tokens.at(head, 0, slot) = static_cast<int32_t>(slot);
            for (int64_t i = 0; i < residual; ++i) // the oldest leave
                dense.tokens.at(head, 0, sinks + (leaving_offset + i) % residual) =
                    static_cast<int32_t>(seen - residual + i);
            for (int64_t slot = 0; slot < packed_slots; ++slot)
                if ((slot + head) % 10 != 7) packed.tokens.at(head, 0, slot) = static_cast<int32_t>(sinks + slot);
        }
    }

    std::string compared(EvictionCase& right) {
        return first_of({packed.compared(right.packed), dense.compared(right.dense),
                         free.compared(right.free, "free slot"), state.compared(right.state, "number of the state")});
    }
};

} // namespace

std::string test_slot_evict(Device& device) {
    CaseNumbers numbers;
    return difference(device, EvictionCase(numbers), [](Device& on, EvictionCase& its) {
        SlotEvict args;
        args.description.ranking = Ranking::importance;
        args.description.sink = sinks;
        args.description.recent = residual;
        args.description.budget = 280; // of 290: so many have to go, and up to 190 may
        args.description.target = 100;
        args.description.threshold = 1;
        args.description.quantile = .3;
        args.dense = its.dense.segment();
        args.packed = its.packed.segment();
        args.k_norm = Norm::unit_slope;
        args.seen = seen;
        args.wanted_free = listed;
        args.residual_first = sinks;
        args.residual_count = residual;
        args.leaving_offset = leaving_offset;
        args.leaving_count = leaving;
        args.free_slots = its.free.tensor();
        args.head_state = its.state.tensor();
        on.launch(args);
    });
}

} // namespace winnow::opencl
