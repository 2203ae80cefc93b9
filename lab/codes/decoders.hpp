// Products of a query with packed rows, for the benchmark: one function for each layout, method and instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::lab {

constexpr size_t most_row_elements = 128;
constexpr size_t group_elements = 64; // elements that AVX-512 unpacks at once

enum class Layout { halves, chunks, trellis };

// A row format. A row is its codes and then its scale, a half.
// halves: elements as halves. chunks: chunk c of 8 elements is bits[c] bytes, with code j at bit bits[c] * j.
// trellis: as pack_states writes it, with the same bits for all elements.
struct Format {
    std::string name;
    Layout layout;
    std::vector<int> bits; // of each chunk of 8 elements
    size_t elements() const { return bits.size() * 8; }
    size_t code_bytes() const;
    size_t row_bytes() const { return code_bytes() + 2; }
};

// What the values of a method are rounded to, for the plain decoder that it is checked against.
enum class Rounding { none, half, byte };

// Constants of one format: what the decoders look up. Elements are numbered as they lie in the row: for trellis the
// last one first.
struct Plan {
    explicit Plan(const Format& format, const float* trellis_table);

    const Format& format;
    std::array<int, 6> chunks_of{}; // chunks with 0 to 5 bits; most bits come first
    // Of each group of 64 elements, for AVX-512: which bytes of the row each chunk has, where codes lie in them, which
    // bits of a code count, and where the levels of its number of bits begin.
    alignas(64) std::array<std::array<uint8_t, group_elements>, 2> bytes_of{}, shifts{}, masks{}, bases{};
    std::array<uint64_t, 2> has_byte{};           // bits for bytes_of: the byte is one of the row's codes
    alignas(64) std::array<float, 64> levels{};   // chunks: at 2^b - 2 those of b bits
    alignas(64) std::array<float, 16> repeated{}; // chunks with one number of bits, at most 4: its levels, repeated
    alignas(64) std::array<float, 256> table{};   // trellis
    alignas(64) std::array<uint8_t, 256> low{}, high{}; // bytes of the levels or the table as halves
    alignas(64) std::array<int8_t, 256> small{};        // trellis: the table in units of small_unit
    float small_unit = 0;
    alignas(64) std::array<uint32_t, 2048> pairs{}; // trellis: two values as halves for a window of 8 + bits bits

    // Value of every element of a row, without its scale: the plain definition.
    std::array<double, most_row_elements> decode(const uint8_t* row, Rounding rounding) const;
};

uint16_t half_bits(float x); // x: a normal number in the range of halves, or 0
float half_value(uint16_t bits);

// Writes scale * sum(q value) of each of `count` rows. q: in the order of `order`.
using Dots = void (*)(const Plan& plan, const uint8_t* rows, size_t count, const float* q, float* out);

enum class Order { elements, byte_planes }; // byte_planes: as unpacking of bytes leaves a group of 64

enum class Machine { avx2, avx512 };

struct Decoder {
    const char* method;
    Machine machine;
    Dots dots; // NULL: there is none
    Rounding rounding = Rounding::none;
    Order order = Order::elements;
};

std::vector<Decoder> decoders_of(const Format& format);

} // namespace winnow::lab
