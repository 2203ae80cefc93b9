// Walks through a saved cache.
#include "saved_file.hpp"

#include <cstring>

#include <xxhash.h>

#include "backend.hpp"

namespace winnow::fuzz {
namespace {

class Walk {
public:
    explicit Walk(SavedFile& file) : file_(file) {}

    uint64_t number() {
        uint64_t value = 0;
        require(at_ + sizeof value <= file_.content.size(), "a saved file has all its numbers");
        std::memcpy(&value, &file_.content[at_], sizeof value);
        file_.numbers.push_back(at_);
        at_ += sizeof value;
        return value;
    }
    void numbers(uint64_t count) {
        for (; count > 0; --count) number();
    }
    void words(uint64_t bytes) {
        for (uint64_t at = 0; at + 4 <= bytes; at += 4) file_.words.push_back(at_ + at);
        skip(bytes);
    }
    void skip(uint64_t bytes) { at_ += bytes; }
    bool is_at_end() const { return at_ == file_.content.size(); }

private:
    SavedFile& file_;
    size_t at_ = 0;
};

void walk_layer(Walk& walk, const LayerBytes& layer) {
    walk.numbers(2);                 // next position, tokens that left the residual window
    walk.numbers(2 * walk.number()); // ranges
    walk.words(4 * walk.number());   // cells
    walk.numbers(walk.number());     // sinks
    walk.numbers(walk.number());     // the residual window
    const uint64_t has_memory = walk.number(), slots = walk.number();
    walk.numbers(4);
    if (has_memory != 0) walk.words(layer.dense + layer.slot * slots + layer.state);
}

} // namespace

SavedFile read_saved_file(const std::string& bytes, int64_t sequences, const std::vector<LayerBytes>& layers) {
    SavedFile file;
    require(bytes.size() > sizeof(XXH128_canonical_t), "a saved file ends with a checksum");
    file.content = bytes.substr(0, bytes.size() - sizeof(XXH128_canonical_t));
    Walk walk(file);
    walk.skip(16);            // header
    walk.skip(walk.number()); // configuration
    walk.numbers(3);          // hashes of resources
    walk.numbers(walk.number());
    require(walk.number() == static_cast<uint64_t>(sequences), "a saved cache has all sequences");
    for (int64_t sequence = 0; sequence < sequences; ++sequence) {
        walk.number(); // reserved
        walk.numbers(walk.number());
        for (const LayerBytes& layer : layers) walk_layer(walk, layer);
    }
    require(walk.is_at_end(), "a saved file is as its specification says");
    return file;
}

std::string with_checksum(const std::string& content) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits(content.data(), content.size()));
    return content + std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes);
}

} // namespace winnow::fuzz
