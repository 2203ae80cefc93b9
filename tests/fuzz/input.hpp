// The bytes of a fuzzer as decisions: whoever reads beyond their end gets zeros, so that every input is a case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace winnow::fuzz {

class Input {
public:
    Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

    bool is_empty() const { return at_ >= size_; }
    size_t left() const { return size_ - at_; }
    uint8_t byte() { return is_empty() ? 0 : data_[at_++]; }
    template <class T>
    T number() {
        T value{};
        const size_t taken = left() < sizeof value ? left() : sizeof value;
        if (taken > 0) std::memcpy(&value, data_ + at_, taken);
        at_ += taken;
        return value;
    }
    // A number in [low, high], at most 65536 of them.
    int64_t within(int64_t low, int64_t high) {
        const uint64_t count = static_cast<uint64_t>(high - low) + 1;
        return low + static_cast<int64_t>((count <= 256 ? byte() : number<uint16_t>()) % count);
    }
    // True for `of` of 256 bytes, and not for zero.
    bool chance(unsigned of) { return byte() > 255 - of; }
    template <class T, size_t count>
    const T& choice(const T (&from)[count]) {
        return from[byte() % count];
    }
    // The rest up to a separator, which is skipped.
    std::string text(char separator) {
        std::string text;
        while (!is_empty()) {
            const char next = static_cast<char>(byte());
            if (next == separator) break;
            text += next;
        }
        return text;
    }
    std::string rest() {
        std::string text(reinterpret_cast<const char*>(data_) + at_, left());
        at_ = size_;
        return text;
    }

    // Mostly small; sometimes where arithmetic goes wrong.
    int64_t hostile() {
        static constexpr int64_t edges[] = {0,          -1,
                                            1,          2,
                                            3,          16,
                                            31,         32,
                                            33,         64,
                                            255,        256,
                                            INT32_MAX,  int64_t{INT32_MAX} + 1,
                                            INT32_MIN,  INT64_MAX,
                                            INT64_MIN,  1 << 16,
                                            1 << 30,    1LL << 32,
                                            1LL << 48,  1LL << 62,
                                            -2,         -32,
                                            UINT32_MAX, INT64_MAX - 1};
        switch (byte() % 4) {
        case 0: return choice(edges);
        case 1: // near one of them
            return static_cast<int64_t>(static_cast<uint64_t>(choice(edges)) + static_cast<uint64_t>(within(-4, 4)));
        case 2: return number<int64_t>();
        default: return static_cast<int8_t>(byte());
        }
    }

private:
    const uint8_t* data_;
    size_t size_;
    size_t at_ = 0;
};

// What is legal and merely takes long, or much memory of the host, finds nothing: a field up to `legal` becomes
// `limit`.
inline void keep_small(int64_t& field, int64_t limit, int64_t legal) {
    if (field > limit && field <= legal) field = limit;
}

} // namespace winnow::fuzz
