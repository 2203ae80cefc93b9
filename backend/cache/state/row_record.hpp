// What stands in the place of a token's row where rows are exchanged exactly. A row of 16-bit elements is either plain,
// its values, or a record, which begins with a NaN of its own:
//
//   u16 marker | u8 version | u8 kind | u16 check | payload | room
//
// A record has the bytes of a packed row, or no row, or the elements of a plain one in fewer bits, with the row's
// importance or without. Its room carries a part of the ledger (ledger.hpp). Numbers are in the machine's order of
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/format.hpp"

namespace winnow::cache {

inline constexpr uint16_t row_marker = 0x7fa5; // NaN as f16 and as bf16
inline constexpr uint8_t row_version = 1;

struct RowRecord {
    enum class Kind : uint8_t {
        plain = 0,   // no record
        evicted = 1, // the token is not resident in the head
        packed = 2,  // u16 format, u16 format of the values or 0, u16 flags; a packed row, one of values, importance
        // From here to the last: [f32 importance,] u8 exponent, and bits: the elements of a plain row.
        squeezed = 3,
        last = 10,
    };
    Kind kind = Kind::plain;
    Type type = Type::none, v_type = Type::none;
    bool has_mean = false;           // the packed rows are less the head's means
    std::optional<float> importance; // where the record has one
    std::span<const std::byte> payload, v_payload, room;
};

// What a packed row is to become a record with; v: values that have no row of their own.
struct PackedRow {
    Type type = Type::none, v_type = Type::none;
    bool has_mean = false;
    std::span<const std::byte> bytes{}, v_bytes{};
    int64_t v_first = 0; // the element of the key that values begin with; where they have its bytes, they take no place
};

// Each makes a record of a row and returns its room, zeroed; `seal` completes it once the room is filled. Without a
// place for the payload the row stays, and the room has no data.
std::span<std::byte> write_evicted(std::span<std::byte> row);
std::span<std::byte> write_packed(std::span<std::byte> row, const PackedRow& packed);
// Takes the room of a packed row's record for its importance; false, and nothing is done, where that is too small.
bool add_importance(std::span<std::byte> row, std::span<std::byte>& room, float importance);
// type: F16 or BF16. `room_of_squeezed`: how many bytes that would leave, 0 where nothing is saved; an importance takes
// four of them, and leaves no room.
std::span<std::byte> write_squeezed(std::span<std::byte> row, Type type);
std::span<std::byte> write_with_importance(std::span<std::byte> row, Type type, float importance);
size_t room_of_squeezed(std::span<const std::byte> row, Type type);
void seal(std::span<std::byte> row);
// A plain row that happens to begin as records do gets another NaN.
void keep_plain(std::span<std::byte> row);

// Throws Error, in words, where a record is damaged or none of this version. Packed rows have `elements` elements,
// those of values in their place v_elements, from v_first on.
RowRecord read_record(std::span<const std::byte> row, int64_t elements, int64_t v_elements, int64_t v_first = 0);
bool is_squeezed(RowRecord::Kind kind); // with importance, too
// Makes the plain row of a squeezed one; its room, which one with importance does not have.
std::span<const std::byte> unsqueeze(const RowRecord& record, Type type, std::span<std::byte> row);

} // namespace winnow::cache
