// The table of formats, and what is asked of tensors that hold packed rows: each refusal names the argument, what was
// given and what was expected.
#include "device/format.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "api/shapes.hpp"
#include "api/validate.hpp"

namespace winnow {
namespace {

using api::Memory;

// ---- The table -----------------------------------------------------------------------------------------------------

TEST(format, row_bytes_are_the_ones_that_are_written_down) {
    const struct {
        Type type;
        int64_t elements;
        uint64_t bytes;
    } rows[] = {{Type::f32, 7, 28},
                {Type::f16, 7, 14},
                {Type::bf16, 7, 14},
                {Type::q8_0, 64, 68},
                {Type::q5_1, 64, 48},
                {Type::q5_0, 64, 44},
                {Type::q4_1, 64, 40},
                {Type::q4_0, 64, 36},
                {Type::iq4_nl, 64, 36},
                {Type::affine8_g32, 128, 144},
                {Type::affine8_g64, 128, 136},
                {Type::affine8_g128, 128, 132},
                {Type::affine4_g32, 128, 80},
                {Type::affine4_g64, 128, 72},
                {Type::affine4_g128, 128, 68},
                {Type::turbo4, 64, 34},
                {Type::turbo3, 64, 26},
                {Type::turbo2, 64, 18},
                {Type::turbo3_5, 64, 30},
                {Type::turbo2_5, 64, 22},
                // Of an odd number of chunks the larger part has the bit more: 3 of 5, and the only one.
                {Type::turbo3_5, 80, 38},
                {Type::turbo2_5, 80, 28},
                {Type::turbo3_5, 16, 10},
                {Type::turbo2_5, 16, 8},
                {Type::turbo4, 576, 290},
                {Type::sparse16, 64, 96},
                {Type::sparse8, 64, 56}};
    for (const auto& [type, elements, bytes] : rows)
        EXPECT_EQ(row_bytes(type, elements), bytes) << type_name(type) << " " << elements;
}

TEST(format, every_storage_format_has_its_facts) {
    EXPECT_EQ(api::storage_types.size(), 22u);
    for (const Type type : api::storage_types) {
        SCOPED_TRACE(type_name(type));
        EXPECT_TRUE(is_storage_format(type));
        EXPECT_EQ(is_packed(type), static_cast<uint32_t>(type) >= WINNOW_TYPE_Q8_0);
        EXPECT_EQ(is_packed(type), type_size(type) == 0);
        EXPECT_EQ(is_rotated(type), type >= Type::turbo4 && type < Type::sparse16);
        EXPECT_EQ(alignment(type), is_packed(type) ? 2 : type_size(type));
        EXPECT_GE(row_multiple(type), 1);
        EXPECT_EQ(group_elements(type), is_packed(type) && !is_rotated(type) ? row_multiple(type) : 0);
        // Rows in a row stay aligned, and more elements take more bytes.
        const uint64_t one = row_bytes(type, row_multiple(type)), two = row_bytes(type, 2 * row_multiple(type));
        EXPECT_EQ(one % alignment(type), 0u);
        EXPECT_LT(one, two);
    }
    for (const Type type : {Type::none, Type::i32, Type::i64, Type::boolean, static_cast<Type>(23)})
        EXPECT_FALSE(is_storage_format(type));
    EXPECT_STREQ(type_name(static_cast<Type>(23)), "unknown");
    EXPECT_EQ(row_bytes(static_cast<Type>(23), 32), 0u);
}

// ---- Tensors -------------------------------------------------------------------------------------------------------

winnow_tensor tensor_of(uint32_t type, std::array<int64_t, 4> shape, void* data) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.data = data;
    const auto known = static_cast<Type>(type);
    int64_t step = static_cast<int64_t>(row_bytes(known, shape[3]));
    tensor.stride[3] = static_cast<int64_t>(type_size(known));
    for (int axis = 2; axis >= 0; --axis) {
        tensor.stride[axis] = step;
        step *= shape[axis];
    }
    std::copy(shape.begin(), shape.end(), tensor.shape);
    return tensor;
}

// Good calls over memory of their own, each to be damaged by a test.
struct Calls {
    winnow_context context;
    alignas(16) std::array<std::byte, 1 << 15> source{}, target{}, rows{};
    winnow_tensor src = tensor_of(WINNOW_TYPE_AFFINE8_G32, {2, 3, 9, 64}, source.data());
    winnow_tensor dst = tensor_of(WINNOW_TYPE_AFFINE4_G32, {2, 3, 9, 64}, target.data());
    winnow_tensor dense = tensor_of(WINNOW_TYPE_F32, {2, 3, 5, 64}, target.data());
    winnow_tensor indices = tensor_of(WINNOW_TYPE_I32, {1, 3, 1, 5}, rows.data());
    winnow_tensor turned = tensor_of(WINNOW_TYPE_F32, {1, 1, 4, 80}, source.data());
    winnow_tensor turned_to = tensor_of(WINNOW_TYPE_F32, {1, 1, 4, 80}, target.data());
    winnow_kv_requantize_desc requantize{sizeof requantize, 0, nullptr, &src, &dst, &indices, 0, 0};
    winnow_kv_dequantize_desc dequantize{sizeof dequantize, 0, nullptr, &src, &dense, &indices};
    winnow_hadamard_desc hadamard{sizeof hadamard, 0, nullptr, &turned, &turned_to, 0, 0};

