// Bad input to packed formats and operations on rows.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "bad_input.hpp"
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
    void expect_untouched(const std::string& name) {
        for (TestTensor* output : {&narrow, &turned, &problem.out, &problem.v_rows_skipped}) {
            output->fetch();
            EXPECT_EQ(output->change(), "") << name << ": an output";
        }
    }
};

// One of them.
template <auto Desc>
struct CallOf : Calls {
    decltype(std::declval<Calls&>().*Desc)& desc = this->*Desc;
};

// One row of more elements than a rotation has.
void make_long(winnow_tensor& row, uint32_t type) {
    const int64_t elements = 608;
    row.type = type;
    for (int axis = 0; axis < 3; ++axis) row.shape[axis] = 1;
    row.shape[3] = elements;
    row.stride[3] = type == WINNOW_TYPE_F16 ? 2 : 0;
}

template <auto Desc>
void add(const char* name, const char* argument, void (*inject)(Calls&),
         int32_t status = WINNOW_ERROR_INVALID_ARGUMENT) {
    const Fault<CallOf<Desc>> fault{{name, argument, status}, inject};
    register_format_test("bad_input", name, __FILE__, __LINE__, [fault] { expect_refused(fault); });
}

} // namespace

void register_format_bad_input() {
    constexpr auto sdpa = &Calls::sdpa;
    constexpr auto append = &Calls::append;
    constexpr auto requantize = &Calls::requantize;
    constexpr auto dequantize = &Calls::dequantize;
    constexpr auto hadamard = &Calls::hadamard;
    add<sdpa>("k_with_a_stride_of_elements", "k", [](Calls& c) { c.k.stride[3] = 1; });
    add<sdpa>("k_with_an_odd_stride", "k", [](Calls& c) { c.k.stride[2] = 37; });
    add<sdpa>("v_begins_at_an_odd_byte", "v", [](Calls& c) { c.v.offset = 1; });
    add<sdpa>("v_of_a_size_between_chunks", "v", [](Calls& c) { c.v.shape[3] = 72; });
    add<sdpa>("k_of_a_type_that_is_none", "k", [](Calls& c) { c.k.type = 23; });
    add<sdpa>("k_beyond_its_buffer", "k", [](Calls& c) { c.k.offset = 1 << 20; });
    add<sdpa>("threshold_of_1", "v_threshold", [](Calls& c) { c.sdpa.v_threshold = 1; });
    add<sdpa>("threshold_below_0", "v_threshold", [](Calls& c) { c.sdpa.v_threshold = -0.1f; });
    add<sdpa>("threshold_nan", "v_threshold",
              [](Calls& c) { c.sdpa.v_threshold = std::numeric_limits<float>::quiet_NaN(); });
    add<sdpa>("counts_of_another_type", "v_rows_skipped", [](Calls& c) { c.skipped.type = WINNOW_TYPE_F32; });
    add<sdpa>("too_few_counts", "v_rows_skipped", [](Calls& c) { c.skipped.shape[1] = 3; });
    add<sdpa>("reserved", "reserved", [](Calls& c) { c.sdpa.reserved = 1; });
    add<append>("norm_4", "k_norm", [](Calls& c) { c.append.k_norm = 4; });
    add<append>("norm_of_v_though_absent", "v_norm", [](Calls& c) { c.append.v_norm = 9; });
    add<append>("packed_source", "k_src", [](Calls& c) { c.append.k_src = &c.src; });
    add<append>("cache_with_a_stride_of_elements", "k_cache", [](Calls& c) { c.dst.stride[3] = 2; });
    add<append>("cache_rows_overlap", "k_cache", [](Calls& c) { c.dst.stride[2] = 24; });
    add<requantize>("norm_7", "norm", [](Calls& c) { c.requantize.norm = 7; });
    add<requantize>("no_source", "src", [](Calls& c) { c.requantize.src = nullptr; });
    add<requantize>("no_target", "dst", [](Calls& c) { c.requantize.dst = nullptr; });
    add<requantize>("another_shape", "dst", [](Calls& c) { c.dst.shape[2] = 8; });
    add<requantize>("indices_of_floats", "row_indices", [](Calls& c) { c.row_indices.type = WINNOW_TYPE_F32; });
    add<requantize>("longer_rows_in_place", "dst", [](Calls& c) {
        c.dst = c.src;
        c.dst.type = WINNOW_TYPE_F16;
        c.dst.stride[3] = 2;
        c.dst.stride[2] = c.src.stride[2] = 128;
        c.src.shape[2] = c.dst.shape[2] = 4;
    });
    add<requantize>("in_place_with_other_strides", "dst", [](Calls& c) {
        c.dst.buffer = c.src.buffer;
        c.dst.offset = c.src.offset;
    });
    add<requantize>("in_place_on_rows_that_overlap", "src", [](Calls& c) {
        c.dst = c.src;
        c.src.type = WINNOW_TYPE_F16;
        c.src.stride[3] = 2;
        c.src.shape[2] = c.dst.shape[2] = 4;
        c.row_indices.shape[3] = 4;
    });
    add<dequantize>("packed_target", "dst", [](Calls& c) { c.dequantize.dst = &c.src; });
    add<dequantize>("fewer_rows_than_indices", "row_indices", [](Calls& c) { c.row_indices.shape[3] = 3; });
    add<dequantize>("all_rows_into_fewer", "dst", [](Calls& c) { c.dequantize.row_indices = nullptr; });
    add<dequantize>("target_on_source", "dst", [](Calls& c) {
        c.dequantize.src = &c.dense;
        c.dense_out = c.dense;
    });
    add<hadamard>("packed_source_of_a_rotation", "src", [](Calls& c) { c.hadamard.src = &c.src; });
    add<hadamard>("between_chunks", "src", [](Calls& c) { c.dense.shape[3] = c.dense_out.shape[3] = 63; });
    add<hadamard>("inverse_2", "inverse", [](Calls& c) { c.hadamard.inverse = 2; });
    add<hadamard>("reserved_of_a_rotation", "reserved", [](Calls& c) { c.hadamard.reserved = 2; });
    add<hadamard>("in_place_in_another_type", "dst", [](Calls& c) {
        c.dense_out.buffer = c.dense.buffer;
        c.dense_out.offset = c.dense.offset;
        c.dense_out.type = WINNOW_TYPE_F16;
        c.dense_out.stride[3] = 2;
    });
    add<hadamard>(
        "longer_than_a_rotation", "src",
        [](Calls& c) {
            make_long(c.dense, WINNOW_TYPE_F16);
            make_long(c.dense_out, WINNOW_TYPE_F16);
        },
        WINNOW_ERROR_UNSUPPORTED);
    add<append>(
        "rotated_rows_too_long_to_append", "k_cache",
        [](Calls& c) {
            make_long(c.dense, WINNOW_TYPE_F16);
            make_long(c.dst, WINNOW_TYPE_TURBO2);
            c.row_indices.shape[3] = 1;
        },
        WINNOW_ERROR_UNSUPPORTED);
    add<requantize>(
        "rotated_rows_too_long_to_write", "dst",
        [](Calls& c) {
            make_long(c.src, WINNOW_TYPE_Q8_0);
            make_long(c.dst, WINNOW_TYPE_TURBO2);
        },
        WINNOW_ERROR_UNSUPPORTED);
    add<dequantize>(
        "rotated_rows_too_long_to_read", "src",
        [](Calls& c) {
            make_long(c.src, WINNOW_TYPE_TURBO2);
            make_long(c.dense_out, WINNOW_TYPE_F16);
            c.row_indices.shape[3] = 1;
        },
        WINNOW_ERROR_UNSUPPORTED);
}

} // namespace winnow::conformance
