// What the launchers of the operations on rows share: which rows their kernels take, the options of a program for their
// formats, how the rows are divided, and the launch of those that take rows from one tensor to another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.hpp"
#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

// Elements of rows that are taken as a whole, in private memory, because in place scales lie behind the codes; a
// rotation takes up to largest_rotation. All other rows are taken in parts, however long they are.
constexpr int64_t largest_whole_row = 4096;

// Throw UNSUPPORTED with the reason. name: of the tensor, in messages; side: the end of it.
void check_row(const Tensor& tensor, const char* name, bool is_whole = false, const char* side = "");
void check_row_count(const std::array<int64_t, 4>& rows, const char* name); // [a, b, rows, elements]

// The variant of an operation on rows, slots or pages, or that of a shape.
const Variant& rows_variant(const Runtime& runtime, std::string_view operation, std::string_view shape = "");

// What the variant's groups take, or where it does not say: a handful of groups for each unit of the device, but none
// with less work than its start costs.
uint32_t rows_per_group(const Variant& variant, uint64_t rows, int64_t elements, uint32_t compute_units);

// About how many multiply-adds an element of a row costs.
uint64_t work_of_element(Type src, Type dst);

// "-DUSES_q4_0 -DUSES_turbo4 ": the packed formats among these, whose code a program compiles.
std::string uses_options(std::vector<Type> types);

// "-DUSES_turbo4 -DK_SIZE=128 ... -DK_FORMAT=turbo4 -DV_FORMAT=f16", as kernels/kv_store_row.h needs it.
// lower: packed segments below that one, as "-DTIERS=2 -DK_FORMAT_2=turbo2 -DV_FORMAT_2=turbo2" beside it.
std::string kv_options(const Tensor& k, const Tensor& v, std::span<const Segment> lower = {});

// Rows of src to rows of dst, for kv_requantize and kv_dequantize: one specialisation for each pair of formats and,
// where rows are taken as a whole, size of a row.
struct RowsMoved {
    const char* operation;
    const char* src_name; // in messages
    const char* dst_name;
    const char* indices_name;
    const Tensor& src;
    const Tensor& dst;
    const Tensor& row_indices; // absent: row i is row i
    int64_t rows;              // of each head
    Norm norm = Norm::corrected;
    Access access; // to dst
    bool may_be_in_place;
};

std::string validate_rows(const Runtime& runtime, const RowsMoved& args);
std::unique_ptr<Event> launch_rows(Runtime& runtime, const RowsMoved& args, bool want_event);

} // namespace winnow::opencl
