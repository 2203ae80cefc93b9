// Bad input to packed formats and operations on rows: the status is the documented one, the message names the argument,
// supports_* says the same, and no output is touched.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <regex>

#include "formats_registration.hpp"
#include "packing.hpp"
#include "registered_cases.hpp"
#include "sdpa_problem.hpp"

namespace winnow::conformance {
namespace {

// Good calls of each operation, whose views are copies to be damaged freely.
struct Calls {
    TestTensor rows{WINNOW_TYPE_Q8_0, {1, 2, 9, 64}, Layout::packed, Memory::allocated};
    TestTensor narrow{WINNOW_TYPE_TURBO3, {1, 2, 9, 64}, Layout::packed, Memory::allocated};
    TestTensor numbers{WINNOW_TYPE_F32, {1, 2, 4, 64}, Layout::packed, Memory::allocated};
    TestTensor turned{WINNOW_TYPE_F32, {1, 2, 4, 64}, Layout::packed, Memory::allocated};
    TestTensor indices = all_rows(4);
    SdpaProblem problem{attention(), 5};
    winnow_tensor k, v, skipped, src, dst, dense, dense_out, row_indices;
    winnow_sdpa_desc sdpa;
    winnow_kv_append_desc append{};
    winnow_kv_requantize_desc requantize{};
    winnow_kv_dequantize_desc dequantize{};
    winnow_hadamard_desc hadamard{};

    Calls() {
        TestTensor filler(WINNOW_TYPE_F32, rows.shape());
        filler.each([&](const Index& at) { filler.set(at, static_cast<double>(at[3] % 7) - 3); });
        pack(filler, rows);
        pack(filler, narrow);
        numbers.each([&](const Index& at) { numbers.set(at, static_cast<double>(at[3] % 5)); });
        for (TestTensor* tensor : {&rows, &narrow, &numbers, &turned, &indices}) tensor->bind(subject());
        problem.bind(subject());
        src = *rows.view();
        dst = *narrow.view();
        dense = *numbers.view();
        dense_out = *turned.view();
        row_indices = *indices.view();
        sdpa = problem.desc();
        k = *sdpa.k;
        v = *sdpa.v;
        skipped = *sdpa.v_rows_skipped;
        sdpa.k = &k;
        sdpa.v = &v;
        sdpa.v_rows_skipped = &skipped;
        append.struct_size = sizeof append;
        append.k_src = &dense;
        append.k_cache = &dst;
        append.k_row_indices = &row_indices;
        requantize.struct_size = sizeof requantize;
        requantize.src = &src;
        requantize.dst = &dst;
        requantize.row_indices = &row_indices;
        dequantize.struct_size = sizeof dequantize;
        dequantize.src = &src;
        dequantize.dst = &dense_out;
        dequantize.row_indices = &row_indices;
        hadamard.struct_size = sizeof hadamard;
        hadamard.src = &dense;
        hadamard.dst = &dense_out;
    }
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;

