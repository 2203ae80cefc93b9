// kv_requantize in place and apart, kv_dequantize, hadamard, row_bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "elements.hpp"
#include "formats_registration.hpp"
#include "packing.hpp"
#include "registered_cases.hpp"
#include "rows_judge.hpp"

namespace winnow::conformance {
namespace {

// A size that both formats have.
int64_t common_size(const Format& a, const Format& b) { return std::max<int64_t>({a.multiple, b.multiple, 64}); }

// Rows of every kind of number, packed by the reference.
TestTensor filled(uint32_t type, Shape shape, Layout layout, Memory memory, uint64_t seed) {
    TestTensor numbers(WINNOW_TYPE_F32, shape), rows(type, shape, layout, memory);
    numbers.each_row([&](const Index& row) {
        fill_row(numbers, row, static_cast<int>((row[2] + row[1]) % number_kinds),
                 seed + static_cast<uint64_t>(row[2] * 64 + row[1] * 8 + row[0]));
    });
    pack(numbers, rows);
    return rows;
}

// A few rows in no order, every fifth of them outside.
TestTensor some_rows(uint32_t type, int64_t count, int64_t slots, Memory memory) {
    TestTensor indices(type, {1, 1, 1, count}, Layout::packed, memory);
    for (int64_t at = 0; at < count; ++at) // 7 and the numbers of slots used here have no common divisor
        indices.set({0, 0, 0, at}, at % 5 == 4 ? (at % 2 ? -1.0 : static_cast<double>(slots))
                                               : static_cast<double>((3 + 7 * at) % slots));
    return indices;
}

// ---- kv_requantize -------------------------------------------------------------------------------------------------

struct Requantize {
    uint32_t src_type, dst_type, norm = WINNOW_NORM_DEFAULT;
    int64_t size = 64;
    bool in_place = false, with_indices = true;
    uint32_t index_type = WINNOW_TYPE_I32;
    Layout layout = Layout::packed;
    Memory memory = Memory::host;
};

winnow_tensor seen_as(const TestTensor& tensor, uint32_t type) {
    winnow_tensor view = *tensor.view();
    view.type = type;
    view.stride[3] = is_packed(type) ? 0 : static_cast<int64_t>(element_size(type));
    return view;
}

// What the first bytes of rows are when they are taken for another format.
TestTensor beginnings(const TestTensor& rows, uint32_t type) {
    TestTensor copy(type, rows.shape());
    copy.each_row([&](const Index& row) { std::memcpy(copy.element(row), rows.element(row), copy.row_size()); });
    return copy;
}

void expect_ends_untouched(const TestTensor& got, const TestTensor& before, size_t from) {
    got.each_row([&](const Index& row) {
        EXPECT_EQ(std::memcmp(got.element(row) + from, before.element(row) + from, got.row_size() - from), 0)
            << "bytes of row " << row[2] << " behind the new, shorter one";
    });
}

void run_requantize(const Requantize& c, uint64_t seed) {
    const int64_t slots = number_kinds + 3;
    const Shape shape = {2, 2, slots, c.size};
    TestTensor src = filled(c.src_type, shape, c.layout, c.memory, seed);
    TestTensor apart = c.in_place ? TestTensor() : TestTensor(c.dst_type, shape, c.layout, c.memory);
    TestTensor indices = c.with_indices ? some_rows(c.index_type, 9, slots, c.memory) : TestTensor();
    const TestTensor numbers = unpack(src);
    TestTensor source = src.packed_copy(), before = source.packed_copy();
    TestTensor want = c.in_place ? beginnings(src, c.dst_type) : apart.packed_copy(),
               wanted_rows = indices.packed_copy();

    winnow_kv_requantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.norm = c.norm;
    const auto describe = [&](winnow_tensor& place) {
        place = seen_as(c.in_place ? src : apart, c.dst_type);
        desc.src = src.view();
        desc.dst = &place;
        desc.row_indices = indices.view();
        return desc;
    };
    winnow_tensor dst{};
    const Session::Answer answer = subject().supports(describe(dst));
    for (TestTensor* tensor : {&src, &apart, &indices}) tensor->bind(subject());
    const winnow_kv_requantize_desc bound = describe(dst);
    const uint64_t rows_before = subject().stats().rows_requantized;
    const bool is_done = carried_out("kv_requantize", answer, bound);
    for (TestTensor* tensor : {&src, &apart, &indices}) tensor->fetch();
    if (!is_done) {
        EXPECT_EQ(src.change(), "");
        return;
    }
    EXPECT_EQ(subject().stats().rows_requantized - rows_before,
              static_cast<uint64_t>(4 * (c.with_indices ? 9 : slots)));

    for (TestTensor* tensor : {&source, &want, &wanted_rows}) tensor->bind(reference());
    desc.src = source.view();
    desc.dst = want.view();
    desc.row_indices = wanted_rows.view();
    ASSERT_EQ(reference().run(desc), WINNOW_OK) << reference().message();
    std::vector<bool> is_written(static_cast<size_t>(slots), !c.with_indices);
    if (indices)
        indices.each([&](const Index& at) {
            if (const double row = indices.get(at); row >= 0 && row < static_cast<double>(slots))
                is_written[static_cast<size_t>(row)] = true;
        });
    const TestTensor got = c.in_place ? beginnings(src, c.dst_type) : apart.packed_copy();
    const auto origin = [&](const Index& row) { return Origin{is_written[static_cast<size_t>(row[2])], row}; };
    EXPECT_EQ(judge_rows({got, want, numbers, origin, !is_turbo(c.src_type)}), "");
    EXPECT_EQ((c.in_place ? src : apart).damage(), "") << "beside dst";
    EXPECT_EQ(indices ? indices.change() : "", "") << "row_indices";
    if (c.in_place)
        expect_ends_untouched(src, before, got.row_size());
    else
        EXPECT_EQ(src.change(), "") << "src";
}

void register_requantize() {
    size_t at = 0;
    for (const Format& from : formats()) {
        // The ways that caches take, and one format of any kind.
        std::vector<uint32_t> targets = {WINNOW_TYPE_TURBO2, WINNOW_TYPE_AFFINE4_G32,
                                         formats()[(7 * at + 3) % formats().size()].type};
        // A rotated row is turned back by each backend in its own way before it is quantized: every format that may be.
        if (from.type == WINNOW_TYPE_TURBO4) targets.insert(targets.end(), {WINNOW_TYPE_Q8_0, WINNOW_TYPE_AFFINE8_G64});
        if (from.type == WINNOW_TYPE_TURBO3_5) targets.insert(targets.end(), {WINNOW_TYPE_Q5_0, WINNOW_TYPE_Q4_1});
        if (from.type == WINNOW_TYPE_TURBO3)
            targets.insert(targets.end(), {WINNOW_TYPE_Q4_0, WINNOW_TYPE_AFFINE4_G128});
        if (from.type == WINNOW_TYPE_TURBO2) targets.insert(targets.end(), {WINNOW_TYPE_Q5_1, WINNOW_TYPE_F16});
        ++at;
        for (uint32_t target : targets) {
            const Format& to = *find_format(target);
            Requantize c{from.type, to.type};
            c.size = common_size(from, to);
            const std::string name = std::string(from.name) + "_to_" + to.name;
            const bool fits_in_place = row_size(to.type, c.size) <= row_size(from.type, c.size);
            register_format_test("requantize", name, __FILE__, __LINE__, [=] {
                for (int which = 0; which < 4; ++which) {
                    Requantize varied = c;
                    varied.in_place = fits_in_place && which % 2;
                    varied.with_indices = which < 3;
                    varied.norm = static_cast<uint32_t>(which);
                    varied.index_type = which == 1 ? WINNOW_TYPE_I64 : WINNOW_TYPE_I32;
                    varied.layout = which == 2 ? Layout::permuted_padded : which == 3 ? Layout::padded : Layout::packed;
                    varied.memory = Memory((which + at) % 3);
                    SCOPED_TRACE("variation " + std::to_string(which));
                    run_requantize(varied, options().seed);
                }
            });
        }
    }
    const struct {
        uint32_t from, to;
        int64_t size;
    } sizes[] = {{WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, 80},
                 {WINNOW_TYPE_TURBO3, WINNOW_TYPE_TURBO2, 112},
                 {WINNOW_TYPE_F16, WINNOW_TYPE_TURBO3_5, 576},
                 {WINNOW_TYPE_AFFINE8_G32, WINNOW_TYPE_AFFINE4_G32, 96},
                 {WINNOW_TYPE_F16, WINNOW_TYPE_Q8_0, 256},
                 {WINNOW_TYPE_TURBO3_5, WINNOW_TYPE_TURBO2_5, 144},
                 {WINNOW_TYPE_AFFINE8_G128, WINNOW_TYPE_TURBO3, 384},
                 {WINNOW_TYPE_F32, WINNOW_TYPE_BF16, 7},
                 // Rows of merged heads.
                 {WINNOW_TYPE_F16, WINNOW_TYPE_Q8_0, 1024},
                 {WINNOW_TYPE_Q8_0, WINNOW_TYPE_Q4_0, 4096},
                 {WINNOW_TYPE_F32, WINNOW_TYPE_IQ4_NL, 1056},
                 {WINNOW_TYPE_Q5_1, WINNOW_TYPE_Q5_0, 1120},
                 {WINNOW_TYPE_Q4_1, WINNOW_TYPE_F16, 4096},
                 {WINNOW_TYPE_IQ4_NL, WINNOW_TYPE_Q8_0, 65536},
                 {WINNOW_TYPE_AFFINE8_G32, WINNOW_TYPE_AFFINE4_G32, 1024},
                 {WINNOW_TYPE_AFFINE8_G32, WINNOW_TYPE_Q8_0, 1056},
                 {WINNOW_TYPE_F16, WINNOW_TYPE_AFFINE8_G128, 4096}};
    for (const auto& [from, to, size] : sizes) {
        Requantize c{from, to};
        c.size = size;
        c.in_place = row_size(to, size) <= row_size(from, size);
        register_format_test("requantize", type_name(from) + "_to_" + type_name(to) + "_size_" + std::to_string(size),
                             __FILE__, __LINE__, [c] { run_requantize(c, options().seed + 5); });
    }
}

// ---- kv_dequantize -------------------------------------------------------------------------------------------------

struct Dequantize {
    uint32_t src_type, dst_type = WINNOW_TYPE_F32, index_type = WINNOW_TYPE_I32;
    int64_t size = 64;
    bool with_indices = true;
    Layout src_layout = Layout::packed, dst_layout = Layout::packed;
    Memory memory = Memory::host;
};

double norm_of(const TestTensor& numbers, Index at) {
    double sum = 0;
    for (at[3] = 0; at[3] < numbers.shape()[3]; ++at[3]) sum += numbers.get(at) * numbers.get(at);
    return std::sqrt(sum);
}

// share: of the row's length, that an element may be off besides being rounded once.
void expect_numbers(const TestTensor& got, const TestTensor& want, double share) {
    int wrong = 0;
    double norm = 0;
    got.each([&](const Index& at) {
        if (at[3] == 0) norm = share > 0 ? norm_of(want, {at[0], at[1], at[2], 0}) : 0;
        const double a = got.get(at), b = want.get(at);
        const double bound = (1 + 0x1p-10) * rounding_error(got.type(), b) + share * norm + 0x1p-120;
        if (agrees(a, b, bound, largest(got.type())) || ++wrong > 3) return;
        ADD_FAILURE() << "dst[" << at[0] << ", " << at[1] << ", " << at[2] << ", " << at[3] << "] is " << a
                      << ", the reference says " << b << ", permitted error " << bound;
    });
    EXPECT_LE(wrong, 3) << "elements in all";
}

// Rows of src, whatever their bytes, against what the reference reads; indices may be absent.
void compare_dequantized(TestTensor& src, TestTensor& dst, TestTensor& indices) {
    TestTensor source = src.packed_copy(), want(WINNOW_TYPE_F32, dst.shape()), wanted_rows = indices.packed_copy();
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = src.view();
    desc.dst = dst.view();
    desc.row_indices = indices.view();
    const Session::Answer before = subject().supports(desc);
    for (TestTensor* tensor : {&src, &dst, &indices}) tensor->bind(subject());
    const bool is_done = carried_out("kv_dequantize", before, desc);
    for (TestTensor* tensor : {&src, &dst, &indices}) tensor->fetch();
    EXPECT_EQ(src.change(), "") << "src";
    EXPECT_EQ(indices ? indices.change() : "", "") << "row_indices";
    EXPECT_EQ(is_done ? dst.damage() : dst.change(), "") << "dst";
    if (!is_done) return;
    for (TestTensor* tensor : {&source, &want, &wanted_rows}) tensor->bind(reference());
    desc.src = source.view();
    desc.dst = want.view();
    desc.row_indices = wanted_rows.view();
    ASSERT_EQ(reference().run(desc), WINNOW_OK) << reference().message();
    expect_numbers(dst, want, is_turbo(src.type()) ? 1e-6 : 0);
}

void run_dequantize(const Dequantize& c, uint64_t seed) {
    const int64_t slots = number_kinds + 3, rows = c.with_indices ? 11 : slots;
    TestTensor src = filled(c.src_type, {2, 2, slots, c.size}, c.src_layout, c.memory, seed);
    TestTensor dst(c.dst_type, {2, 2, rows, c.size}, c.dst_layout, c.memory);
    TestTensor indices = c.with_indices ? some_rows(c.index_type, rows, slots, c.memory) : TestTensor();
    compare_dequantized(src, dst, indices);
}

// Bytes that no append leaves: each of a backend's ways of reading them gives the same numbers.
void run_dequantize_bytes(uint32_t type, uint64_t seed) {
    TestTensor src(type, {1, 2, 37, 96}), dst(WINNOW_TYPE_F32, src.shape()), indices;
    std::mt19937_64 engine(seed);
    src.each_row([&](const Index& row) {
        const uint64_t most = row[2] % 3 == 0 ? 255 : row[2] % 3 == 1 ? 3 : 0; // of bytes that differ from 0xff
        for (size_t at = 0; at < src.row_size(); ++at)
            src.element(row)[at] = static_cast<std::byte>(0xff - engine() % (most + 1));
    });
    compare_dequantized(src, dst, indices);
}

void register_dequantize() {
    for (const uint32_t type : {WINNOW_TYPE_SPARSE16, WINNOW_TYPE_SPARSE8, WINNOW_TYPE_Q8_0})
        register_format_test("dequantize", "bytes_" + type_name(type), __FILE__, __LINE__,
                             [=] { run_dequantize_bytes(type, options().seed); });
    const uint32_t floating[] = {WINNOW_TYPE_F32, WINNOW_TYPE_F16, WINNOW_TYPE_BF16};
    for (const Format& format : formats())
        for (int64_t size : {64, 96, 256, 576, 1056, 4096}) {
            if (!fits(format, size) || (is_turbo(format.type) && size > largest_turbo_row)) continue;
            register_format_test("dequantize", std::string(format.name) + "_" + std::to_string(size), __FILE__,
                                 __LINE__, [=] {
                                     for (int which = 0; which < 3; ++which) {
                                         Dequantize c{format.type, floating[which]};
                                         c.size = size;
                                         c.with_indices = which != 2;
                                         c.index_type = which ? WINNOW_TYPE_I64 : WINNOW_TYPE_I32;
                                         c.src_layout = which == 1 ? Layout::permuted_padded : Layout::packed;
                                         c.dst_layout = which ? Layout::padded : Layout::permuted;
                                         c.memory = Memory((which + size / 32) % 3);
                                         SCOPED_TRACE("to " + type_name(c.dst_type));
                                         run_dequantize(c, options().seed + static_cast<uint64_t>(size));
                                     }
                                 });
        }
}

// ---- hadamard ------------------------------------------------------------------------------------------------------

struct Rotation {
    int64_t size;
    uint32_t src_type = WINNOW_TYPE_F32, dst_type = WINNOW_TYPE_F32;
    bool inverse = false, in_place = false;
    Layout layout = Layout::packed;
    Memory memory = Memory::host;
};

void run_hadamard(const Rotation& c, uint64_t seed) {
    TestTensor src(c.src_type, {2, 1, 8, c.size}, c.layout, c.memory);
    const int kinds[] = {0, 2, 3, 5, 7, 8, 11, 13};
    src.each_row([&](const Index& row) {
        fill_row(src, row, kinds[row[2]], seed + static_cast<uint64_t>(8 * row[0] + row[2]));
    });
    const TestTensor want = rotate(src, c.inverse);
    TestTensor apart = c.in_place ? TestTensor() : TestTensor(c.dst_type, src.shape(), c.layout, c.memory);
    TestTensor& dst = c.in_place ? src : apart;
    winnow_hadamard_desc desc{};
    desc.struct_size = sizeof desc;
    desc.inverse = c.inverse;
    desc.src = src.view();
    desc.dst = dst.view();
    const Session::Answer before = subject().supports(desc);
    src.bind(subject());
    apart.bind(subject());
    const bool is_done = carried_out("hadamard", before, desc);
    src.fetch();
    apart.fetch();
    EXPECT_EQ(c.in_place ? "" : src.change(), "") << "src";
    EXPECT_EQ(is_done ? dst.damage() : dst.change(), "") << "dst";
    if (is_done) expect_numbers(dst, want, 1e-6);
}

void register_hadamard() {
    for (int64_t size = 16; size <= 576; size += 16)
        register_format_test("hadamard", "size_" + std::to_string(size), __FILE__, __LINE__, [=] {
            const uint64_t seed = options().seed + static_cast<uint64_t>(size);
            for (bool inverse : {false, true}) {
                SCOPED_TRACE(inverse ? "inverse" : "forward");
                run_hadamard({size, WINNOW_TYPE_F32, WINNOW_TYPE_F32, inverse}, seed);
                run_hadamard(
                    {size, WINNOW_TYPE_F32, WINNOW_TYPE_F32, inverse, true, Layout::padded, Memory(size / 16 % 3)},
                    seed);
                run_hadamard({size, WINNOW_TYPE_F16, WINNOW_TYPE_BF16, inverse, false, Layout::permuted}, seed);
                run_hadamard({size, WINNOW_TYPE_BF16, WINNOW_TYPE_F16, inverse}, seed);
            }
        });
}

// ---- row_bytes -----------------------------------------------------------------------------------------------------

void register_row_bytes() {
    for (const Format& format : formats())
        register_format_test("row_bytes", format.name, __FILE__, __LINE__, [=] {
            const winnow_api& api = subject().api();
            for (int64_t elements = 1; elements <= 640; ++elements) {
                uint64_t bytes = 77;
                char message[256] = "";
                const int32_t status = api.row_bytes(format.type, elements, &bytes, message, sizeof message);
                if (fits(format, elements)) {
                    EXPECT_EQ(status, WINNOW_OK) << elements << ": " << message;
                    EXPECT_EQ(bytes, row_size(format.type, elements)) << elements;
                } else {
                    EXPECT_EQ(status, WINNOW_ERROR_INVALID_ARGUMENT) << elements;
                    EXPECT_NE(std::string(message).find("elements"), std::string::npos) << message;
                    EXPECT_EQ(bytes, 77u) << "written though refused";
                }
            }
        });
}

} // namespace

void register_format_rows() {
    register_row_bytes();
    register_hadamard();
    register_dequantize();
    register_requantize();
}

} // namespace winnow::conformance
