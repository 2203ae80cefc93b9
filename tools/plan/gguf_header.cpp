// A reader that knows how many bytes are left, and the values that it keeps.
#include "gguf_header.hpp"

#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace winnow::tools {

namespace {

enum Type : uint32_t {
    UINT8,
    INT8,
    UINT16,
    INT16,
    UINT32,
    INT32,
    FLOAT32,
    BOOL,
    STRING,
    ARRAY,
    UINT64,
    INT64,
    FLOAT64,
    TYPES
};

// Bytes of a value, 0 where that is not fixed.
constexpr uint64_t sizes[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr uint64_t longest_key = 65535;  // the format's own limit
constexpr uint64_t longest_text = 4096;  // that is kept
constexpr uint64_t longest_list = 65536; // that is kept

bool is_whole(uint32_t type) { return sizes[type] != 0 && type != FLOAT32 && type != FLOAT64; }

} // namespace

// Reads a file from the front. All sizes are held against what is left before anything is reserved or skipped.
class GgufHeader::Reader {
public:
    explicit Reader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(path + ": cannot be opened");
        file_.seekg(0, std::ios::end);
        const std::streamoff end = file_.tellg();
        file_.seekg(0);
        if (!file_ || end < 0) throw std::runtime_error(path + ": cannot be read, expected a file");
        size_ = static_cast<uint64_t>(end);
    }

    uint64_t left() const { return size_ - at_; }

    void where(const std::string& text) { where_ = text; }

    [[noreturn]] void fail(const std::string& what) const {
        throw std::runtime_error(path_ + ": at byte " + std::to_string(at_) + ", " + where_ + ": " + what);
    }

    void need(uint64_t count, uint64_t each, const char* what) const {
        if (each == 0 || count <= left() / each) return;
        fail(std::string(what) + ": expected " + std::to_string(count) +
             (each == 1 ? "" : " times " + std::to_string(each)) + " bytes, and the file has " +
             std::to_string(left()) + " more");
    }

    void bytes(void* target, uint64_t count, const char* what) {
        need(count, 1, what);
        file_.read(static_cast<char*>(target), static_cast<std::streamsize>(count));
        if (!file_) fail(std::string(what) + ": cannot be read");
        at_ += count;
    }

    void skip(uint64_t count, uint64_t each, const char* what) {
        need(count, each, what);
        const uint64_t all = count * each;
        if (all < 4096)
            file_.ignore(static_cast<std::streamsize>(all)); // keeps what the stream has read ahead
        else
            file_.seekg(static_cast<std::streamoff>(all), std::ios::cur);
        if (!file_) fail(std::string(what) + ": cannot be read");
        at_ += all;
    }

    template <typename Number>
    Number number(const char* what) {
        unsigned char raw[sizeof(Number)];
        bytes(raw, sizeof raw, what);
        uint64_t bits = 0;
        for (size_t i = 0; i < sizeof raw; ++i) bits |= static_cast<uint64_t>(raw[i]) << (8 * i); // little-endian
        return static_cast<Number>(bits);
    }

    std::string text(uint64_t longest, const char* what) {
        const auto length = number<uint64_t>("a length");
        need(length, 1, what);
        if (length > longest) {
            fail(std::string(what) + " of " + std::to_string(length) + " bytes, expected at most " +
                 std::to_string(longest));
        }
        std::string found(length, '\0');
        bytes(found.data(), length, what);
        return found;
    }

    uint32_t type() {
        const auto found = number<uint32_t>("a type");
        if (found >= TYPES) {
            fail("type " + std::to_string(found) + ", expected 0 to " + std::to_string(TYPES - 1));
        }
        return found;
    }