    Calls() = default;
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;
};

using Damage = std::function<void(Calls&)>;
enum class Of { requantize, dequantize, hadamard };

// The text of the refusal, "" where the call is good.
std::string refusal(Of operation, const Damage& damage, Memory memory = Memory::required) {
    Calls calls;
    damage(calls);
    try {
        if (operation == Of::requantize) api::to_kv_requantize(calls.context, &calls.requantize, memory);
        if (operation == Of::dequantize) api::to_kv_dequantize(calls.context, &calls.dequantize, memory);
        if (operation == Of::hadamard) api::to_hadamard(calls.context, &calls.hadamard, memory);
        return "";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT) << error.what();
        return error.what();
    }
}

struct Fault {
    Of operation;
    std::vector<std::string> parts; // of the message: the argument, what was given, what was expected
    Damage damage;
};

void expect_refused(const std::vector<Fault>& faults, Memory memory = Memory::required) {
    for (const Fault& fault : faults) {
        const std::string text = refusal(fault.operation, fault.damage, memory);
        ASSERT_NE(text, "") << "accepted, expected a refusal with " << fault.parts[0];
        for (const std::string& part : fault.parts)
            EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    }
}

TEST(packed_tensors, good_calls_are_good) {
    for (const Of operation : {Of::requantize, Of::dequantize, Of::hadamard}) {
        EXPECT_EQ(refusal(operation, [](Calls&) {}), "");
        EXPECT_EQ(refusal(
                      operation, [](Calls&) {}, Memory::optional),
                  "");
    }
    EXPECT_EQ(refusal(Of::requantize, [](Calls& c) { c.requantize.row_indices = nullptr; }), "");
    EXPECT_EQ(refusal(Of::dequantize,
                      [](Calls& c) {
                          c.dense = tensor_of(WINNOW_TYPE_F16, {2, 3, 9, 64}, c.target.data());
                          c.dequantize.row_indices = nullptr;
                      }),
              "");
    // Strides between rows may be anything even; broadcast inputs have 0.
    EXPECT_EQ(refusal(Of::requantize, [](Calls& c) { c.src.stride[2] = 74; }), "");
    EXPECT_EQ(refusal(Of::requantize, [](Calls& c) { c.src.stride[0] = c.src.stride[1] = 0; }), "");
}

TEST(packed_tensors, strides_sizes_and_addresses) {
    const std::vector<Fault> faults = {
        {Of::requantize, {"kv_requantize: src.stride[3]", "is 1", "expected 0"}, [](Calls& c) { c.src.stride[3] = 1; }},
        {Of::requantize, {"kv_requantize: dst.stride[3]", "is 2", "expected 0"}, [](Calls& c) { c.dst.stride[3] = 2; }},
        {Of::requantize, {"src.stride[2]", "is 73", "multiple of 2"}, [](Calls& c) { c.src.stride[2] = 73; }},
        {Of::dequantize, {"src.stride[1]", "is 651", "multiple of 2"}, [](Calls& c) { c.src.stride[1] = 651; }},
        {Of::requantize,
         {"src.shape[3]", "is 48", "multiple of 32", "AFFINE8_G32"},
         [](Calls& c) { c.src.shape[3] = c.dst.shape[3] = 48; }},
        {Of::requantize,
         {"dst.shape[3]", "is 64", "multiple of 128", "AFFINE8_G128"},
         [](Calls& c) { c.dst.type = WINNOW_TYPE_AFFINE8_G128; }},
        {Of::dequantize,
         {"src.shape[3]", "is 72", "multiple of 16", "TURBO3"},
         [](Calls& c) {
             c.src.type = WINNOW_TYPE_TURBO3;
             c.src.shape[3] = c.dense.shape[3] = 72;
         }},
        // Rows of an output that overlap: 40 bytes are needed.
        {Of::requantize, {"dst.stride[2]", "is 38", "at least 40"}, [](Calls& c) { c.dst.stride[2] = 38; }},
        {Of::requantize, {"dst.stride[1]", "is 0", "overlap"}, [](Calls& c) { c.dst.stride[1] = 0; }},
        {Of::requantize, {"dst.shape[2]", "is 8", "expected 9"}, [](Calls& c) { c.dst.shape[2] = 8; }},
        {Of::dequantize, {"kv_dequantize: dst.type", "Q4_0"}, [](Calls& c) { c.dense.type = WINNOW_TYPE_Q4_0; }},
        {Of::dequantize, {"dst.shape[2]", "is 5", "expected 9"}, [](Calls& c) { c.dequantize.row_indices = nullptr; }},
        {Of::dequantize, {"row_indices.shape[3]", "is 4", "expected 5"}, [](Calls& c) { c.indices.shape[3] = 4; }},
        {Of::requantize, {"row_indices.shape[1]", "is 2", "divisor of 3"}, [](Calls& c) { c.indices.shape[1] = 2; }},
        {Of::requantize, {"row_indices.type", "F32"}, [](Calls& c) { c.indices.type = WINNOW_TYPE_F32; }},
        {Of::requantize, {"norm", "is 4", "0 to 3"}, [](Calls& c) { c.requantize.norm = 4; }},
        {Of::requantize, {"kv_requantize: desc.reserved", "is 7"}, [](Calls& c) { c.requantize.reserved = 7; }},
        {Of::hadamard,
         {"hadamard: src.shape[3]", "is 72", "multiple of 16"},
         [](Calls& c) { c.turned.shape[3] = c.turned_to.shape[3] = 72; }},
        {Of::hadamard, {"hadamard: inverse", "is 2", "0 or 1"}, [](Calls& c) { c.hadamard.inverse = 2; }},
        {Of::hadamard, {"hadamard: desc.reserved", "is 1"}, [](Calls& c) { c.hadamard.reserved = 1; }},
        {Of::hadamard, {"hadamard: src.type", "TURBO4"}, [](Calls& c) { c.turned.type = WINNOW_TYPE_TURBO4; }},
    };
    expect_refused(faults);
    expect_refused(faults, Memory::optional); // supports says the same
}

