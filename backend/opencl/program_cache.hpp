// Compiled programs on disk, so that the second start of a host compiles nothing. No OpenCL in here: a key made of
// text, a binary made of bytes. An entry that is damaged, truncated, from another format version or for another key is
// reported as absent, and the program is compiled again over it. Entries take so many bytes at most; those that were
// not used for the longest time go first.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace winnow::opencl {

// All that decides whether a binary may be used. Two keys that differ in any field never share an entry.
struct ProgramKey {
    std::string source_hash;
    std::string options;
    std::string device;
    std::string driver_version;
    std::string platform; // name and version

    std::string text() const;      // every field, unambiguously; stored in the entry
    std::string file_name() const; // a hash of text()
};

class ProgramCache {
public:
    // In `directory`, which need not exist yet. An empty path or no bytes: nothing is ever found or stored.
    explicit ProgramCache(std::filesystem::path directory, uint64_t most_bytes = default_bytes());

    // $XDG_CACHE_HOME/winnow, else $HOME/.cache/winnow, else empty. A relative XDG_CACHE_HOME is ignored, as its
    // specification asks.
    static std::filesystem::path default_directory();

    // $WINNOW_PROGRAM_CACHE_MIB, else 256, in bytes. What is no whole number up to 2^20 is ignored.
    static uint64_t default_bytes();

    const std::filesystem::path& directory() const { return directory_; }

    // Notes that the entry was used.
    std::optional<std::vector<std::byte>> load(const ProgramKey& key) const;

    // Makes the directory if need be. Returns the reason if nothing can be stored, else "".
    std::string prepare() const;

    // Writes a temporary file and renames it, so that another process sees the old entry or the new one. Returns the
    // reason if that was not possible, else "". Entries that were not used for long make room.
    std::string store(const ProgramKey& key, const std::vector<std::byte>& binary) const;

    // Held by the one process that makes the program of a key; who waited for it finds the program in the cache. A
    // convenience, no promise: where it cannot be had, for want of a directory or because another process keeps it
    // longer than `most`, the program is made without. One lock of a cache at a time in a process.
    class Lock {
    public:
        ~Lock();
        Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;
        Lock& operator=(Lock&&) = delete;

        bool is_held() const { return file_ != -1; }

    private:
        friend class ProgramCache;
        explicit Lock(int file) : file_(file) {}

        int file_;
    };
    Lock lock(const ProgramKey& key, std::chrono::milliseconds most = std::chrono::minutes(1)) const;

private:
    void make_room(const std::filesystem::path& newest) const;

    std::filesystem::path directory_;
    uint64_t most_bytes_;
};

} // namespace winnow::opencl
