// Holds rows that a backend wrote into a cache against the reference's.
#pragma once

#include <functional>
#include <string>

#include "test_tensor.hpp"

namespace winnow::conformance {

// The numbers a row was made from, as an index into numbers, or nothing where the row was to be left alone.
struct Origin {
    bool is_written = false;
    Index row{};
};

struct RowsToJudge {
    const TestTensor& got;
    const TestTensor& want;
    const TestTensor& numbers; // F32, without gaps
    std::function<Origin(const Index& row)> origin;
    // Whether the numbers are exactly what the backend started from. Rows turned back out of a rotated format carry the
    // rounding of single precision.
    bool is_exact = true;
};

// "" when all is well, else the first rows that are not.
std::string judge_rows(const RowsToJudge& rows);

// A row of hostile numbers of one of several kinds: ordinary ones, ties, zeros, one huge element, denormals, NaN, ...
constexpr int number_kinds = 16;
void fill_row(TestTensor& numbers, const Index& row, int kind, uint64_t seed);

} // namespace winnow::conformance
