// Reading and writing the versioned structs of the headers: nothing outside struct_size is touched, whichever side is
// newer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "device/device.hpp"

namespace winnow::api {

[[noreturn]] inline void invalid(const std::string& text) { throw Error(WINNOW_ERROR_INVALID_ARGUMENT, text); }

// What a struct measured in earlier versions, ascending. A struct that grows after a release gets a specialisation
// here, so that older callers stay welcome; so far there is none. Between two of these sizes no version ended: such a
// struct ends in the middle of what is not known.
template <class T>
inline constexpr std::array<size_t, 0> earlier_sizes{};

// No struct of ours comes near; a larger size is an uninitialised field.
inline constexpr uint32_t max_struct_size = 1u << 16;

// The size that the caller gives: that of some version's struct, or more than ours.
template <class T>
uint32_t checked_struct_size(const T* given, const char* name) {
    if (given == nullptr) invalid(std::string(name) + " is NULL");
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    constexpr auto& earlier = earlier_sizes<T>;
    const bool is_earlier = std::find(earlier.begin(), earlier.end(), size) != earlier.end();
    if (is_earlier || (size >= sizeof(T) && size <= max_struct_size)) return size;
    std::string expected;
    for (const size_t each : earlier) expected += std::to_string(each) + ", ";
    invalid(std::string(name) + ".struct_size is " + std::to_string(size) + ", expected " + expected +
            (expected.empty() ? "" : "or ") + std::to_string(sizeof(T)) + " to " + std::to_string(max_struct_size));
}

// A copy of the caller's struct in our size: what an older caller does not have is zero; what a newer one has beyond
// ours has to be zero, since we could not honour it.
template <class T>
T read_struct(const T* given, const char* name) {
    const uint32_t size = checked_struct_size(given, name);
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (uint32_t i = sizeof(T); i < size; ++i) {
        if (bytes[i] != 0) {
            throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + " has a field at byte " + std::to_string(i) +
                                                      " that this version does not know, and it is not zero");
        }
    }
    T copy{};
    std::memcpy(&copy, given, std::min<size_t>(size, sizeof(T)));
    return copy;
}

// Fills the caller's struct up to its size; fields that are newer than we are become zero, "absent".
template <class T>
void write_struct(T* target, T value, const char* name) {
    const uint32_t size = checked_struct_size(target, name);
    value.struct_size = size;
    std::memcpy(target, &value, std::min<size_t>(size, sizeof(T)));
    if (size > sizeof(T)) std::memset(reinterpret_cast<unsigned char*>(target) + sizeof(T), 0, size - sizeof(T));
}

// An array of the host's structs, and what messages call it and one of its elements.
template <class T>
struct HostArray {
    T* first;
    uint64_t count, stride; // stride: bytes from one element to the next
    std::string name, element;
};

// Lets `action` have each element, checked to lie within the stride. An error says which element it is about.
template <class T, class Action>
void for_each_element(const HostArray<T>& array, Action&& action) {
    if (array.first == nullptr) {
        if (array.count != 0) invalid(array.name + " is NULL, expected " + std::to_string(array.count) + " of them");
        return;
    }
    if (array.stride < sizeof(uint32_t) || array.stride > max_struct_size || array.stride % 8 != 0)
        invalid(array.element + "_stride is " + std::to_string(array.stride) + ", expected the bytes from one " +
                array.element + " to the next, " + std::to_string(sizeof(T)) + " in an array of them");
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    for (uint64_t i = 0; i < array.count; ++i) {
        T* const at = reinterpret_cast<T*>(reinterpret_cast<Byte*>(array.first) + i * array.stride);
        try {
            const uint32_t size = checked_struct_size(at, array.element.c_str());
            if (size > array.stride && array.count > 1)
                invalid("struct_size is " + std::to_string(size) + ", expected at most " + array.element + "_stride, " +
                        std::to_string(array.stride));
            action(*at);
        } catch (const Error& error) {
            throw Error(error.status(), array.name + "[" + std::to_string(i) + "]: " + error.what());
        }
    }
}

// Extension records of one type that a description may bring.
struct KnownExtension {
    uint32_t type;
    const winnow_extension* found = nullptr; // where there is one
};

// Finds the records of known types in a chain. Others are skipped, or refused where they are required.
inline void read_extensions(const winnow_extension* next, const char* name, std::span<KnownExtension> known = {}) {
    for (int count = 0; next != nullptr; ++count) {
        if (count == 64) invalid(std::string(name) + ".next is a chain of more than 64 records, or a circle");
        checked_struct_size(next, "an extension in next");
        if (next->flags & ~uint32_t{WINNOW_EXTENSION_REQUIRED}) {
            invalid(std::string(name) + ".next: unknown extension flags " + std::to_string(next->flags));
        }
        if (next->reserved != 0)
            invalid(std::string(name) + ".next: reserved is " + std::to_string(next->reserved) + ", expected 0");
        const auto is_this = [&](const KnownExtension& each) { return each.type == next->type; };
        const auto place = std::find_if(known.begin(), known.end(), is_this);
        if (place != known.end()) {
            if (place->found != nullptr)
                invalid(std::string(name) + ".next: extension type " + std::to_string(next->type) +
                        " comes twice, expected once");
            place->found = next;
        } else if (next->flags & WINNOW_EXTENSION_REQUIRED) {
            throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + ".next: extension type " +
                                                      std::to_string(next->type) +
                                                      " is required, and this backend does not know it here");
        }
        next = next->next;
    }
}

inline void check_reserved(uint32_t value, const char* name) {
    if (value != 0) invalid(std::string(name) + ".reserved is " + std::to_string(value) + ", expected 0");
}

// known: the flags that are defined for such a description.
inline void check_flags(uint32_t flags, const char* name, uint32_t known = 0) {
    const uint32_t unknown = flags & ~known;
    if (unknown == 0) return;
    throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + ".flags is " + std::to_string(flags) +
                                              ", of which no version defines " +
                                              (known == 0 ? "any" : std::to_string(unknown)));
}

// A description that has flags and extensions: read, and nothing is asked for but known flags.
template <class T>
T read_desc(const T* desc, const char* name, uint32_t known_flags = 0) {
    const T given = read_struct(desc, name);
    read_extensions(given.next, name);
    check_flags(given.flags, name, known_flags);
    return given;
}

} // namespace winnow::api
