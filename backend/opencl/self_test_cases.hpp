// The cases of the self-test, each a function of any device: it launches the operation over host memory, waits, and
// says what came out otherwise than on the reference; empty: nothing. Numbers are such that f16 and q8_0 have them
// whole, so that most results are right to the bit.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/finishing.hpp"
#include "device/slots.hpp"

namespace winnow::opencl {

inline constexpr int64_t self_test_heads = 4;     // of queries
inline constexpr int64_t self_test_tokens = 9;    // of a prompt: a block of 32 rows, and one that is not full
std::string test_attention(Device& device);       // of one token over keys and values in f16
std::string test_prompt(Device& device);          // of many tokens
std::string test_packed_rows(Device& device);     // of one token over keys and values in q8_0
std::string test_fused_attention(Device& device); // of one token that a cache stores, over two segments
std::string test_kv_append(Device& device);
std::string test_kv_requantize(Device& device);
std::string test_kv_dequantize(Device& device);
std::string test_hadamard(Device& device);
std::string test_slot_append(Device& device);
std::string test_slot_accumulate(Device& device);
std::string test_slot_evict(Device& device);
std::string test_slot_edit(Device& device);
std::string test_slot_compact(Device& device);
std::string test_slot_copy(Device& device);
std::string test_slot_scores(Device& device);
std::string test_slot_zero(Device& device);
std::string test_page_sign(Device& device);
std::string test_page_pick(Device& device);

struct OperationCase {
    std::string_view operation;
    std::string (*run)(Device&);
};
std::span<const OperationCase> operation_cases(); // of all operations but attention

// Of the sources of cases and launchers, in hexadecimal; cmake/source_digest.cmake makes it. What was found with others
// is tested anew.
std::string_view backend_digest();

// The same numbers at each run.
class CaseNumbers {
public:
    uint32_t bits() { return state_ = state_ * 1664525u + 1013904223u; }
    int32_t below(int32_t end) { return static_cast<int32_t>(bits() >> 8) % end; }
    // An eighth to 2, or less than 0.
    float number() {
        constexpr std::array<float, 8> numbers{0.125f, 0.25f, 0.375f, 0.5f, 0.75f, 1.0f, 1.5f, 2.0f};
        const uint32_t drawn = bits();
        return (drawn >> 31) != 0 ? -numbers.at(drawn >> 28 & 7) : numbers.at(drawn >> 28 & 7);
    }

private:
    uint32_t state_ = 1;
};

uint16_t half_bits(float number); // of one that f16 has whole, and that is 0 or at least 2^-14

// Whether a row of a turbo format has the same bytes where its numbers are a little others, so that the float
// arithmetic of a kernel takes it to no other ones.
bool is_clear(Type type, Norm norm, const std::vector<float>& row);

// Rows of a tensor [1, heads, rows, elements] in host memory, as numbers T.
template <typename T>
struct CaseRows {
    Type type;
    int64_t heads, rows, elements;
    std::vector<T> values;

    CaseRows(Type of, int64_t head_count, int64_t row_count, int64_t element_count, T filling = T{})
        : type(of), heads(head_count), rows(row_count), elements(element_count) {
        values.assign(static_cast<size_t>(heads * rows * stored()), filling);
    }
    // T's of a row.
    int64_t stored() const { return static_cast<int64_t>(row_bytes(type, elements)) / static_cast<int64_t>(sizeof(T)); }
    T& at(int64_t head, int64_t row, int64_t i) {
        return values[static_cast<size_t>((head * rows + row) * stored() + i)];
    }
    Tensor tensor() {
        Tensor made;
        made.type = type;
        made.data = reinterpret_cast<std::byte*>(values.data());
        made.shape = {1, heads, rows, elements};
        const auto row = static_cast<int64_t>(row_bytes(type, elements));
        made.stride = {row * rows * heads, row * rows, row, static_cast<int64_t>(type_size(type))};
        return made;
    }

    // The first that is another one than it has to be, or for numbers, is farther than `most` and `share` of it from
    // that.
    std::string compared(CaseRows& right, const char* name, double most = 0, double share = 0) {
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t row = 0; row < rows; ++row)
                for (int64_t i = 0; i < stored(); ++i) {
                    const T is = at(head, row, i), wanted = right.at(head, row, i);
                    if (is == wanted) continue;
                    if constexpr (std::is_floating_point_v<T>)
                        if (std::abs(is - wanted) <= most + share * std::abs(wanted)) continue;
                    return std::string(name) + " " + std::to_string(i) + " of row " + std::to_string(row) +
                           " of head " + std::to_string(head) + " is " + std::to_string(is) + ", and should be " +
                           std::to_string(wanted);
                }
        return {};
    }
};

// Rows in another type, as the reference stores or reads them.
template <typename To, typename From>
CaseRows<To> stored_as(Type type, CaseRows<From>& rows, Norm norm = Norm::corrected) {
    CaseRows<To> stored(type, rows.heads, rows.rows, rows.elements);
    KvRequantize args;
    args.src = rows.tensor();
    args.dst = stored.tensor();
    args.norm = norm;
    make_reference()->launch(args, false);
    return stored;
}

// What run(device, state) makes of a state on this device and not on the reference. how: it is compared.
template <typename State, typename Run, typename... How>
std::string difference(Device& device, const State& before, const Run& run, How... how) {
    State found = before, right = before;
    finishing(device, [&] { run(device, found); });
    run(*make_reference(), right);
    return found.compared(right, how...);
}

// The first that is not empty.
inline std::string first_of(std::initializer_list<std::string> found) {
    for (const std::string& each : found)
        if (!each.empty()) return each;
    return {};
}

// Slots, which are free, with random rows and importances; in turbo formats rows of random bytes, two to an element of
// the arrays.
struct CaseSegment {
    CaseRows<uint16_t> k, v;
    CaseRows<int32_t> tokens;
    CaseRows<float> importance;

    CaseSegment(CaseNumbers& numbers, int64_t heads, int64_t slots, int64_t size, Type k_type = Type::f16,
                Type v_type = Type::f16);
    Segment segment();
    std::string compared(CaseSegment& right);
};

} // namespace winnow::opencl
