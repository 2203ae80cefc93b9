// Rows that are stored, changed and rotated: more of them than a group has work-items, and not a multiple of that.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "opencl/self_test_cases.hpp"
#include "opencl/self_test_turbo.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t row_heads = 2, row_count = 70, row_size = 64;
constexpr int64_t block = 32, block_bytes = 34; // of q8_0: d in f16, then the codes
constexpr float largest_code = 127;             // which makes d 1, and the codes the numbers themselves

float code_number(CaseNumbers& numbers, int64_t element) {
    return element % block == 0 ? largest_code : static_cast<float>(numbers.below(255) - 127);
}

void store_q8_0(const std::vector<float>& row, uint8_t* at) {
    for (size_t e = 0; e < row.size(); ++e) {
        uint8_t* const its = at + e / block * block_bytes;
        its[0] = 0x00;
        its[1] = 0x3c; // 1
        its[2 + e % block] = static_cast<uint8_t>(static_cast<int8_t>(row[e]));
    }
}

// The same numbers as floats, halves and q8_0; and in turbo4, which has them less well.
struct StoredRows {
    CaseRows<float> floats{Type::f32, row_heads, row_count, row_size};
    CaseRows<uint16_t> halves{Type::f16, row_heads, row_count, row_size};
    CaseRows<uint8_t> codes{Type::q8_0, row_heads, row_count, row_size};
    CaseRows<uint8_t> rotated{Type::turbo4, row_heads, row_count, row_size};
    CaseRows<float> read{Type::f32, row_heads, row_count, row_size}; // what turbo4 makes of them

    explicit StoredRows(CaseNumbers& numbers) {
        std::vector<float> row(row_size);
        for (int64_t head = 0; head < row_heads; ++head)
            for (int64_t r = 0; r < row_count; ++r) {
                const TurboRow turbo = draw(numbers, row);
                for (int64_t e = 0; e < row_size; ++e) {
                    floats.at(head, r, e) = row[static_cast<size_t>(e)];
                    halves.at(head, r, e) = half_bits(floats.at(head, r, e));
                    read.at(head, r, e) = static_cast<float>(turbo.numbers()[static_cast<size_t>(e)]);
                }
                store_q8_0(row, &codes.at(head, r, 0));
                turbo.store(&rotated.at(head, r, 0));
            }
    }

    // A row that every device takes to the same bytes of turbo4.
    static TurboRow draw(CaseNumbers& numbers, std::vector<float>& row) {
        for (;;) {
            for (size_t e = 0; e < row.size(); ++e) row[e] = code_number(numbers, static_cast<int64_t>(e));
            bool is_clear = false;
            TurboRow turbo = quantized(4, Norm::corrected, {row.begin(), row.end()}, is_clear);
            if (is_clear) return turbo;
        }
    }
};

} // namespace

std::string test_kv_append(Device& device) {
    constexpr int64_t slots = 100;
    CaseNumbers numbers;
    StoredRows k(numbers), v(numbers);
    CaseRows<uint16_t> k_cache(Type::f16, row_heads, slots, row_size, 0x5a5a);
    CaseRows<uint8_t> v_cache(Type::q8_0, row_heads, slots, row_size, 0x5a);
    CaseRows<int32_t> indices(Type::i32, 1, 1, row_count);
    CaseRows<uint16_t> right_k = k_cache;
    CaseRows<uint8_t> right_v = v_cache;
    for (int64_t t = 0; t < row_count; ++t) {
        const int64_t slot = (7 * t + 3) % slots;
        indices.at(0, 0, t) = static_cast<int32_t>(slot);
        for (int64_t head = 0; head < row_heads; ++head) {
            std::copy_n(&k.halves.at(head, t, 0), k.halves.stored(), &right_k.at(head, slot, 0));
            std::copy_n(&v.codes.at(head, t, 0), v.codes.stored(), &right_v.at(head, slot, 0));
        }
    }
    KvAppend args;
    args.k.src = k.floats.tensor();
    args.k.cache = k_cache.tensor();
    args.v.src = v.floats.tensor();
    args.v.cache = v_cache.tensor();
    args.k.row_indices = args.v.row_indices = indices.tensor();
    device.launch(args, false);
    device.finish();
    return first_of({k_cache.compared("k", right_k), v_cache.compared("byte of v", right_v)});
}

std::string test_kv_requantize(Device& device) {
    CaseNumbers numbers;
    StoredRows rows(numbers);
    const auto stored = [&](CaseRows<uint8_t>& right, const char* name) {
        CaseRows<uint8_t> found(right.type, row_heads, row_count, row_size, 0x5a);
        KvRequantize args;
        args.src = rows.halves.tensor();
        args.dst = found.tensor();
        device.launch(args, false);
        device.finish();
        return found.compared(name, right);
    };
    const std::string wrong = stored(rows.codes, "byte");
    return wrong.empty() ? stored(rows.rotated, "byte of turbo4") : wrong;
}

std::string test_kv_dequantize(Device& device) {
    CaseNumbers numbers;
    StoredRows rows(numbers);
    const auto read = [&](CaseRows<uint8_t>& src, CaseRows<float>& right, const char* name, double most) {
        CaseRows<float> found(Type::f32, row_heads, row_count, row_size);
        KvDequantize args;
        args.src = src.tensor();
        args.dst = found.tensor();
        device.launch(args, false);
        device.finish();
        return found.compared(name, right, most);
    };
    const std::string wrong = read(rows.codes, rows.floats, "element", 0);
    return wrong.empty() ? read(rows.rotated, rows.read, "element of turbo4", 1e-3) : wrong; // elements are up to 200
}

std::string test_hadamard(Device& device) {
    CaseNumbers numbers;
    CaseRows<float> rows(Type::f32, row_heads, row_count, row_size), found = rows, right = rows;
    for (float& each : rows.values) each = numbers.number();
    for (int64_t head = 0; head < row_heads; ++head)
        for (int64_t r = 0; r < row_count; ++r) {
            std::vector<double> row(&rows.at(head, r, 0), &rows.at(head, r, 0) + row_size);
            rotate_row(row);
            for (int64_t e = 0; e < row_size; ++e)
                right.at(head, r, e) = static_cast<float>(row[static_cast<size_t>(e)]);
        }
    Hadamard args;
    args.src = rows.tensor();
    args.dst = found.tensor();
    device.launch(args, false);
    device.finish();
    return found.compared("element", right, 1e-4); // elements are up to 16
}

} // namespace winnow::opencl
