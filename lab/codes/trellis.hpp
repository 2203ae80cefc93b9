// A trellis code for rows of K and V, for the lab's measurements. Every element of a row has `bits[i]` bits of code.
// A state of L bits takes the codes in from below: state = ((state << bits) | code) & (2^L - 1), from state 0. The
// element's value is tables[bits][state]. An element with 0 bits has the value 0 and leaves the state as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::lab {

constexpr int most_bits = 6;        // of an element
constexpr int most_elements = 4096; // of a row

enum Result : int {
    done = 0,
    bad_argument = 1,
    not_finite = 2, // a row or a weight is infinite or not a number, or an error overflows
};

// Searches the codes of a row with the least weighted squared error (the Viterbi algorithm).
class Trellis {
public:
    // tables: [most_bits + 1][2^L] values, of which tables[0] is unused; they have to outlive this object. L: 8 or 9.
    Trellis(const float* tables, int L) : tables_(tables), L_(L) {}

    // Finds the state after each of the n elements of `row`, in units of the tables. weights: NULL for 1 everywhere.
    // Of equal errors it takes the lowest predecessor and the lowest final state. Returns the error, which is infinite
    // if it overflows.
    float search(const float* row, int n, const int32_t* bits, const float* weights, uint16_t* states);

    const float* table(int bits) const { return tables_ + (static_cast<size_t>(bits) << L_); }

private:
    const float* tables_;
    int L_;
    std::vector<uint8_t> from_; // [elements][2^L]: the high bits of the best predecessor
};

// Bytes of the codes of a row.
size_t packed_bytes(int n, const int32_t* bits);

// Writes the codes of a row as one number, little end first, with the last element's code in its lowest bits. Then the
// state of an element is a window of L bits of the number, which starts at the element's own code.
void pack_states(const uint16_t* states, int n, const int32_t* bits, uint8_t* bytes);

// Reads the values of a row from its packed codes: the plain definition, element after element.
void decode_packed(const uint8_t* bytes, int n, const int32_t* bits, const float* tables, int L, float* values);

} // namespace winnow::lab

// The interface of the shared library for Python's ctypes. All functions return a Result.
#define WINNOW_LAB_EXPORT extern "C" __attribute__((visibility("default")))

// Codes and decodes `count` rows of n elements (rows and decoded: [count][n]) with a trellis. weights: [n] factors of
// squared errors, or NULL. norm 1: searches codes of row / rms(row), the root mean square over elements with bits, and
// scales the values by sum(w c y) / sum(w c^2), rounded to half (at most 65504); norm 0: codes rows as they are,
// without a scale.
WINNOW_LAB_EXPORT int winnow_lab_trellis_code(const float* rows, float* decoded, int64_t count, int n,
                                              const int32_t* bits, const float* weights, const float* tables, int L,
                                              int norm);

// Makes a table of 2^L values for Gaussian elements of `bits` bits by `passes` passes of training. mse: the mean
// squared error for rows of 64 that the training did not see (norm 0). More passes help up to some 100.
WINNOW_LAB_EXPORT int winnow_lab_trellis_train_passes(int L, int bits, uint64_t seed, int passes, float* table,
                                                      double* mse);

// The same with 20 passes.
WINNOW_LAB_EXPORT int winnow_lab_trellis_train(int L, int bits, uint64_t seed, float* table, double* mse);

// Codes and decodes rows with a scalar code: the Lloyd-Max levels c of a Gaussian, scaled by sum(w c y) / sum(w c^2)
// rounded to half. search 1: tries row / (f rms(row)) for f = 0.76, 0.82, ... 1.24 and keeps the f of the least
// weighted error, the first of equals; search 0: f = 1 only.
WINNOW_LAB_EXPORT int winnow_lab_scalar_code(const float* rows, float* decoded, int64_t count, int n,
                                             const int32_t* bits, const float* weights, int search);

// Writes the 2^bits Lloyd-Max levels of a Gaussian, ascending, and their mean squared error.
WINNOW_LAB_EXPORT int winnow_lab_scalar_levels(int bits, double* levels, double* mse);
