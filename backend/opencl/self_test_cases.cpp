// The list of cases, and what they share.
#include "opencl/self_test_cases.hpp"

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

void change_signs(std::vector<double>& row) {
    constexpr std::array<uint32_t, 2> signs{0x7b1dcdafu, 0xa1b965f4u};
    for (size_t e = 0; e < row.size(); ++e)
        if ((signs.at(e / 32) >> (e % 32) & 1) != 0) row[e] = -row[e];
}

void transform(std::vector<double>& row) { // which is its own inverse
    const size_t size = row.size();
    for (size_t half = 1; half < size; half *= 2)
        for (size_t e = 0; e < size; ++e) {
            if ((e & half) != 0) continue;
            const double a = row[e], b = row[e + half];
            row[e] = a + b;
            row[e + half] = a - b;
        }
    for (double& each : row) each /= std::sqrt(static_cast<double>(size));
}

} // namespace

std::span<const OperationCase> operation_cases() { return all_cases; }

uint16_t half_bits(float number) {
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    if (number == 0) return static_cast<uint16_t>(sign);
    return static_cast<uint16_t>(sign | ((bits >> 13 & 0x3ffff) - ((127 - 15) << 10)));
}

double half_number(uint16_t bits) {
    const double magnitude = (bits & 0x7fff) == 0 ? 0 : std::ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 31) - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void rotate_row(std::vector<double>& row) {
    change_signs(row);
    transform(row);
}

void rotate_back(std::vector<double>& row) {
    transform(row);
    change_signs(row);
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
    return first_of({tokens.compared("slot", right.tokens), k.compared("k", right.k), v.compared("v", right.v),
                     importance.compared("importance", right.importance)});
}

void CaseSegment::copy_slot(int64_t head, int64_t slot, CaseSegment& to, int64_t to_slot) {
    for (int64_t i = 0; i < k.stored(); ++i) to.k.at(head, to_slot, i) = k.at(head, slot, i);
    for (int64_t i = 0; i < v.stored(); ++i) to.v.at(head, to_slot, i) = v.at(head, slot, i);
    to.tokens.at(head, 0, to_slot) = tokens.at(head, 0, slot);
    to.importance.at(head, 0, to_slot) = importance.at(head, 0, slot);
}

std::vector<int64_t> CaseSegment::free_slots(int64_t head) {
    std::vector<int64_t> free;
    for (int64_t slot = 0; slot < tokens.elements; ++slot)
        if (tokens.at(head, 0, slot) < 0) free.push_back(slot);
    return free;
}

} // namespace winnow::opencl
