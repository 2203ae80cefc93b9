// All arithmetic is in F32; rows of F16 are not rounded again.
#include "rotation.hpp"

#include <bit>
#include <cstring>

namespace winnow::ort {

namespace {

float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
    if (exponent == 0) { // zero or subnormal: a multiple of 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    const uint32_t bits = exponent == 31 ? 0xffu : exponent + 112;
    return std::bit_cast<float>(sign | bits << 23 | mantissa << 13);
}

} // namespace

void to_floats(const void* data, bool is_half, int64_t count, float* out) {
    if (!is_half) {
        std::memcpy(out, data, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    const uint16_t* halves = static_cast<const uint16_t*>(data);
    for (int64_t i = 0; i < count; ++i) out[i] = half_to_float(halves[i]);
}

void rotate(const Rows& rows, const RotationTables& tables, const std::vector<int64_t>& positions, bool is_interleaved,
            std::vector<float>& out) {
    const int64_t half = tables.half;
    const int64_t element = rows.is_half ? 2 : 4, table_row = half * (tables.is_half ? 2 : 4);
    const auto bytes = [](const void* data, int64_t offset) { return static_cast<const char*>(data) + offset; };
    out.resize(static_cast<size_t>(rows.batch * rows.tokens * rows.heads * rows.size));
    std::vector<float> row(static_cast<size_t>(rows.size)), cos(static_cast<size_t>(half)),
        sin(static_cast<size_t>(half));
    float* to = out.data();
    for (int64_t token = 0; token < rows.batch * rows.tokens; ++token) {
        const int64_t position = positions[static_cast<size_t>(token)];
        to_floats(bytes(tables.cos, position * table_row), tables.is_half, half, cos.data());
        to_floats(bytes(tables.sin, position * table_row), tables.is_half, half, sin.data());
        for (int64_t head = 0; head < rows.heads; ++head, to += rows.size) {
            const int64_t at = token * rows.token_stride + head * rows.size;
            to_floats(bytes(rows.data, at * element), rows.is_half, rows.size, row.data());
            for (int64_t i = 0; i < half; ++i) {
                const int64_t a = is_interleaved ? 2 * i : i, b = is_interleaved ? 2 * i + 1 : i + half;
                to[a] = row[a] * cos[i] - row[b] * sin[i];
                to[b] = row[b] * cos[i] + row[a] * sin[i];
            }
            for (int64_t i = 2 * half; i < rows.size; ++i) to[i] = row[i];
        }
    }
}

} // namespace winnow::ort
