// The reference at work for the tests' sake.
#include "packing.hpp"

#include <cstring>
#include <stdexcept>

#include "elements.hpp"

namespace winnow::conformance {
namespace {

template <typename Desc>
void run_on_reference(const Desc& desc) {
    if (reference().run(desc) != WINNOW_OK || reference().api().finish(reference().context()) != WINNOW_OK)
        throw std::runtime_error("the reference refuses: " + reference().message());
}

TestTensor in_f32(const TestTensor& numbers) {
    TestTensor copy(WINNOW_TYPE_F32, numbers.shape());
    numbers.each([&](const Index& at) { copy.set(at, numbers.get(at)); });
    return copy;
}

} // namespace

TestTensor all_rows(int64_t count) {
    TestTensor indices(WINNOW_TYPE_I32, {1, 1, 1, count});
    indices.each([&](const Index& at) { indices.set(at, static_cast<double>(at[3])); });
    return indices;
}

void pack(const TestTensor& numbers, TestTensor& target, uint32_t norm) {
    TestTensor source = numbers.packed_copy();
    TestTensor cache(target.type(), target.shape());
    TestTensor indices = all_rows(numbers.shape()[2]);
    for (TestTensor* tensor : {&source, &cache, &indices}) tensor->bind(reference());
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = source.view();
    desc.k_cache = cache.view();
    desc.k_row_indices = indices.view();
    desc.k_norm = norm;
    run_on_reference(desc);
    target.each_row([&](const Index& row) { std::memcpy(target.element(row), cache.element(row), cache.row_size()); });
}

TestTensor unpack(const TestTensor& rows) {
    if (!is_packed(rows.type())) return in_f32(rows);
    TestTensor source = rows.packed_copy();
    TestTensor numbers(WINNOW_TYPE_F32, rows.shape());
    for (TestTensor* tensor : {&source, &numbers}) tensor->bind(reference());
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = source.view();
    desc.dst = numbers.view();
    run_on_reference(desc);
    return numbers;
}

TestTensor rotate(const TestTensor& numbers, bool inverse) {
    TestTensor source = in_f32(numbers);
    TestTensor rotated(WINNOW_TYPE_F32, numbers.shape());
    for (TestTensor* tensor : {&source, &rotated}) tensor->bind(reference());
    winnow_hadamard_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = source.view();
    desc.dst = rotated.view();
    desc.inverse = inverse;
    run_on_reference(desc);
    return rotated;
}

} // namespace winnow::conformance