TEST(packed_tensors, memory) {
    const std::vector<Fault> faults = {
        {Of::requantize, {"src", "multiple of 2", "AFFINE8_G32"}, [](Calls& c) { c.src.offset = 1; }},
        {Of::requantize, {"dst", "multiple of 2", "AFFINE4_G32"}, [](Calls& c) { c.dst.offset = 3; }},
        {Of::requantize, {"dst", "neither a buffer nor data"}, [](Calls& c) { c.dst.data = nullptr; }},
        {Of::requantize, {"dst overlaps row_indices"}, [](Calls& c) { c.indices.data = c.target.data() + 64; }},
        {Of::dequantize, {"dst overlaps src"}, [](Calls& c) { c.dense.data = c.source.data(); }},
        {Of::dequantize, {"dst overlaps row_indices"}, [](Calls& c) { c.indices.data = c.target.data() + 64; }},
    };
    expect_refused(faults);
}

TEST(packed_tensors, a_requantized_row_may_lie_on_its_source) {
    const auto in_place = [](Calls& c) {
        c.dst.data = c.src.data;
        std::copy(c.src.stride, c.src.stride + 3, c.dst.stride);
    };
    EXPECT_EQ(refusal(Of::requantize, in_place), "");
    // In host memory, data and offset say together where a tensor begins.
    EXPECT_EQ(refusal(Of::requantize,
                      [&](Calls& c) {
                          in_place(c);
                          c.dst.data = c.source.data() + 144;
                          c.src.offset = 144;
                      }),
              "");
    expect_refused({
        // A row of src reaches into the next one, which is rewritten before or after it, in no order.
        {Of::requantize,
         {"kv_requantize: src.stride[2]", "is 72", "at least 128", "in place"},
         [&](Calls& c) {
             c.dst = c.src;
             c.src.type = WINNOW_TYPE_F16;
             c.src.stride[3] = 2;
         }},
        // Longer rows would write over the next one before it is read.
        {Of::requantize,
         {"dst", "rows of 72", "at most", "40"},
         [&](Calls& c) {
             c.src = tensor_of(WINNOW_TYPE_AFFINE4_G32, {2, 3, 9, 64}, c.source.data());
             c.src.stride[2] = 80;
             c.src.stride[1] = 9 * 80;
             c.src.stride[0] = 27 * 80;
             c.dst.type = WINNOW_TYPE_AFFINE8_G32;
             in_place(c);
         }},
        {Of::requantize,
         {"dst overlaps src", "offset and strides"},
         [](Calls& c) { c.dst.data = c.source.data(); }}, // packed closer than src
        {Of::requantize,
         {"dst overlaps src", "offset and strides"},
         [&](Calls& c) {
             in_place(c);
             c.dst.stride[0] = 72 * 9;
             c.dst.stride[1] = 72 * 9 * 2;
         }},
    });
}

TEST(packed_tensors, a_rotated_row_may_lie_on_its_source) {
    const auto in_place = [](Calls& c) { c.turned_to.data = c.turned.data; };
    EXPECT_EQ(refusal(Of::hadamard, in_place), "");
    EXPECT_EQ(refusal(Of::hadamard,
                      [&](Calls& c) {
                          c.turned_to.data = c.source.data() + 64;
                          c.turned.offset = 64;
                      }),
              "");
    expect_refused({
        {Of::hadamard,
         {"dst overlaps src", "same type"},
         [&](Calls& c) {
             in_place(c);
             c.turned_to.type = WINNOW_TYPE_F16;
             c.turned_to.stride[3] = 2;
         }},
        {Of::hadamard,
         {"dst overlaps src"},
         [&](Calls& c) {
             in_place(c);
             c.turned_to.stride[2] = 400;
         }},
        {Of::hadamard, {"dst overlaps src"}, [&](Calls& c) { c.turned_to.data = c.source.data() + 320; }},
    });
}

} // namespace
} // namespace winnow
