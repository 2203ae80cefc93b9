// Records of rows and ledgers: they come back as they were written; forged ones, with right checks, are refused or
// harmless. tests/conformance has what caches do with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <xxhash.h>

#include "cache/state/ledger.hpp"
#include "cache/state/row_record.hpp"
#include "device/device.hpp"

namespace winnow::cache {
namespace {

using RowBytes = std::vector<std::byte>;

// Rows of every kind of 16-bit elements: usual numbers, few exponents, all bits, many zeros.
RowBytes draw_row(std::mt19937_64& engine, Type type, size_t elements) {
    std::normal_distribution<float> draw;
    const uint64_t kind = engine() % 4;
    RowBytes row(2 * elements);
    for (size_t i = 0; i < elements; ++i) {
        auto element = static_cast<uint16_t>(engine());
        if (kind == 0 || kind == 3) { // a float's upper bits are a bf16; as f16 they are spread likewise
            const float number = draw(engine);
            uint32_t bits = 0;
            std::memcpy(&bits, &number, sizeof bits);
            element = static_cast<uint16_t>(bits >> 16U);
            if (type == Type::f16) element = static_cast<uint16_t>((element & 0x83ffU) | (14 - engine() % 4) << 10U);
        }
        if (kind == 1) element = static_cast<uint16_t>(element & 0x83ffU);
        if (kind == 3 && engine() % 5 < 2) element = 0;
        std::memcpy(&row[2 * i], &element, 2);
    }
    return row;
}

TEST(cache_row_record, squeezed_rows_come_back) {
    std::mt19937_64 engine(3);
    int squeezed = 0;
    for (int tried = 0; tried < 3000; ++tried) {
        const Type type = tried % 2 == 0 ? Type::f16 : Type::bf16;
        const RowBytes plain = draw_row(engine, type, 1 + engine() % 200);
        RowBytes row = plain;
        const size_t room = room_of_squeezed(plain, type);
        const std::span<std::byte> rest = write_squeezed(row, type);
        ASSERT_EQ(rest.size(), room);
        if (room == 0) {
            ASSERT_EQ(row, plain);
            continue;
        }
        ++squeezed;
        for (std::byte& each : rest) each = static_cast<std::byte>(engine());
        const RowBytes carried(rest.begin(), rest.end());
        seal(row);
        const RowRecord record = read_record(row, 1, 0);
        RowBytes back(plain.size());
        const std::span<const std::byte> found = unsqueeze(record, type, back);
        ASSERT_EQ(back, plain);
        ASSERT_EQ(RowBytes(found.begin(), found.end()), carried);
    }
    EXPECT_GT(squeezed, 1000);
}

TEST(cache_row_record, usual_rows_have_room_for_an_importance) {
    std::mt19937_64 engine(4);
    std::normal_distribution<float> draw;
    for (int tried = 0; tried < 200; ++tried) {
        RowBytes row(128);
        for (size_t i = 0; i < 64; ++i) {
            const float number = draw(engine);
            uint32_t bits = 0;
            std::memcpy(&bits, &number, sizeof bits);
            const uint32_t exponent = (bits >> 23U & 255U) - std::min(bits >> 23U & 255U, 112U); // denormals become 0
            const auto half = static_cast<uint16_t>((bits >> 16U & 0x8000U) | exponent << 10U | (bits >> 13U & 0x3ffU));
            std::memcpy(&row[2 * i], &half, 2);
        }
        EXPECT_GE(room_of_squeezed(row, Type::f16), 4U);
    }
}

TEST(cache_row_record, rows_with_importance_come_back) {
    std::mt19937_64 engine(4);
    int written = 0;
    for (int tried = 0; tried < 3000; ++tried) {
        const Type type = tried % 2 == 0 ? Type::f16 : Type::bf16;
        const RowBytes plain = draw_row(engine, type, 1 + engine() % 200);
        if (room_of_squeezed(plain, type) < sizeof(float)) continue;
        ++written;
        RowBytes row = plain, back(plain.size());
        constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
        const float importance = tried % 5 == 0 ? odd[tried % 2] : std::normal_distribution<float>()(engine);
        write_with_importance(row, type, importance);
        seal(row);
        const RowRecord record = read_record(row, 1, 0);
        ASSERT_TRUE(is_squeezed(record.kind));
        ASSERT_TRUE(record.importance && std::memcmp(&*record.importance, &importance, sizeof importance) == 0);
        ASSERT_TRUE(unsqueeze(record, type, back).empty());
        ASSERT_EQ(back, plain);
    }
    EXPECT_GT(written, 500);
}

RowBytes draw_bytes(std::mt19937_64& engine, uint64_t size) {
    RowBytes bytes(size);
    for (std::byte& each : bytes) each = static_cast<std::byte>(engine());
    return bytes;
}

TEST(cache_row_record, a_packed_row_may_have_its_importance) {
    std::mt19937_64 engine(8);
    const RowBytes packed = draw_bytes(engine, row_bytes(Type::q8_0, 64));
    RowBytes row(128), too_small(12 + packed.size() + 3);
    std::span<std::byte> room = write_packed(row, {.type = Type::q8_0, .bytes = packed});
    ASSERT_TRUE(add_importance(row, room, 2.5F));
    EXPECT_EQ(room.size(), row.size() - 12 - packed.size() - 4);
    seal(row);
    const RowRecord record = read_record(row, 64, 0);
    EXPECT_EQ(record.importance, 2.5F);
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), record.payload.begin(), record.payload.end()));
    EXPECT_EQ(record.room.size(), room.size());
    room = write_packed(too_small, {.type = Type::q8_0, .bytes = packed});
    EXPECT_FALSE(add_importance(too_small, room, 2.5F));
}

