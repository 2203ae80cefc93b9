// A stream of bytes that ends with a checksum of all before. It goes through functions of the host's, or into a file
// that is written beside its place and renamed when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cache/request.hpp"

namespace winnow::cache {

class CheckedWriter {
public:
    CheckedWriter();                                 // counts alone
    explicit CheckedWriter(const CacheSaving& into); // throws Error where no file can be made
    ~CheckedWriter();                                // removes what was not finished
    CheckedWriter(const CheckedWriter&) = delete;
    CheckedWriter& operator=(const CheckedWriter&) = delete;

    void bytes(const void* data, uint64_t size);
    template <typename T>
    void value(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes(&value, sizeof value);
    }
    template <typename T>
    void values(const std::vector<T>& values) { // with their count
        value(static_cast<uint64_t>(values.size()));
        bytes(values.data(), values.size() * sizeof(T));
    }
    void leave_out(uint64_t size) { size_ += size; } // bytes that are only counted
    void finish();                                   // adds the checksum and puts the file into its place
    uint64_t size() const { return size_; }

private:
    struct State;
    std::unique_ptr<State> state_;
    uint64_t size_ = 0;
};

class CheckedReader {
public:
    explicit CheckedReader(const CacheLoading& from); // throws Error where there is no file
    ~CheckedReader();
    CheckedReader(const CheckedReader&) = delete;
    CheckedReader& operator=(const CheckedReader&) = delete;

    [[noreturn]] void refuse_stream(const std::string& why) const;
    uint64_t left() const; // bytes before the checksum
    void bytes(void* data, uint64_t size);
    template <typename T>
    T value() {
        static_assert(std::is_trivially_copyable_v<T>);
        T read;
        bytes(&read, sizeof read);
        return read;
    }
    // Refused where there are more than `most`: how long a stream is may be said, and not be so.
    template <typename T>
    std::vector<T> values(int64_t most) {
        const auto count = value<uint64_t>();
        if (count > left() / sizeof(T)) refuse_stream("is cut short");
        if (count > static_cast<uint64_t>(most)) refuse_stream("is damaged: a list is too long");
        std::vector<T> read(count);
        bytes(read.data(), count * sizeof(T));
        return read;
    }
    void finish(); // throws Error unless everything was read and the checksum is right

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace winnow::cache
