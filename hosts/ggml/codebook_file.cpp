// From record to record by the sizes that they say, with the end in view.
#include "codebook_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>

namespace winnow::ggml {

namespace {

constexpr char magic[8] = {'W', 'N', 'C', 'O', 'D', 'E', 'S', 0};
constexpr size_t header_size = 32;
constexpr uint64_t version = 1, most = 1 << 16; // heads and elements

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error("codebook_file: " + path + " " + why);
}

uint64_t word_at(std::span<const std::byte> bytes, size_t at) {
    uint64_t word = 0;
    for (size_t i = 0; i < 4; ++i) word |= std::to_integer<uint64_t>(bytes[at + i]) << 8 * i;
    return word;
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(path, std::string("cannot be read: ") + std::strerror(errno));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

using Records = std::map<std::string, std::span<const std::byte>>;

Records records_of(std::span<const std::byte> left, const std::string& path) {
    Records records;
    do {
        if (left.size() < header_size || std::memcmp(left.data(), magic, sizeof magic) != 0)
            refuse(path, "holds no codebooks, or is cut short behind " + std::to_string(records.size()) +
                             " layers; winnow calibrate writes them");
        if (word_at(left, 8) != version)
            refuse(path, "has version " + std::to_string(word_at(left, 8)) + " of codebooks, expected " +
                             std::to_string(version));
        const uint64_t heads = word_at(left, 12), elements = word_at(left, 16), name = word_at(left, 20);
        const uint64_t size = header_size + name + 2 * heads * elements * (2 * elements + 256);
        if (heads > most || elements > most || left.size() < size)
            refuse(path, "is cut short: layer " + std::to_string(records.size()) + " has " + std::to_string(heads) +
                             " KV heads of " + std::to_string(elements) + " elements, and " +
                             std::to_string(left.size()) + " bytes are left");
        std::string its;
        for (const std::byte letter : left.subspan(header_size, name)) its += std::to_integer<char>(letter);
        records[its] = left.first(size);
        left = left.subspan(size);
    } while (!left.empty());
    return records;
}

} // namespace

std::vector<std::byte> read_codebook_file(const std::string& path, const std::vector<std::string>& layers) {
    if (path.empty())
        throw std::runtime_error("signature=codes needs codebook_file=FILE; winnow calibrate writes such a file");
    const std::string bytes = contents(path);
    const Records records = records_of(std::as_bytes(std::span(bytes)), path);
    std::vector<std::byte> all;
    for (const std::string& layer : layers) {
        const auto at = records.find(layer);
        if (at == records.end())
            refuse(path, "has " + std::to_string(records.size()) + " layers, and none that is called " + layer);
        all.insert(all.end(), at->second.begin(), at->second.end());
    }
    return all;
}

} // namespace winnow::ggml
