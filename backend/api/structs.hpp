// Reading and writing the versioned structs of winnow.h: nothing outside struct_size is touched, whichever side is
// newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "device/device.hpp"

namespace winnow::api {

[[noreturn]] inline void invalid(const std::string& text) { throw Error(WINNOW_ERROR_INVALID_ARGUMENT, text); }

// The size of a struct in the version that brought it: the least that a caller may have. A struct that grows gets a
// line here, so that older callers stay welcome.
template <class T>
inline constexpr size_t first_version_size = sizeof(T);
template <>
inline constexpr size_t first_version_size<winnow_sdpa_desc> = offsetof(winnow_sdpa_desc, v_threshold);
template <>
inline constexpr size_t first_version_size<winnow_kv_append_desc> = offsetof(winnow_kv_append_desc, k_norm);
template <>
inline constexpr size_t first_version_size<winnow_stats> = offsetof(winnow_stats, rows_requantized);

// No struct of ours comes near; a larger size is an uninitialised field.
inline constexpr uint32_t max_struct_size = 1u << 16;

inline uint32_t checked_struct_size(const void* given, size_t least, const char* name) {
    if (given == nullptr) invalid(std::string(name) + " is NULL");
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size < least || size > max_struct_size) {
        invalid(std::string(name) + ".struct_size is " + std::to_string(size) + ", expected at least " +
                std::to_string(least));
    }
    return size;
}

// A copy of the caller's struct in our size: what an older caller does not have is zero; what a newer one has beyond
// ours has to be zero, since we could not honour it.
template <class T>
T read_struct(const T* given, const char* name) {
    const uint32_t size = checked_struct_size(given, first_version_size<T>, name);
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
    const uint32_t size = checked_struct_size(target, first_version_size<T>, name);
    value.struct_size = size;
    std::memcpy(target, &value, std::min<size_t>(size, sizeof(T)));
    if (size > sizeof(T)) std::memset(reinterpret_cast<unsigned char*>(target) + sizeof(T), 0, size - sizeof(T));
}

// No version knows an extension: optional ones are skipped, required ones refused.
inline void check_extensions(const winnow_extension* next, const char* name) {
    for (int count = 0; next != nullptr; ++count) {
        if (count == 64) invalid(std::string(name) + ".next is a chain of more than 64 records, or a circle");
        checked_struct_size(next, sizeof(winnow_extension), "an extension in next");
        if (next->flags & ~uint32_t{WINNOW_EXTENSION_REQUIRED}) {
            invalid(std::string(name) + ".next: unknown extension flags " + std::to_string(next->flags));
        }
        if (next->flags & WINNOW_EXTENSION_REQUIRED) {
            throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + ".next: extension type " +
                                                      std::to_string(next->type) +
                                                      " is required, and this backend knows none");
        }
        next = next->next;
    }
}

inline void check_reserved(uint32_t value, const char* name) {
    if (value != 0) invalid(std::string(name) + ".reserved is " + std::to_string(value) + ", expected 0");
}

inline void check_flags(uint32_t flags, const char* name) {
    if (flags != 0) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    std::string(name) + ".flags is " + std::to_string(flags) + ", and no version defines any");
    }
}

// A description that has flags and extensions: read, and neither of them asks for anything.
template <class T>
T read_desc(const T* desc, const char* name) {
    const T given = read_struct(desc, name);
    check_extensions(given.next, name);
    check_flags(given.flags, name);
    return given;
}

} // namespace winnow::api
