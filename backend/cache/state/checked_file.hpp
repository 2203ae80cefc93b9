// A file that is written beside its place and renamed when it is complete, and that ends with a checksum of all before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace winnow::cache {

class CheckedWriter {
public:
    explicit CheckedWriter(const std::string& path); // throws Error where no file can be made there
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
    void finish(); // adds the checksum and puts the file into its place

private:
    struct State;
    std::unique_ptr<State> state_;
};

class CheckedReader {
public:
    explicit CheckedReader(const std::string& path); // throws Error where there is no file
    ~CheckedReader();
    CheckedReader(const CheckedReader&) = delete;
    CheckedReader& operator=(const CheckedReader&) = delete;

    [[noreturn]] void refuse_file(const std::string& why) const;
    uint64_t left() const; // bytes before the checksum
    void bytes(void* data, uint64_t size);
    template <typename T>
    T value() {
        static_assert(std::is_trivially_copyable_v<T>);
        T read;
        bytes(&read, sizeof read);
        return read;
    }
    template <typename T>
    std::vector<T> values() {
        const auto count = value<uint64_t>();
        if (count > left() / sizeof(T)) refuse_file("is cut short");
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