    // Reads a number of a type that is_whole. Nothing where it is more than 63 bits hold.
    std::optional<int64_t> whole(uint32_t type) {
        switch (type) {
        case UINT8:
        case BOOL: return number<uint8_t>("a value");
        case INT8: return number<int8_t>("a value");
        case UINT16: return number<uint16_t>("a value");
        case INT16: return number<int16_t>("a value");
        case UINT32: return number<uint32_t>("a value");
        case INT32: return number<int32_t>("a value");
        case INT64: return number<int64_t>("a value");
        default: break;
        }
        const auto found = number<uint64_t>("a value");
        if (found > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
        return static_cast<int64_t>(found);
    }

    Value value() {
        const uint32_t of = type();
        if (of == ARRAY) return list();
        if (of == STRING) {
            const auto length = number<uint64_t>("a length");
            need(length, 1, "a text");
            if (length > longest_text) {
                skip(length, 1, "a text");
                return Skipped{"a text of " + std::to_string(length) + " bytes"};
            }
            std::string found(length, '\0');
            bytes(found.data(), length, "a text");
            return found;
        }
        if (!is_whole(of)) {
            skip(1, sizes[of], "a value");
            return Skipped{"a number with a fraction"};
        }
        const auto found = whole(of);
        return found ? Value(*found) : Value(Skipped{"a number of 64 bits"});
    }

private:
    Value list() {
        const uint32_t of = type();
        const auto count = number<uint64_t>("a count");
        const std::string what = "a list of " + std::to_string(count);
        if (of == ARRAY) fail("a list of lists, expected one of numbers or texts");
        if (of == STRING) {
            need(count, 8, "a list of texts");
            for (uint64_t i = 0; i < count; ++i) skip(number<uint64_t>("a length"), 1, "a text of a list");
            return Skipped{what + " texts"};
        }
        need(count, sizes[of], "a list of numbers");
        if (!is_whole(of) || count > longest_list) {
            skip(count, sizes[of], "a list of numbers");
            return Skipped{what + " numbers"};
        }
        std::vector<int64_t> found;
        found.reserve(count);
        bool fits = true;
        for (uint64_t i = 0; i < count; ++i) {
            const auto one = whole(of);
            fits = fits && one;
            found.push_back(one.value_or(0));
        }
        return fits ? Value(std::move(found)) : Value(Skipped{what + " numbers of 64 bits"});
    }

    std::string path_, where_ = "the beginning";
    std::ifstream file_;
    uint64_t size_ = 0, at_ = 0;
};

GgufHeader::GgufHeader(const std::string& path) : path_(path) {
    Reader reader(path);
    char magic[4];
    reader.bytes(magic, sizeof magic, "the magic \"GGUF\"");
    if (std::memcmp(magic, "GGUF", sizeof magic) != 0) {
        throw std::runtime_error(path + ": does not begin with \"GGUF\", expected a GGUF file");
    }
    const auto version = reader.number<uint32_t>("the version");
    if (version != 2 && version != 3) {
        const bool is_big_endian = version == 0x02000000 || version == 0x03000000;
        reader.fail((is_big_endian ? "a big-endian file" : "version " + std::to_string(version)) +
                    ", expected version 2 or 3, little-endian");
    }
    const auto tensors = reader.number<uint64_t>("the count of tensors");
    const auto count = reader.number<uint64_t>("the count of keys");
    reader.need(count, 8 + 4 + 1, "keys"); // a length, a type and a value
    for (uint64_t i = 0; i < count; ++i) {
        reader.where("key " + std::to_string(i + 1) + " of " + std::to_string(count));
        const std::string key = reader.text(longest_key, "a key");
        reader.where("key " + std::to_string(i + 1) + " of " + std::to_string(count) + ", \"" + key + "\"");
        if (has(key)) reader.fail("there before, expected each key once");
        values_.emplace(key, reader.value());
    }
    constexpr uint64_t type_and_offset = 4 + 8;
    reader.need(tensors, 8 + 4 + type_and_offset, "tensors"); // a name's length and the count of dimensions before it
    for (uint64_t i = 0; i < tensors; ++i) {
        reader.where("tensor " + std::to_string(i + 1) + " of " + std::to_string(tensors));
        const std::string name = reader.text(longest_key, "a name");
        if (name.ends_with(".attn_k.bias") || name.ends_with(".attn_qkv.bias")) has_key_bias_ = true;
        reader.skip(reader.number<uint32_t>("the count of dimensions"), 8, "dimensions");
        reader.skip(type_and_offset, 1, "a type and an offset");
    }
}

void GgufHeader::refuse(const std::string& key, const std::string& expected) const {
    const auto* skipped = std::get_if<Skipped>(&values_.at(key));
    const char* names[] = {"", "a number", "a text", "a list of numbers"};
    throw std::runtime_error(path_ + ": " + key + " is " + (skipped ? skipped->what : names[values_.at(key).index()]) +
                             ", expected " + expected);
}

std::optional<int64_t> GgufHeader::integer(const std::string& key) const {
    if (!has(key)) return std::nullopt;
    if (const auto* found = std::get_if<int64_t>(&values_.at(key))) return *found;
    refuse(key, "a whole number");
}

std::optional<std::string> GgufHeader::text(const std::string& key) const {
    if (!has(key)) return std::nullopt;
    if (const auto* found = std::get_if<std::string>(&values_.at(key))) return *found;
    refuse(key, "a text of at most " + std::to_string(longest_text) + " bytes");
}

bool GgufHeader::is_array(const std::string& key) const {
    return has(key) && !std::holds_alternative<int64_t>(values_.at(key));
}

std::optional<std::vector<int64_t>> GgufHeader::integers(const std::string& key) const {
    if (!has(key)) return std::nullopt;
    if (const auto* found = std::get_if<std::vector<int64_t>>(&values_.at(key))) return *found;
    refuse(key, "a list of whole numbers");
}

} // namespace winnow::tools
