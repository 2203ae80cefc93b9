// What is taken for codebooks: whole records of the model's sizes, and nothing else.
#include "cache/plan/codebooks.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "../made_codebooks.hpp"
#include "alike_layers.hpp"
#include "device/device.hpp"
#include "device/pages.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape{.layers = 2, .kv_heads = 2, .head_size = 32, .v_head_size = 32, .context = 100};

std::vector<uint8_t> made() { return made_codebooks(shape.layers, shape.kv_heads, shape.head_size); }

std::vector<uint16_t> read(const std::vector<uint8_t>& bytes, const AlikeLayers& of = shape) {
    return read_codebooks(std::as_bytes(std::span(bytes)), of);
}

void expect_refused(const std::vector<uint8_t>& bytes, const std::string& why, const AlikeLayers& of = shape) {
    try {
        read(bytes, of);
        ADD_FAILURE() << "taken, and " << why;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
        EXPECT_TRUE(std::string(error.what()).starts_with("codebooks")) << error.what();
    }
}

TEST(cache_codebooks, halves_are_read_in_their_order) {
    const std::vector<uint8_t> bytes = made();
    const std::vector<uint16_t> halves = read(bytes);
    ASSERT_EQ(2 * halves.size(), 2 * codebook_bytes(shape.layer()));
    ASSERT_EQ(2 * codebook_bytes(shape.layer()), 2u * 4 * (2 * 32 * 32 + 256 * 32));
    const size_t record = bytes.size() / 2, of_layer = halves.size() / 2;
    for (size_t layer = 0; layer < 2; ++layer)
        for (size_t i = 0; i < of_layer; ++i) {
            const size_t at = layer * record + 32 + 2 * i;
            ASSERT_EQ(halves[layer * of_layer + i], bytes[at] | bytes[at + 1] << 8) << layer << ", " << i;
        }
}

TEST(cache_codebooks, other_sizes_are_refused) {
    AlikeLayers other = shape;
    other.layers = 3;
    expect_refused(made(), "layer 2 are cut short: 0 bytes", other);
    other.layers = 1;
    expect_refused(made(), "bytes behind those of 1 layers", other);
    other = shape;
    other.kv_heads = 1;
    expect_refused(made(), "2 KV heads, expected 1", other);
    other = shape;
    other.head_size = 64;
    expect_refused(made(), "32 elements of a key, expected 64", other);
    expect_refused({}, "layer 0 are cut short");
}

TEST(cache_codebooks, longer_contexts_than_those_of_the_training_are_refused) {
    const auto trained = [](int64_t context) {
        return made_codebooks(shape.layers, shape.kv_heads, shape.head_size, context);
    };
    expect_refused(trained(99), "were trained on contexts of 99 tokens, expected at least 100");
    expect_refused(trained(0), "winnow calibrate --context 100");
    EXPECT_EQ(2 * read(trained(100)).size(), 2 * codebook_bytes(shape.layer()));
}

TEST(cache_codebooks, damage_is_found) {
    const std::vector<uint8_t> whole = made();
    for (size_t size = 0; size < whole.size(); size += size < 100 ? 1 : 997)
        expect_refused({whole.begin(), whole.begin() + static_cast<int64_t>(size)}, "");
    for (size_t at = 0; at < whole.size(); at += at < 100 ? 1 : 997) {
        std::vector<uint8_t> damaged = whole;
        damaged[at] ^= 0x10;
        expect_refused(damaged, "");
    }
    std::vector<uint8_t> damaged = whole;
    damaged[3] = 'X';
    expect_refused(damaged, "they do not begin with WNCODES");
    damaged = whole;
    damaged[8] = 2;
    expect_refused(damaged, "version 2, expected 1");
    damaged = whole;
    damaged[21] = 1;
    expect_refused(damaged, "a name of 256 bytes");
    damaged = whole;
    damaged[40] ^= 1;
    expect_refused(damaged, "their checksum is wrong");
}

TEST(cache_codebooks, numbers_have_to_be_finite) {
    std::vector<uint8_t> record = made_codebooks(1, shape.kv_heads, shape.head_size);
    AlikeLayers one = shape;
    one.layers = 1;
    record[32 + 2 * 77 + 1] |= 0x7c;
    const uint32_t checksum = checksum_of(record);
    for (size_t i = 0; i < 4; ++i) record[28 + i] = static_cast<uint8_t>(checksum >> 8 * i);
    expect_refused(record, "infinite or no number", one);
}

} // namespace
} // namespace winnow::cache