    static SdpaCase attention() {
        SdpaCase c;
        c.k_type = WINNOW_TYPE_Q4_0;
        c.v_type = WINNOW_TYPE_TURBO4;
        c.kv_len = 20;
        c.memory = Memory::allocated;
        c.v_threshold = 0.01f;
        c.count_skipped = true;
        return c;
    }
    void expect_untouched() {
        for (TestTensor* output : {&narrow, &turned, &problem.out, &problem.v_rows_skipped}) {
            output->fetch();
            EXPECT_EQ(output->change(), "") << "an output";
        }
    }
};

enum class Operation { sdpa, append, requantize, dequantize, hadamard };

struct Fault {
    const char* name;
    Operation operation;
    const char* argument; // what the message has to name
    std::function<void(Calls&)> inject;
    int32_t status = WINNOW_ERROR_INVALID_ARGUMENT;
};

// One row of more elements than a rotation has.
void make_long(winnow_tensor& row, uint32_t type) {
    const int64_t elements = 608;
    row.type = type;
    for (int axis = 0; axis < 3; ++axis) row.shape[axis] = 1;
    row.shape[3] = elements;
    row.stride[3] = type == WINNOW_TYPE_F16 ? 2 : 0;
}

template <typename Desc>
void expect_refused(const Fault& fault, const Desc& desc) {
    const Session::Answer answer = subject().supports(desc);
    const int32_t status = subject().run(desc);
    const std::string message = subject().message();
    const std::regex name("\\b" + std::string(fault.argument) + "\\b");
    EXPECT_EQ(status, fault.status) << message;
    EXPECT_TRUE(std::regex_search(message, name)) << "does not name " << fault.argument << ": " << message;
    EXPECT_EQ(answer.status, fault.status) << answer.message;
    EXPECT_EQ(answer.message, message) << "supports_* gives another reason";
}

void expect_refused(const Fault& fault) {
    Calls calls;
    fault.inject(calls);
    switch (fault.operation) {
    case Operation::sdpa: expect_refused(fault, calls.sdpa); break;
    case Operation::append: expect_refused(fault, calls.append); break;
    case Operation::requantize: expect_refused(fault, calls.requantize); break;
    case Operation::dequantize: expect_refused(fault, calls.dequantize); break;
    case Operation::hadamard: expect_refused(fault, calls.hadamard); break;
    }
    ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK);
    calls.expect_untouched();
}

std::vector<Fault> faults() {
    using enum Operation;
    return {
        {"k_with_a_stride_of_elements", sdpa, "k", [](Calls& c) { c.k.stride[3] = 1; }},
        {"k_with_an_odd_stride", sdpa, "k", [](Calls& c) { c.k.stride[2] = 37; }},
        {"v_begins_at_an_odd_byte", sdpa, "v", [](Calls& c) { c.v.offset = 1; }},
        {"v_of_a_size_between_chunks", sdpa, "v", [](Calls& c) { c.v.shape[3] = 72; }},
        {"k_of_a_type_that_is_none", sdpa, "k", [](Calls& c) { c.k.type = 23; }},
        {"k_beyond_its_buffer", sdpa, "k", [](Calls& c) { c.k.offset = 1 << 20; }},
        {"threshold_of_1", sdpa, "v_threshold", [](Calls& c) { c.sdpa.v_threshold = 1; }},
        {"threshold_below_0", sdpa, "v_threshold", [](Calls& c) { c.sdpa.v_threshold = -0.1f; }},
        {"threshold_nan", sdpa, "v_threshold",
         [](Calls& c) { c.sdpa.v_threshold = std::numeric_limits<float>::quiet_NaN(); }},
        {"counts_of_another_type", sdpa, "v_rows_skipped", [](Calls& c) { c.skipped.type = WINNOW_TYPE_F32; }},
        {"too_few_counts", sdpa, "v_rows_skipped", [](Calls& c) { c.skipped.shape[1] = 3; }},
        {"reserved", sdpa, "reserved", [](Calls& c) { c.sdpa.reserved = 1; }},
        {"norm_4", append, "k_norm", [](Calls& c) { c.append.k_norm = 4; }},
        {"norm_of_v_though_absent", append, "v_norm", [](Calls& c) { c.append.v_norm = 9; }},
        {"packed_source", append, "k_src", [](Calls& c) { c.append.k_src = &c.src; }},
        {"cache_with_a_stride_of_elements", append, "k_cache", [](Calls& c) { c.dst.stride[3] = 2; }},
        {"cache_rows_overlap", append, "k_cache", [](Calls& c) { c.dst.stride[2] = 24; }},
        {"norm_7", requantize, "norm", [](Calls& c) { c.requantize.norm = 7; }},
        {"no_source", requantize, "src", [](Calls& c) { c.requantize.src = nullptr; }},
        {"no_target", requantize, "dst", [](Calls& c) { c.requantize.dst = nullptr; }},
        {"another_shape", requantize, "dst", [](Calls& c) { c.dst.shape[2] = 8; }},
        {"indices_of_floats", requantize, "row_indices", [](Calls& c) { c.row_indices.type = WINNOW_TYPE_F32; }},
        {"longer_rows_in_place", requantize, "dst",
         [](Calls& c) {
             c.dst = c.src;
             c.dst.type = WINNOW_TYPE_F16;
             c.dst.stride[3] = 2;
             c.dst.stride[2] = c.src.stride[2] = 128;
             c.src.shape[2] = c.dst.shape[2] = 4;
         }},
        {"in_place_with_other_strides", requantize, "dst",
         [](Calls& c) {
             c.dst.buffer = c.src.buffer;
             c.dst.offset = c.src.offset;
         }},
        {"in_place_on_rows_that_overlap", requantize, "src",
         [](Calls& c) {
             c.dst = c.src;
             c.src.type = WINNOW_TYPE_F16;
             c.src.stride[3] = 2;
             c.src.shape[2] = c.dst.shape[2] = 4;
             c.row_indices.shape[3] = 4;
         }},
        {"packed_target", dequantize, "dst", [](Calls& c) { c.dequantize.dst = &c.dst; }},
        {"fewer_rows_than_indices", dequantize, "row_indices", [](Calls& c) { c.row_indices.shape[3] = 3; }},
        {"all_rows_into_fewer", dequantize, "dst", [](Calls& c) { c.dequantize.row_indices = nullptr; }},
        {"target_on_source", dequantize, "dst",
         [](Calls& c) {
             c.dequantize.src = &c.dense;
             c.dense_out = c.dense;
         }},
        {"packed_source_of_a_rotation", hadamard, "src", [](Calls& c) { c.hadamard.src = &c.src; }},
        {"between_chunks", hadamard, "src", [](Calls& c) { c.dense.shape[3] = c.dense_out.shape[3] = 63; }},
        {"inverse_2", hadamard, "inverse", [](Calls& c) { c.hadamard.inverse = 2; }},
        {"reserved_of_a_rotation", hadamard, "reserved", [](Calls& c) { c.hadamard.reserved = 2; }},
        {"in_place_in_another_type", hadamard, "dst",
         [](Calls& c) {
             c.dense_out.buffer = c.dense.buffer;
             c.dense_out.offset = c.dense.offset;
             c.dense_out.type = WINNOW_TYPE_F16;
             c.dense_out.stride[3] = 2;
         }},
        {"longer_than_a_rotation", hadamard, "src",
         [](Calls& c) {
             make_long(c.dense, WINNOW_TYPE_F16);
             make_long(c.dense_out, WINNOW_TYPE_F16);
         },
         WINNOW_ERROR_UNSUPPORTED},
        {"rotated_rows_too_long_to_append", append, "k_cache",
         [](Calls& c) {
             make_long(c.dense, WINNOW_TYPE_F16);
             make_long(c.dst, WINNOW_TYPE_TURBO2);
             c.row_indices.shape[3] = 1;
         },
         WINNOW_ERROR_UNSUPPORTED},
        {"rotated_rows_too_long_to_write", requantize, "dst",
         [](Calls& c) {
             make_long(c.src, WINNOW_TYPE_Q8_0);
             make_long(c.dst, WINNOW_TYPE_TURBO2);
         },
         WINNOW_ERROR_UNSUPPORTED},
        {"rotated_rows_too_long_to_read", dequantize, "src",
         [](Calls& c) {
             make_long(c.src, WINNOW_TYPE_TURBO2);
             make_long(c.dense_out, WINNOW_TYPE_F16);
             c.row_indices.shape[3] = 1;
         },
         WINNOW_ERROR_UNSUPPORTED},
    };
}

} // namespace

void register_format_bad_input() {
    for (const Fault& fault : faults())
        register_format_test("bad_input", fault.name, __FILE__, __LINE__, [fault] { expect_refused(fault); });
}

} // namespace winnow::conformance
