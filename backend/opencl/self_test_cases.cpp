// The list of cases, and what they share.
#include "opencl/self_test_cases.hpp"

#include <algorithm>
#include <cstring>

namespace winnow::opencl {
namespace {

constexpr std::array<OperationCase, 14> all_cases{{{"kv_append", test_kv_append},
                                                   {"kv_requantize", test_kv_requantize},
                                                   {"kv_dequantize", test_kv_dequantize},
                                                   {"hadamard", test_hadamard},
                                                   {"slot_append", test_slot_append},
                                                   {"slot_accumulate", test_slot_accumulate},
                                                   {"slot_evict", test_slot_evict},
                                                   {"slot_edit", test_slot_edit},
                                                   {"slot_compact", test_slot_compact},
                                                   {"slot_copy", test_slot_copy},
                                                   {"slot_scores", test_slot_scores},
                                                   {"slot_zero", test_slot_zero},
                                                   {"page_sign", test_page_sign},
                                                   {"page_pick", test_page_pick}}};

} // namespace

std::span<const OperationCase> operation_cases() { return all_cases; }

uint16_t half_bits(float number) {
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    if (number == 0) return static_cast<uint16_t>(sign);
    return static_cast<uint16_t>(sign | ((bits >> 13 & 0x3ffff) - ((127 - 15) << 10)));
}

bool is_clear(Type type, Norm norm, const std::vector<float>& row) {
    constexpr int64_t versions = 8; // the row as it is, two that are larger or smaller as a whole, and some with noise
    constexpr float much = 2e-5f, noise = 1e-4f;
    CaseNumbers numbers;
    CaseRows<float> all(Type::f32, 1, versions, static_cast<int64_t>(row.size()));
    for (int64_t version = 0; version < versions; ++version)
        for (size_t e = 0; e < row.size(); ++e) {
            const bool is_more = version < 3 ? version == 1 : numbers.below(2) == 1;
            const float change = version == 0 ? 0 : version < 3 ? much : noise;
            all.at(0, version, static_cast<int64_t>(e)) = row[e] * (is_more ? 1 + change : 1 - change);
        }
    CaseRows<uint8_t> stored = stored_as<uint8_t>(type, all, norm);
    for (int64_t version = 1; version < versions; ++version)
        if (!std::equal(&stored.at(0, 0, 0), &stored.at(0, 0, 0) + stored.stored(), &stored.at(0, version, 0)))
            return false;
    return true;
}

CaseSegment::CaseSegment(CaseNumbers& numbers, int64_t heads, int64_t slots, int64_t size, Type k_type, Type v_type)
    : k(k_type, heads, slots, size), v(v_type, heads, slots, size), tokens(Type::i32, heads, 1, slots, free_slot),
      importance(Type::f32, heads, 1, slots) {
    for (CaseRows<uint16_t>* rows : {&k, &v})
        for (uint16_t& bits : rows->values) bits = half_bits(numbers.number());
    for (float& each : importance.values) each = static_cast<float>(numbers.below(1 << 20)) / (1 << 20);
}

Segment CaseSegment::segment() {
    Segment made;
    made.k = k.tensor();
    made.v = v.tensor();
    made.tokens = tokens.tensor();
    made.importance = importance.tensor();
    return made;
}

std::string CaseSegment::compared(CaseSegment& right) {
    return first_of({tokens.compared(right.tokens, "slot"), k.compared(right.k, "k"), v.compared(right.v, "v"),
                     importance.compared(right.importance, "importance")});
}

} // namespace winnow::opencl