TEST(cache_row_record, values_that_are_a_part_of_their_key_take_no_place) {
    std::mt19937_64 engine(9);
    const RowBytes key = draw_bytes(engine, row_bytes(Type::q8_0, 96));
    RowBytes values(key.end() - static_cast<std::ptrdiff_t>(row_bytes(Type::q8_0, 32)), key.end());
    PackedRow packed{.type = Type::q8_0, .v_type = Type::q8_0, .bytes = key, .v_bytes = values, .v_first = 64};
    RowBytes row(12 + key.size());
    ASSERT_NE(write_packed(row, packed).data(), nullptr);
    seal(row);
    const RowRecord record = read_record(row, 96, 32, 64);
    EXPECT_EQ(record.v_type, Type::q8_0);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), record.v_payload.begin(), record.v_payload.end()));
    values.back() ^= std::byte{1};
    EXPECT_EQ(write_packed(row, packed).data(), nullptr);
}

TEST(cache_row_record, forged_records_are_refused_or_read) {
    std::mt19937_64 engine(5);
    int refused = 0;
    for (int tried = 0; tried < 20000; ++tried) {
        RowBytes row(2 * (1 + engine() % 100));
        for (std::byte& each : row) each = static_cast<std::byte>(engine());
        if (row.size() < 6) continue;
        std::memcpy(row.data(), &row_marker, 2);
        row[2] = std::byte{row_version};
        row[3] = static_cast<std::byte>(engine() % 12);
        if (row.size() > 8 && engine() % 2 == 0) row[6] = std::byte{16}, row[7] = std::byte{0};
        seal(row);
        try {
            const RowRecord record = read_record(row, static_cast<int64_t>(row.size() / 2), 32);
            RowBytes back(row.size());
            if (is_squeezed(record.kind)) unsqueeze(record, Type::f16, back);
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("a row's record"), std::string::npos) << error.what();
            ++refused;
        }
    }
    EXPECT_GT(refused, 5000);
}

Ledger draw_ledger(std::mt19937_64& engine, int64_t heads) {
    Ledger ledger;
    ledger.digest = engine();
    ledger.facts = {static_cast<int64_t>(engine() % 1000),   30, 16, 128, 90, 2,
                    static_cast<int64_t>(engine() % 1000000)};
    const int64_t count = 1 + static_cast<int64_t>(engine() % 90);
    for (int64_t i = 0; i < count; ++i)
        ledger.tokens.push_back(
            {engine() % 4 ? i : static_cast<int64_t>(engine() % 1000) - 1, static_cast<int64_t>(engine() % 3 ? i : 0)});
    for (int64_t head = 0; head < heads; ++head) {
        std::vector<int64_t>& slots = ledger.slots.emplace_back();
        std::vector<float>& importance = ledger.importance.emplace_back();
        for (int64_t i = 0; i < count; ++i)
            slots.push_back(engine() % 3 ? i : static_cast<int64_t>(engine() % 100) - 1);
        for (const int64_t slot : slots)
            if (slot >= 0) importance.push_back(static_cast<float>(engine() % 1000));
        ledger.free_listed.push_back({static_cast<int32_t>(engine() % 50), -1});
    }
    ledger.output_sum.assign(8, static_cast<float>(engine() % 100));
    return ledger;
}

TEST(cache_ledger, comes_back) {
    std::mt19937_64 engine(6);
    for (int tried = 0; tried < 500; ++tried) {
        const Ledger ledger = draw_ledger(engine, 3);
        const RowBytes bytes = to_bytes(ledger);
        ASSERT_EQ(ledger_size(bytes), bytes.size());
        const std::optional<Ledger> back = to_ledger(bytes, 3, 100);
        ASSERT_TRUE(back);
        ASSERT_EQ(to_bytes(*back), bytes);
        ASSERT_EQ(back->slots, ledger.slots);
        ASSERT_EQ(back->facts, ledger.facts);
        ASSERT_EQ(back->importance, ledger.importance);
        ASSERT_FALSE(to_ledger(bytes, 3, static_cast<int64_t>(ledger.tokens.size()) - 1))
            << "of more tokens than there are";
    }
}

// Changes some bytes behind the frame and puts the check right.
void forge(RowBytes& ledger, std::mt19937_64& engine) {
    for (uint64_t times = 1 + engine() % 3; times > 0; --times)
        ledger[ledger_head + engine() % (ledger.size() - ledger_head)] = static_cast<std::byte>(engine());
    const auto check = static_cast<uint32_t>(XXH3_64bits(&ledger[ledger_head], ledger.size() - ledger_head));
    std::memcpy(&ledger[4], &check, sizeof check);
}

TEST(cache_ledger, forged_ones_are_refused_or_read) {
    std::mt19937_64 engine(7);
    int refused = 0;
    for (int tried = 0; tried < 5000; ++tried) {
        RowBytes bytes = to_bytes(draw_ledger(engine, 3));
        forge(bytes, engine);
        try {
            to_ledger(bytes, 3, 100);
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("the rows' ledger"), std::string::npos) << error.what();
            ++refused;
        }
    }
    EXPECT_GT(refused, 500);
}

} // namespace
} // namespace winnow::cache
