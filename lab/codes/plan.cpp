// Constants of the row formats, and the plain decoder.
#include "decoders.hpp"
#include "numbers.hpp"
#include "trellis.hpp"

#include <algorithm>
#include <numeric>

namespace winnow::lab {

uint16_t half_bits(float x) {
    const float rounded = round_to_half(x);
    if (rounded == 0) return 0;
    int exponent = 0;
    const float fraction = std::frexp(std::fabs(rounded), &exponent); // in [0.5, 1)
    const auto mantissa = static_cast<unsigned>(std::ldexp(fraction, 11)) - 1024U;
    const unsigned sign = rounded < 0 ? 0x8000U : 0U;
    return static_cast<uint16_t>(sign | static_cast<unsigned>(exponent + 14) << 10 | mantissa);
}

float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    const float size = exponent ? std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25)
                                : std::ldexp(static_cast<float>(mantissa), -24);
    return bits & 0x8000 ? -size : size;
}

size_t Format::code_bytes() const {
    if (layout == Layout::halves) return elements() * 2;
    return static_cast<size_t>(std::accumulate(bits.begin(), bits.end(), 0));
}

Plan::Plan(const Format& of, const float* trellis_table) : format(of) {
    if (format.layout == Layout::halves) return;
    const bool trellis = format.layout == Layout::trellis;
    for (const int b : format.bits) ++chunks_of[static_cast<size_t>(b)];
    size_t at = 0;
    for (size_t i = 0; i < format.elements(); ++i) {
        const size_t group = i / group_elements;
        const size_t place = i % group_elements;
        const auto b = static_cast<size_t>(format.bits[i / 8]);
        const size_t byte = at + i % 8; // of the 8 bytes that begin where the chunk begins
        bytes_of[group][place] = static_cast<uint8_t>(byte % 64);
        const bool inside = trellis ? byte < format.code_bytes() : i % 8 < b;
        has_byte[group] |= static_cast<uint64_t>(inside) << place;
        shifts[group][place] = static_cast<uint8_t>(b * (i % 8));
        masks[group][place] = static_cast<uint8_t>((1U << b) - 1);
        bases[group][place] = static_cast<uint8_t>(b ? (1U << b) - 2 : 62); // levels[62] is 0
        if (i % 8 == 7) at += b;
    }
    for (int b = 1; b <= 5; ++b) {
        std::array<double, 32> exact{};
        double mse = 0;
        winnow_lab_scalar_levels(b, exact.data(), &mse);
        const size_t count = size_t{1} << b;
        for (size_t i = 0; i < count; ++i) levels[count - 2 + i] = static_cast<float>(exact[i]);
    }
    const size_t count = size_t{1} << format.bits[0];
    if (count <= repeated.size()) {
        for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = levels[count - 2 + i % count];
    }
    if (trellis) std::copy_n(trellis_table, table.size(), table.begin());
    float largest = 0;
    for (size_t i = 0; i < table.size(); ++i) {
        const float value = trellis ? table[i] : i < levels.size() ? levels[i] : 0.0F;
        low[i] = static_cast<uint8_t>(half_bits(value) & 255);
        high[i] = static_cast<uint8_t>(half_bits(value) >> 8);
        largest = std::max(largest, std::fabs(value));
    }
    small_unit = largest / 127;
    for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<int8_t>(std::lround(table[i] / small_unit));
    if (!trellis) return;
    for (size_t window = 0; window < size_t{256} << format.bits[0]; ++window) {
        pairs[window] =
            half_bits(table[window & 255]) | static_cast<uint32_t>(half_bits(table[window >> format.bits[0]])) << 16;
    }
}

std::array<double, most_row_elements> Plan::decode(const uint8_t* row, Rounding rounding) const {
    std::array<double, most_row_elements> values{};
    const size_t n = format.elements();
    if (format.layout == Layout::trellis) {
        const std::vector<int32_t> all_bits(n, format.bits[0]);
        std::vector<float> tables(static_cast<size_t>(most_bits + 1) << 8);
        for (size_t i = 0; i < table.size(); ++i) {
            float& value = tables[(static_cast<size_t>(format.bits[0]) << 8) + i];
            value = rounding == Rounding::byte ? static_cast<float>(small[i]) * small_unit : table[i];
        }
        std::array<float, most_row_elements> decoded{};
        decode_packed(row, static_cast<int>(n), all_bits.data(), tables.data(), 8, decoded.data());
        std::reverse_copy(decoded.begin(), decoded.begin() + static_cast<std::ptrdiff_t>(n), values.begin());
    }
    size_t at = 0; // the bit of the next code
    for (size_t i = 0; i < n && format.layout == Layout::chunks; ++i) {
        size_t code = 0;
        const auto b = static_cast<size_t>(format.bits[i / 8]);
        for (size_t k = 0; k < b; ++k, ++at) code |= static_cast<size_t>(row[at / 8] >> (at % 8) & 1U) << k;
        values[i] = b ? static_cast<double>(levels[(size_t{1} << b) - 2 + code]) : 0.0;
    }
    for (size_t i = 0; i < n && format.layout == Layout::halves; ++i) {
        values[i] = static_cast<double>(half_value(static_cast<uint16_t>(row[2 * i] | row[2 * i + 1] << 8)));
    }
    if (rounding == Rounding::half) {
        for (double& value : values) value = static_cast<double>(round_to_half(static_cast<float>(value)));
    }
    return values;
}

} // namespace winnow::lab
