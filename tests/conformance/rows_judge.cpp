// What may differ between two backends that store the same row:
//
//   dense    nothing but the payload of a NaN
//   ggml     nothing: the blocks are ggml's bit for bit
//   affine   nothing: the numbers are mx.quantize's
//   turbo    a code where y = R x lies within 1e-4 of the midpoint between two centroids (in units of |y| / sqrt(n)),
//            which then may be either; the factor by one unit in its last place; and in sum the row may be off from x
//            by 1e-6 |x| and that unit more than the reference's is
//
// Where the numbers themselves carry the rounding of a rotation, dense rows may differ by it, and quantized_judge.cpp
// says what ggml's and affine rows may hold. A row that is not finite has to be the reference's whatever it came from.
#include "rows_judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "elements.hpp"
#include "packing.hpp"
#include "quantized_judge.hpp"

namespace winnow::conformance {
namespace {

constexpr double nearly_a_midpoint = 1e-4;

// The positive halves of the codebooks; the whole is symmetric.
std::vector<double> centroids(int bits) {
    std::vector<double> positive;
    if (bits == 2) positive = {.452780, 1.510418};
    if (bits == 3) positive = {.245094, .756005, 1.343909, 2.151946};
    if (bits == 4) positive = {.128395, .388048, .656759, .942340, 1.256231, 1.618046, 2.069017, 2.732590};
    std::vector<double> all;
    for (auto at = positive.rbegin(); at != positive.rend(); ++at) all.push_back(-*at);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
}

struct TurboRow {
    std::vector<int> codes, bits;
    uint16_t factor_bits = 0;
    double factor() const { return from_half(f16_format, factor_bits); }
    double value(size_t at) const { return factor() * centroids(bits[at])[static_cast<size_t>(codes[at])]; }
};

TurboRow read_turbo(uint32_t type, const std::byte* row, int64_t elements) {
    TurboRow result;
    result.codes.resize(static_cast<size_t>(elements));
    result.bits.resize(static_cast<size_t>(elements));
    for (int64_t chunk = 0; chunk < elements / 16; ++chunk) {
        const int bits = turbo_bits(type, chunk, elements / 16);
        // The even elements' codes, then the odd ones', each half a little-endian number.
        for (int parity = 0; parity < 2; ++parity) {
            uint64_t half = 0;
            for (int byte = 0; byte < bits; ++byte)
                half |= static_cast<uint64_t>(row[parity * bits + byte]) << (8 * byte);
            for (int at = 0; at < 8; ++at) {
                const size_t element = static_cast<size_t>(16 * chunk + 2 * at + parity);
                result.codes[element] = static_cast<int>(half >> (bits * at)) & ((1 << bits) - 1);
                result.bits[element] = bits;
            }
        }
        row += ptrdiff_t{2} * bits;
    }
    std::memcpy(&result.factor_bits, row, 2);
    return result;
}

template <typename Value>
double distance(const std::vector<double>& from, const Value& value) {
    double sum = 0;
    for (size_t at = 0; at < from.size(); ++at) sum += (from[at] - value(at)) * (from[at] - value(at));
    return std::sqrt(sum);
}

std::vector<double> row_of(const TestTensor& tensor, Index at) {
    std::vector<double> row(static_cast<size_t>(tensor.shape()[3]));
    for (; at[3] < tensor.shape()[3]; ++at[3]) row[static_cast<size_t>(at[3])] = tensor.get(at);
    return row;
}

// y: the row's numbers, rotated.
std::string judge_turbo(uint32_t type, const std::byte* got_row, const std::byte* want_row,
                        const std::vector<double>& y) {
    const auto n = static_cast<int64_t>(y.size());
    const TurboRow got = read_turbo(type, got_row, n), want = read_turbo(type, want_row, n);
    std::ostringstream text;
    const double norm = distance(y, [](size_t) { return 0.0; });
    if (!(std::isfinite(norm)) || std::isnan(want.factor())) return "the bytes differ, and the row is not finite";
    if (std::abs(static_cast<int>(got.factor_bits) - static_cast<int>(want.factor_bits)) > 1) {
        text << "the factor is " << got.factor() << ", the reference says " << want.factor();
        return text.str();
    }
    for (size_t at = 0; at < y.size(); ++at) {
        if (got.codes[at] == want.codes[at]) continue;
        const std::vector<double> book = centroids(want.bits[at]);
        const double z = y[at] / (norm / std::sqrt(static_cast<double>(n)));
        const size_t lower = static_cast<size_t>(std::min(got.codes[at], want.codes[at]));
        const double midpoint = (book[lower] + book[lower + 1]) / 2;
        if (std::abs(got.codes[at] - want.codes[at]) == 1 && std::fabs(z - midpoint) <= nearly_a_midpoint) continue;
        text << "the code of element " << at << " is " << got.codes[at] << ", the reference says " << want.codes[at]
             << " for " << z;
        return text.str();
    }
    const double got_error = distance(y, [&](size_t at) { return got.value(at); });
    const double want_error = distance(y, [&](size_t at) { return want.value(at); });
    const bool is_a_unit_off = got.factor_bits != want.factor_bits;
    if (got_error > want_error + 1e-6 * norm + (is_a_unit_off ? 0x1p-10 * norm : 0)) {
        text << "the row is off by " << got_error << ", the reference's by " << want_error;
        return text.str();
    }
    return "";
}

// Dense rows whose numbers the two backends know to the rounding of single precision only.
std::string judge_inexact_dense(const TestTensor& got, const TestTensor& want, Index at, const std::vector<double>& x) {
    const double norm = distance(x, [](size_t) { return 0.0; });
    for (; at[3] < got.shape()[3]; ++at[3]) {
        // Rounding may go the other way: the one bound, and the other's neighbour.
        const double bound = 1e-6 * norm + 2 * rounding_error(got.type(), want.get(at));
        if (agrees(got.get(at), want.get(at), bound, largest(got.type()))) continue;
        std::ostringstream text;
        text << "element " << at[3] << " is " << got.get(at) << ", the reference says " << want.get(at);
        return text.str();
    }
    return "";
}

std::string judge_dense(const TestTensor& got, const TestTensor& want, Index at) {
    for (; at[3] < got.shape()[3]; ++at[3]) {
        if (std::memcmp(got.element(at), want.element(at), element_size(got.type())) == 0) continue;
        if (std::isnan(got.get(at)) && std::isnan(want.get(at))) continue; // a NaN stays one; its payload is free
        std::ostringstream text;
        text << "element " << at[3] << " is " << got.get(at) << ", the reference says " << want.get(at);
        return text.str();
    }
    return "";
}

std::string first_byte(const TestTensor& got, const TestTensor& want, const Index& row) {
    size_t at = 0;
    while (got.element(row)[at] == want.element(row)[at]) ++at;
    return "byte " + std::to_string(at) + " of " + std::to_string(got.row_size()) + " is " +
           std::to_string(static_cast<int>(got.element(row)[at])) + ", the reference says " +
           std::to_string(static_cast<int>(want.element(row)[at]));
}

// Judges a packed row that was not made from exactly these numbers.
std::string judge_inexact_packed(const TestTensor& got, const TestTensor& want, const Index& row,
                                 const std::vector<double>& x) {
    if (!std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); }))
        return "the row is not finite, and " + first_byte(got, want, row);
    if (const std::string wrong = judge_quantized(want.type(), want.element(row), x); !wrong.empty())
        return "the judge does not understand the reference: " + wrong;
    return judge_quantized(got.type(), got.element(row), x);
}

} // namespace

