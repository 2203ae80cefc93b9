// Squeezed rows: sign and mantissa of an element stay as they are, of the exponent its distance from the row's usual
// one is written, near ones in few bits (a Rice code; of the distances 0, -1, -2, 1, -3, 2, ... the rank). In a row of
// many zeros a bit before each element says whether it is one, and a zero has no other bits.
#include "cache/state/row_record.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <xxhash.h>

#include "cache/plan/config_value.hpp"

namespace winnow::cache {
namespace {

struct Head {
    uint16_t marker = row_marker;
    uint8_t version = row_version;
    RowRecord::Kind kind = RowRecord::Kind::plain;
    uint16_t check = 0;
};
static_assert(sizeof(Head) == 6);

struct PackedHead {
    uint16_t type = 0, v_type = 0, flags = 0;
};
static_assert(sizeof(PackedHead) == 6);
constexpr uint16_t flag_mean = 1, flag_importance = 2, flag_values_in_key = 4;

// The bytes of values in a packed key of the same format; none where they do not begin with a block of it.
std::span<const std::byte> values_in_key(std::span<const std::byte> key, Type type, int64_t first, int64_t elements) {
    const int64_t block = row_multiple(type);
    if (first % block != 0 || elements == 0 || elements % block != 0) return {};
    const uint64_t begin = first == 0 ? 0 : row_bytes(type, first), size = row_bytes(type, elements);
    return begin + size <= key.size() ? key.subspan(begin, size) : std::span<const std::byte>();
}

uint16_t check_of(std::span<const std::byte> row) {
    const std::span<const std::byte> rest = row.subspan(sizeof(Head));
    return static_cast<uint16_t>(XXH3_64bits_withSeed(rest.data(), rest.size(), std::to_integer<uint64_t>(row[3])));
}

// Begins a record, zero behind its head; that place.
std::span<std::byte> begin(std::span<std::byte> row, RowRecord::Kind kind) {
    std::fill(row.begin(), row.end(), std::byte{0});
    Head head;
    head.kind = kind;
    std::memcpy(row.data(), &head, sizeof head);
    return row.subspan(sizeof head);
}

// ---- Squeezed rows ----

struct Layout {
    unsigned exponent_bits, mantissa_bits;
    unsigned exponent(uint16_t element) const { return element >> mantissa_bits & ((1U << exponent_bits) - 1); }
    unsigned rest(uint16_t element) const { // sign and mantissa
        return (element >> 15U) << mantissa_bits | (element & ((1U << mantissa_bits) - 1));
    }
    uint16_t element(unsigned exponent, unsigned rest) const {
        const unsigned sign = rest >> mantissa_bits, mantissa = rest & ((1U << mantissa_bits) - 1);
        return static_cast<uint16_t>(sign << 15U | exponent << mantissa_bits | mantissa);
    }
};

Layout layout_of(Type type) { return type == Type::bf16 ? Layout{8, 7} : Layout{5, 10}; }

unsigned rank_of(int distance) {
    if (distance > 0) return 2 * static_cast<unsigned>(distance) + 1;
    return distance < -1 ? 2 * static_cast<unsigned>(-distance) - 2 : static_cast<unsigned>(-distance);
}

int distance_of(unsigned rank) {
    if (rank < 2) return -static_cast<int>(rank);
    return rank % 2 == 1 ? static_cast<int>(rank / 2) : -static_cast<int>(rank / 2 + 1);
}

struct Code {
    unsigned usual = 0, low_bits = 1; // the exponent at distance 0; bits of a rank that are written as they are
    bool marks_zeros = false;
    size_t bytes = std::numeric_limits<size_t>::max();
};

// The kind of a squeezed row has what its code has, in bits above the first such kind.
constexpr unsigned kind_wide = 1, kind_importance = 2, kind_zeros = 4;

unsigned bits_of(RowRecord::Kind kind) {
    return static_cast<unsigned>(kind) - static_cast<unsigned>(RowRecord::Kind::squeezed);
}

RowRecord::Kind kind_of(const Code& code, bool has_importance) {
    return static_cast<RowRecord::Kind>(static_cast<unsigned>(RowRecord::Kind::squeezed) +
                                        (code.low_bits == 2 ? kind_wide : 0) + (has_importance ? kind_importance : 0) +
                                        (code.marks_zeros ? kind_zeros : 0));
}

uint16_t element_at(std::span<const std::byte> row, size_t index) {
    uint16_t element = 0;
    std::memcpy(&element, row.data() + 2 * index, sizeof element);
    return element;
}

// The one that takes the fewest bytes.
Code best_code(std::span<const std::byte> row, const Layout& layout) {
    const size_t elements = row.size() / 2;
    Code best;
    for (const bool marks_zeros : {false, true}) {
        std::array<size_t, 256> count{};
        size_t written = 0;
        unsigned least = 255, most = 0;
        for (size_t i = 0; i < elements; ++i) {
            if (marks_zeros && element_at(row, i) == 0) continue;
            const unsigned exponent = layout.exponent(element_at(row, i));
            ++written;
            ++count[exponent];
            least = std::min(least, exponent);
            most = std::max(most, exponent);
        }
        if (written == 0) least = most; // all are zeros
        for (unsigned usual = least; usual <= most; ++usual) {
            for (const unsigned low_bits : {1U, 2U}) {
                size_t bits = written * (layout.mantissa_bits + 1 + low_bits + 1) + (marks_zeros ? elements : 0);
                for (unsigned exponent = least; exponent <= most; ++exponent)
                    bits +=
                        count[exponent] * (rank_of(static_cast<int>(exponent) - static_cast<int>(usual)) >> low_bits);
                const size_t bytes = 1 + (bits + 7) / 8;
                if (bytes < best.bytes) best = {usual, low_bits, marks_zeros, bytes};
            }
        }
    }
    return best;
}

class BitWriter {
public:
    explicit BitWriter(std::span<std::byte> to) : to_(to) {}
    void put(unsigned value, unsigned bits) {
        for (unsigned bit = 0; bit < bits; ++bit, ++at_)
            if ((value >> bit & 1U) != 0) to_[at_ / 8] |= std::byte{1} << at_ % 8;
    }

private:
    std::span<std::byte> to_;
    size_t at_ = 0;
};

// Behind a record's head, or its importance.
void write_elements(std::span<std::byte> to, std::span<const std::byte> plain, const Layout& layout, const Code& code) {
    to[0] = static_cast<std::byte>(code.usual);
    BitWriter bits(to.subspan(1));
    for (size_t i = 0; i < plain.size() / 2; ++i) {
        const uint16_t element = element_at(plain, i);
        if (code.marks_zeros) bits.put(element == 0, 1);
        if (code.marks_zeros && element == 0) continue;
        const unsigned rank = rank_of(static_cast<int>(layout.exponent(element)) - static_cast<int>(code.usual));
        for (unsigned high = rank >> code.low_bits; high > 0; --high) bits.put(1, 1);
        bits.put(0, 1);
        bits.put(rank, code.low_bits);
        bits.put(layout.rest(element), layout.mantissa_bits + 1);
    }
}

class BitReader {
public:
    explicit BitReader(std::span<const std::byte> from) : from_(from) {}
    unsigned take(unsigned bits) {
        unsigned value = 0;
        for (unsigned bit = 0; bit < bits; ++bit, ++at_) {
            if (at_ / 8 >= from_.size()) refuse("a row's record is damaged: its bits end before its elements");
            value |= std::to_integer<unsigned>(from_[at_ / 8] >> at_ % 8 & std::byte{1}) << bit;
        }
        return value;
    }
    std::span<const std::byte> rest() const { return from_.subspan((at_ + 7) / 8); }

private:
    std::span<const std::byte> from_;
    size_t at_ = 0;
};

unsigned take_element(BitReader& bits, const Layout& layout, unsigned usual, unsigned low_bits) {
    const unsigned limit = 1U << layout.exponent_bits;
    unsigned high = 0;
    while (bits.take(1) != 0)
        if (++high > 2 * limit) refuse("a row's record is damaged: it has an exponent beyond all");
    const unsigned rank = high << low_bits | bits.take(low_bits);
    const int exponent = static_cast<int>(usual) + distance_of(rank);
    if (exponent < 0 || exponent >= static_cast<int>(limit))
        refuse("a row's record is damaged: it has the exponent " + std::to_string(exponent));
    return layout.element(static_cast<unsigned>(exponent), bits.take(layout.mantissa_bits + 1));
}

// ---- Reading ----

// The packed row of a format that a record names.
std::span<const std::byte> packed_bytes(std::span<const std::byte> rest, uint16_t number, int64_t elements,
                                        Type& type) {
    type = static_cast<Type>(number);
    if (!is_packed(type) || elements == 0 || elements % row_multiple(type) != 0)
        refuse("a row's record is damaged: " + std::to_string(number) + " is no packed format of " +
               std::to_string(elements) + " elements");
    const uint64_t bytes = row_bytes(type, elements);
    if (bytes > rest.size()) refuse("a row's record is damaged: its packed row is longer than the record");
    return rest.subspan(0, bytes);
}

} // namespace

std::span<std::byte> write_evicted(std::span<std::byte> row) {
    if (row.size() < sizeof(Head)) return {};
    return begin(row, RowRecord::Kind::evicted);
}

std::span<std::byte> write_packed(std::span<std::byte> row, const PackedRow& packed) {
    std::span<const std::byte> v_bytes = packed.v_bytes;
    uint16_t flags = packed.has_mean ? flag_mean : uint16_t{0};
    if (packed.v_type == packed.type) {
        const auto elements = static_cast<int64_t>(v_bytes.size() / row_bytes(packed.type, row_multiple(packed.type))) *
                              row_multiple(packed.type);
        const std::span<const std::byte> same = values_in_key(packed.bytes, packed.type, packed.v_first, elements);
        if (!same.empty() && std::equal(same.begin(), same.end(), v_bytes.begin(), v_bytes.end())) {
            flags |= flag_values_in_key;
            v_bytes = {};
        }
    }
    const size_t payload = sizeof(PackedHead) + packed.bytes.size() + v_bytes.size();
    if (row.size() < sizeof(Head) + payload) return {};
    std::span<std::byte> rest = begin(row, RowRecord::Kind::packed);
    const PackedHead head{static_cast<uint16_t>(packed.type), static_cast<uint16_t>(packed.v_type), flags};
    std::memcpy(rest.data(), &head, sizeof head);
    std::copy(packed.bytes.begin(), packed.bytes.end(), rest.begin() + sizeof head);
    std::copy(v_bytes.begin(), v_bytes.end(), rest.begin() + sizeof head + packed.bytes.size());
    return rest.subspan(payload);
}

bool add_importance(std::span<std::byte> row, std::span<std::byte>& room, float importance) {
    if (room.size() < sizeof importance) return false;
    std::memcpy(room.data(), &importance, sizeof importance);
    room = room.subspan(sizeof importance);
    PackedHead head;
    std::memcpy(&head, row.data() + sizeof(Head), sizeof head);
    head.flags |= flag_importance;
    std::memcpy(row.data() + sizeof(Head), &head, sizeof head);
    return true;
}

size_t room_of_squeezed(std::span<const std::byte> row, Type type) {
    const size_t bytes = sizeof(Head) + best_code(row, layout_of(type)).bytes;
    return bytes < row.size() ? row.size() - bytes : 0;
}

std::span<std::byte> write_squeezed(std::span<std::byte> row, Type type) {
    const Layout layout = layout_of(type);
    const Code code = best_code(row, layout);
    if (row.size() <= sizeof(Head) + code.bytes) return {};
    const std::vector<std::byte> plain(row.begin(), row.end());
    const std::span<std::byte> rest = begin(row, kind_of(code, false));
    write_elements(rest, plain, layout, code);
    return rest.subspan(code.bytes);
}

std::span<std::byte> write_with_importance(std::span<std::byte> row, Type type, float importance) {
    const Layout layout = layout_of(type);
    const Code code = best_code(row, layout);
    if (row.size() < sizeof(Head) + sizeof importance + code.bytes) return {};
    const std::vector<std::byte> plain(row.begin(), row.end());
    const std::span<std::byte> rest = begin(row, kind_of(code, true));
    std::memcpy(rest.data(), &importance, sizeof importance);
    write_elements(rest.subspan(sizeof importance), plain, layout, code);
    return row.last(0);
}

void seal(std::span<std::byte> row) {
    const uint16_t check = check_of(row);
    std::memcpy(row.data() + offsetof(Head, check), &check, sizeof check);
}

void keep_plain(std::span<std::byte> row) {
    constexpr uint16_t other_nan = 0x7fff;
    if (row.size() >= sizeof(Head) && element_at(row, 0) == row_marker)
        std::memcpy(row.data(), &other_nan, sizeof other_nan);
}

RowRecord read_record(std::span<const std::byte> row, int64_t elements, int64_t v_elements, int64_t v_first) {
    RowRecord record;
    Head head;
    if (row.size() < sizeof head) return record;
    std::memcpy(&head, row.data(), sizeof head);
    if (head.marker != row_marker) return record;
    if (head.version != row_version)
        refuse("a row's record has version " + std::to_string(head.version) + ", expected " +
               std::to_string(row_version));
    if (head.check != check_of(row)) refuse("a row's record is damaged: its check is another");
    record.kind = head.kind;
    std::span<const std::byte> rest = row.subspan(sizeof head);
    const auto take_importance = [&] {
        float importance = 0;
        if (rest.size() < sizeof importance) refuse("a row's record is damaged: it is too short for an importance");
        std::memcpy(&importance, rest.data(), sizeof importance);
        record.importance = importance;
        rest = rest.subspan(sizeof importance);
    };
    if (head.kind == RowRecord::Kind::evicted) {
        record.room = rest;
        return record;
    }
    if (is_squeezed(head.kind)) {
        if ((bits_of(head.kind) & kind_importance) != 0) take_importance();
        record.payload = rest;
        return record;
    }
    if (head.kind == RowRecord::Kind::packed) {
        PackedHead packed;
        if (rest.size() < sizeof packed) refuse("a row's record is damaged: it is too short for a packed row");
        std::memcpy(&packed, rest.data(), sizeof packed);
        rest = rest.subspan(sizeof packed);
        if ((packed.flags & ~(flag_mean | flag_importance | flag_values_in_key)) != 0)
            refuse("a row's record is damaged: its flags are " + std::to_string(packed.flags));
        record.has_mean = (packed.flags & flag_mean) != 0;
        record.payload = packed_bytes(rest, packed.type, elements, record.type);
        rest = rest.subspan(record.payload.size());
        if ((packed.flags & flag_values_in_key) != 0) {
            record.v_type = record.type;
            record.v_payload = values_in_key(record.payload, record.type, v_first, v_elements);
            if (record.v_payload.empty() || packed.v_type != packed.type)
                refuse("a row's record is damaged: its values are no part of its key");
        } else if (packed.v_type != 0) {
            record.v_payload = packed_bytes(rest, packed.v_type, v_elements, record.v_type);
            rest = rest.subspan(record.v_payload.size());
        }
        if ((packed.flags & flag_importance) != 0) take_importance();
        record.room = rest;
        return record;
    }
    refuse("a row's record is damaged: its kind is " + std::to_string(static_cast<int>(head.kind)));
}

std::span<const std::byte> unsqueeze(const RowRecord& record, Type type, std::span<std::byte> row) {
    const Layout layout = layout_of(type);
    if (record.payload.empty()) refuse("a row's record is damaged: it has no elements");
    const auto usual = std::to_integer<unsigned>(record.payload[0]);
    const unsigned kind = bits_of(record.kind), low_bits = (kind & kind_wide) != 0 ? 2 : 1;
    BitReader bits(record.payload.subspan(1));
    for (size_t i = 0; i < row.size() / 2; ++i) {
        const bool is_zero = (kind & kind_zeros) != 0 && bits.take(1) != 0;
        const auto element = static_cast<uint16_t>(is_zero ? 0 : take_element(bits, layout, usual, low_bits));
        std::memcpy(row.data() + 2 * i, &element, sizeof element);
    }
    return record.importance ? std::span<const std::byte>() : bits.rest();
}

bool is_squeezed(RowRecord::Kind kind) { return kind >= RowRecord::Kind::squeezed && kind <= RowRecord::Kind::last; }

} // namespace winnow::cache
