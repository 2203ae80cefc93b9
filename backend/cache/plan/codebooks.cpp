// Record by record, with the end in view.
#include "cache/plan/codebooks.hpp"

#include <array>
#include <cstring>
#include <string>

#include "device/pages.hpp"

namespace winnow::cache {
namespace {

constexpr char magic[8] = {'W', 'N', 'C', 'O', 'D', 'E', 'S', 0};
constexpr uint32_t version = 1;
constexpr uint32_t longest_name = 255;
constexpr size_t header_bytes = 32, checksum_at = 28;

uint32_t byte_at(std::span<const std::byte> bytes, size_t at) { return std::to_integer<uint32_t>(bytes[at]); }

uint32_t word_at(std::span<const std::byte> bytes, size_t at) {
    return byte_at(bytes, at) | byte_at(bytes, at + 1) << 8 | byte_at(bytes, at + 2) << 16 |
           byte_at(bytes, at + 3) << 24;
}

class Crc32 {
public:
    Crc32() {
        for (uint32_t byte = 0; byte < table_.size(); ++byte) {
            uint32_t value = byte;
            for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table_[byte] = value;
        }
    }
    void add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes)
            value_ = value_ >> 8 ^ table_[(value_ ^ std::to_integer<uint32_t>(byte)) & 0xff];
    }
    uint32_t value() const { return ~value_; }

private:
    std::array<uint32_t, 256> table_{};
    uint32_t value_ = ~uint32_t{0};
};

class Reader {
public:
    Reader(std::span<const std::byte> bytes, const Shape& shape) : left_(bytes), shape_(shape) {}

    std::vector<uint16_t> read() {
        halves_.reserve(left_.size() / 2);
        for (layer_ = 0; layer_ < shape_.layer_count(); ++layer_) read_record();
        if (left_.empty()) return std::move(halves_);
        refuse("codebooks have " + std::to_string(left_.size()) + " bytes behind those of " +
               std::to_string(shape_.layers.size()) + " layers, expected none");
    }

private:
    [[noreturn]] void refuse_record(const std::string& why) const {
        refuse("codebooks of layer " + std::to_string(layer_) + " " + why);
    }

    void expect_size(const char* what, size_t at, int64_t expected) const {
        const uint32_t given = word_at(left_, at);
        if (given == expected) return;
        refuse_record("are of " + std::to_string(given) + " " + what + ", expected " + std::to_string(expected));
    }

    void expect_bytes(uint64_t count) const {
        if (left_.size() >= count) return;
        refuse_record("are cut short: " + std::to_string(left_.size()) + " bytes, expected " + std::to_string(count));
    }

    void read_record() {
        expect_bytes(header_bytes);
        if (std::memcmp(left_.data(), magic, sizeof magic) != 0)
            refuse_record("are none: they do not begin with WNCODES; winnow calibrate writes codebooks");
        if (word_at(left_, 8) != version)
            refuse_record("have version " + std::to_string(word_at(left_, 8)) + ", expected " +
                          std::to_string(version));
        const LayerShape& layer = shape_.layer(layer_);
        expect_size("KV heads", 12, layer.kv_heads);
        expect_size("elements of a key", 16, layer.head_size);
        const uint32_t name = word_at(left_, 20);
        if (name > longest_name)
            refuse_record("have a name of " + std::to_string(name) + " bytes, expected at most " +
                          std::to_string(longest_name));
        if (const uint32_t trained = word_at(left_, 24); trained < shape_.context)
            refuse_record("were trained on contexts of " + std::to_string(trained) + " tokens, expected at least " +
                          std::to_string(shape_.context) + ", which the cache is for: winnow calibrate --context " +
                          std::to_string(shape_.context));
        const uint64_t size = header_bytes + name + codebook_bytes(layer);
        expect_bytes(size);
        Crc32 checksum;
        checksum.add(left_.subspan(header_bytes, size - header_bytes));
        checksum.add(left_.first(checksum_at));
        if (checksum.value() != word_at(left_, checksum_at)) refuse_record("are damaged: their checksum is wrong");
        for (size_t at = header_bytes + name; at < size; at += 2) {
            const auto half = static_cast<uint16_t>(byte_at(left_, at) | byte_at(left_, at + 1) << 8);
            if ((half & 0x7c00) == 0x7c00) refuse_record("have an element that is infinite or no number");
            halves_.push_back(half);
        }
        left_ = left_.subspan(size);
    }

    std::span<const std::byte> left_;
    const Shape& shape_;
    std::vector<uint16_t> halves_;
    int64_t layer_ = 0;
};

} // namespace

std::vector<uint16_t> read_codebooks(std::span<const std::byte> bytes, const Shape& shape) {
    return Reader(bytes, shape).read();
}

uint64_t codebook_bytes(const LayerShape& shape) {
    return 2 * static_cast<uint64_t>(shape.kv_heads * codebook_numbers(shape.head_size));
}

} // namespace winnow::cache