std::string judge_rows(const RowsToJudge& rows) {
    const uint32_t type = rows.got.type();
    std::ostringstream text;
    int count = 0;
    TestTensor rotated; // made when the first row differs
    rows.got.each_row([&](const Index& row) {
        if (std::memcmp(rows.got.element(row), rows.want.element(row), rows.got.row_size()) == 0) return;
        const Origin origin = rows.origin(row);
        std::string wrong;
        if (!origin.is_written) {
            wrong = "was to be left alone: " + first_byte(rows.got, rows.want, row);
        } else if (is_turbo(type)) {
            if (!rotated) rotated = rotate(rows.numbers, false);
            wrong = judge_turbo(type, rows.got.element(row), rows.want.element(row), row_of(rotated, origin.row));
        } else if (!rows.is_exact) {
            const std::vector<double> x = row_of(rows.numbers, origin.row);
            wrong = is_packed(type) ? judge_inexact_packed(rows.got, rows.want, row, x)
                                    : judge_inexact_dense(rows.got, rows.want, row, x);
        } else {
            wrong = is_packed(type) ? first_byte(rows.got, rows.want, row) : judge_dense(rows.got, rows.want, row);
        }
        if (wrong.empty() || ++count > 3) return;
        text << type_name(type) << " row [" << row[0] << ", " << row[1] << ", " << row[2] << "]: " << wrong << "\n";
    });
    if (count > 3) text << "... " << count << " rows in all";
    return text.str();
}

void fill_row(TestTensor& numbers, const Index& row, int kind, uint64_t seed) {
    std::mt19937_64 engine(seed);
    auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    auto sign = [&] { return engine() % 2 ? 1.0 : -1.0; };
    auto number = [&](int64_t at) -> double {
        switch (kind) {
        case 1: return sign() * static_cast<double>(engine() % 255) * 0.5;              // ties, with 127 as the largest
        case 2: return sign() * 0.0;                                                    //
        case 3: return at == 5 ? -30000 : uniform() - 0.5;                              // one huge element
        case 4: return sign() * std::ldexp(std::floor(60 * uniform()), -24);            // half's denormals
        case 5: return at == 7 ? std::numeric_limits<double>::quiet_NaN() : uniform();  //
        case 6: return at == 11 ? -std::numeric_limits<double>::infinity() : uniform(); //
        case 7: return 0.7;                                                             // a constant row
        case 8: return sign();                                                          // both extremes, as often
        case 9: return 1e6 * (uniform() - 0.5);                                         // beyond half's range
        case 10: return 3 + uniform();                                                  // far from 0
        case 11: return sign() * std::ldexp(1 + uniform(), -static_cast<int>(engine() % 20)); // many binades
        case 12: return at % 2 ? 0 : -uniform();                                              // of one sign, and 0
        case 13: return std::ldexp(uniform() - 0.5, -9);                                      // small
        case 14: return 1e-23 * (uniform() - 0.5);                                            // squares vanish in f32
        case 15: return 1e25 * (uniform() - 0.5);                                             // squares overflow in f32
        default: return 6 * uniform() - 3;
        }
    };
    for (int64_t at = 0; at < numbers.shape()[3]; ++at) numbers.set({row[0], row[1], row[2], at}, number(at));
}

} // namespace winnow::conformance
