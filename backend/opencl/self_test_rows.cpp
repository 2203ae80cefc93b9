// Rows that are stored, changed and rotated: more of them than a group has work-items, and not a multiple of that.
#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t row_heads = 2, row_count = 70, row_size = 64;
constexpr int64_t block = 32;       // of q8_0
constexpr float largest_code = 127; // which makes d 1, and the codes the numbers themselves

// Rows that every device takes to the same bytes of q8_0 and turbo4.
CaseRows<float> code_rows(CaseNumbers& numbers) {
    CaseRows<float> rows(Type::f32, row_heads, row_count, row_size);
    std::vector<float> row(row_size);
    for (int64_t head = 0; head < row_heads; ++head)
        for (int64_t r = 0; r < row_count; ++r) {
            do
                for (int64_t e = 0; e < row_size; ++e)
                    row[static_cast<size_t>(e)] =
                        e % block == 0 ? largest_code : static_cast<float>(numbers.below(255) - 127);
            while (!is_clear(Type::turbo4, Norm::corrected, row));
            std::copy(row.begin(), row.end(), &rows.at(head, r, 0));
        }
    return rows;
}

struct AppendState {
    static constexpr int64_t slots = 100;
    CaseRows<uint16_t> k{Type::f16, row_heads, slots, row_size, 0x5a5a};
    CaseRows<uint8_t> v{Type::q8_0, row_heads, slots, row_size, 0x5a};

    std::string compared(AppendState& right) {
        return first_of({k.compared(right.k, "k"), v.compared(right.v, "byte of v")});
    }
};

} // namespace

std::string test_kv_append(Device& device) {
    CaseNumbers numbers;
    CaseRows<float> k = code_rows(numbers), v = code_rows(numbers);
    CaseRows<int32_t> indices(Type::i32, 1, 1, row_count);
    for (int64_t t = 0; t < row_count; ++t)
        indices.at(0, 0, t) = static_cast<int32_t>((7 * t + 3) % AppendState::slots);
    return difference(device, AppendState{}, [&](Device& on, AppendState& state) {
        KvAppend args;
        args.k.src = k.tensor();
        args.k.cache = state.k.tensor();
        args.v.src = v.tensor();
        args.v.cache = state.v.tensor();
        args.k.row_indices = args.v.row_indices = indices.tensor();
        on.launch(args, false);
    });
}

std::string test_kv_requantize(Device& device) {
    CaseNumbers numbers;
    CaseRows<float> rows = code_rows(numbers);
    CaseRows<uint16_t> halves = stored_as<uint16_t>(Type::f16, rows);
    const auto requantize = [&](Device& on, CaseRows<uint8_t>& to) {
        KvRequantize args;
        args.src = halves.tensor();
        args.dst = to.tensor();
        on.launch(args, false);
    };
    const auto to = [&](Type type, const char* name) {
        return difference(device, CaseRows<uint8_t>(type, row_heads, row_count, row_size, 0x5a), requantize, name);
    };
    const std::string wrong = to(Type::q8_0, "byte");
    return wrong.empty() ? to(Type::turbo4, "byte of turbo4") : wrong;
}

std::string test_kv_dequantize(Device& device) {
    CaseNumbers numbers;
    CaseRows<float> rows = code_rows(numbers);
    const auto from = [&](Type type, const char* name, double most) {
        CaseRows<uint8_t> stored = stored_as<uint8_t>(type, rows);
        const auto dequantize = [&](Device& on, CaseRows<float>& to) {
            KvDequantize args;
            args.src = stored.tensor();
            args.dst = to.tensor();
            on.launch(args, false);
        };
        return difference(device, CaseRows<float>(Type::f32, row_heads, row_count, row_size), dequantize, name, most);
    };
    const std::string wrong = from(Type::q8_0, "element", 0);
    return wrong.empty() ? from(Type::turbo4, "element of turbo4", 1e-3) : wrong; // elements are up to 200
}

std::string test_hadamard(Device& device) {
    CaseNumbers numbers;
    CaseRows<float> rows(Type::f32, row_heads, row_count, row_size);
    for (float& each : rows.values) each = numbers.number();
    const auto rotate = [&](Device& on, CaseRows<float>& to) {
        Hadamard args;
        args.src = rows.tensor();
        args.dst = to.tensor();
        on.launch(args, false);
    };
    return difference(device, rows, rotate, "element", 1e-4); // elements are up to 16
}

} // namespace winnow::opencl
