// Numbers byte by byte, the checksum bit by bit.
#include "cache_codebooks.hpp"

#include <array>
#include <map>
#include <random>
#include <string>

#include "elements.hpp"

namespace winnow::conformance {
namespace {

constexpr size_t checksum_at = 28, header_size = 32;
constexpr int64_t any_context = INT32_MAX;

void put_word(CodebookBytes& bytes, uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::byte>(word >> shift & 0xff));
}

void put_half(CodebookBytes& bytes, double value) {
    const uint16_t half = to_half(f16_format, value);
    bytes.push_back(static_cast<std::byte>(half & 0xff));
    bytes.push_back(static_cast<std::byte>(half >> 8));
}

void put_head(CodebookBytes& bytes, const HeadCodebooks& head, int64_t size) {
    for (const auto& matrix : {head.of_keys, head.of_queries})
        for (int64_t column = 0; column < size; ++column)
            for (int64_t row = 0; row < size; ++row) put_half(bytes, matrix(row, column));
    for (int64_t element = 0; element < size; ++element)
        for (int64_t code = 0; code < codebook_centroids; ++code) put_half(bytes, head.centroid(element, code));
}

} // namespace

void set_checksum(CodebookBytes& bytes, size_t at, size_t size) {
    uint32_t checksum = ~uint32_t{0};
    const auto add = [&](size_t first, size_t count) {
        for (size_t i = at + first; i < at + first + count; ++i) {
            checksum ^= std::to_integer<uint32_t>(bytes[i]);
            for (int bit = 0; bit < 8; ++bit) checksum = (checksum >> 1) ^ (checksum % 2 ? 0xedb88320u : 0u);
        }
    };
    add(header_size, size - header_size);
    add(0, checksum_at);
    for (size_t i = 0; i < 4; ++i) bytes[at + checksum_at + i] = static_cast<std::byte>(~checksum >> (8 * i) & 0xff);
}

std::shared_ptr<const CodebookBytes>
codebooks_with(const CacheSetup& setup, const std::function<HeadCodebooks(int64_t layer, int64_t head)>& of) {
    CodebookBytes bytes;
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        const LayerShape shape = setup.shape(layer);
        const size_t begin = bytes.size();
        const std::string name = "layer " + std::to_string(layer);
        for (const char letter : std::string("WNCODES") + '\0') bytes.push_back(static_cast<std::byte>(letter));
        for (const int64_t word :
             {int64_t{1}, shape.kv_heads, shape.head_size, static_cast<int64_t>(name.size()), any_context})
            put_word(bytes, static_cast<uint32_t>(word));
        put_word(bytes, 0);
        for (const char letter : name) bytes.push_back(static_cast<std::byte>(letter));
        for (int64_t head = 0; head < shape.kv_heads; ++head) put_head(bytes, of(layer, head), shape.head_size);
        set_checksum(bytes, begin, bytes.size() - begin);
    }
    return std::make_shared<const CodebookBytes>(std::move(bytes));
}

std::shared_ptr<const CodebookBytes> random_codebooks(const CacheSetup& setup) {
    static std::map<std::vector<int64_t>, std::shared_ptr<const CodebookBytes>> all;
    std::vector<int64_t> sizes;
    for (int64_t layer = 0; layer < setup.layers; ++layer)
        for (const int64_t size : {setup.shape(layer).kv_heads, setup.shape(layer).head_size}) sizes.push_back(size);
    std::shared_ptr<const CodebookBytes>& its = all[sizes];
    if (its) return its;
    std::mt19937_64 engine(2);
    std::normal_distribution<double> normal;
    const auto draw = [&](int64_t, int64_t) { return normal(engine) / 4; };
    its = codebooks_with(setup, [&](int64_t, int64_t) { return HeadCodebooks{draw, draw, draw}; });
    return its;
}

} // namespace winnow::conformance
