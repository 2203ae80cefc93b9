// An entry is: Header, the key's text, the binary. Lengths and checksum stand in the header; the checksum covers the
// rest. When it was used last is the file's time of change.
#include "opencl/program_cache.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

#include <xxhash.h>

#include "device/replaced_file.hpp"

namespace winnow::opencl {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t mib = uint64_t{1} << 20U;
constexpr std::string_view extension = ".program";
constexpr std::array<char, 8> magic{'W', 'I', 'N', 'N', 'O', 'W', 'P', '1'}; // the digit is the format's version

struct Header {
    std::array<char, 8> magic;
    uint64_t key_size;
    uint64_t binary_size;
    uint64_t checksum; // of both sizes, key and binary
};
static_assert(sizeof(Header) == 32);

uint64_t checksum(const Header& header, const void* key, const void* binary) {
    const std::array<uint64_t, 2> sizes{header.key_size, header.binary_size};
    const uint64_t of_sizes = XXH3_64bits(sizes.data(), sizeof sizes);
    return XXH3_64bits_withSeed(binary, header.binary_size, XXH3_64bits_withSeed(key, header.key_size, of_sizes));
}

} // namespace

std::string ProgramKey::text() const {
    std::string result;
    for (const std::string* field : {&source_hash, &options, &device, &driver_version, &platform})
        result.append(std::to_string(field->size())).append(":").append(*field).append("\n");
    return result;
}

std::string ProgramKey::file_name() const {
    const std::string all = text();
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    std::string result;
    for (const unsigned char byte : bytes.digest) {
        result += "0123456789abcdef"[byte >> 4];
        result += "0123456789abcdef"[byte & 15];
    }
    return result.append(extension);
}

ProgramCache::ProgramCache(std::filesystem::path directory, uint64_t most_bytes)
    : directory_(most_bytes > 0 ? std::move(directory) : std::filesystem::path()), most_bytes_(most_bytes) {}

uint64_t ProgramCache::default_bytes() {
    constexpr uint64_t usual = 256, most = uint64_t{1} << 20U;
    const char* const given = std::getenv("WINNOW_PROGRAM_CACHE_MIB");
    if (given == nullptr) return usual * mib;
    uint64_t number = 0;
    const std::string_view text(given);
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_good = failed == std::errc() && end == text.data() + text.size() && number <= most;
    return (is_good ? number : usual) * mib;
}

std::filesystem::path ProgramCache::default_directory() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::filesystem::path(cache) / "winnow";
    const char* home = std::getenv("HOME");
    if (home != nullptr && home[0] == '/') return std::filesystem::path(home) / ".cache" / "winnow";
    return {};
}

std::optional<std::vector<std::byte>> ProgramCache::load(const ProgramKey& key) const {
    if (directory_.empty()) return std::nullopt;
    // Everything is asked of the open file: its name may come to stand for another one at any time.
    std::ifstream file(directory_ / key.file_name(), std::ios::binary | std::ios::ate);
    if (!file) return std::nullopt;
    const auto file_size = static_cast<uint64_t>(file.tellg());
    file.seekg(0);
    Header header{};
    if (!file.read(reinterpret_cast<char*>(&header), sizeof header) || header.magic != magic) return std::nullopt;
    const std::string expected_key = key.text();
    // The sizes are compared before anything is allocated by them.
    if (header.key_size != expected_key.size() || file_size <= sizeof header + header.key_size ||
        header.binary_size != file_size - sizeof header - header.key_size)
        return std::nullopt;
    std::string stored_key(header.key_size, '\0');
    std::vector<std::byte> binary(header.binary_size);
    if (!file.read(stored_key.data(), static_cast<std::streamsize>(stored_key.size())) ||
        !file.read(reinterpret_cast<char*>(binary.data()), static_cast<std::streamsize>(binary.size())))
        return std::nullopt;
    if (stored_key != expected_key || header.checksum != checksum(header, stored_key.data(), binary.data()))
        return std::nullopt;
    std::error_code ignored; // a directory that only others may write into
    fs::last_write_time(directory_ / key.file_name(), fs::file_time_type::clock::now(), ignored);
    return binary;
}

// Another process may do the same: what is gone already is no failure.
void ProgramCache::make_room(const fs::path& newest) const {
    struct Entry {
        fs::path path;
        uint64_t size;
        fs::file_time_type used;
    };
    std::vector<Entry> entries;
    uint64_t bytes = 0;
    std::error_code failed;
    for (fs::directory_iterator at(directory_, failed), end; !failed && at != end; at.increment(failed)) {
        if (at->path().extension() != extension) continue;
        std::error_code gone;
        Entry entry{at->path(), at->file_size(gone), {}};
        if (!gone) entry.used = at->last_write_time(gone);
        if (gone) continue;
        bytes += entry.size;
        if (entry.path != newest) entries.push_back(std::move(entry));
    }
    if (bytes <= most_bytes_) return;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    const uint64_t wanted = most_bytes_ / 4 * 3; // so that not every program that is stored looks again
    for (const Entry& entry : entries) {
        if (bytes <= wanted) return;
        if (fs::remove(entry.path, failed)) bytes -= entry.size;
    }
}

ProgramCache::Lock::~Lock() {
    if (file_ != -1) ::close(file_); // which gives the lock back
}

// Locks the byte that the key's hash names, in one file for all programs. The system releases it when a process ends.
ProgramCache::Lock ProgramCache::lock(const ProgramKey& key, std::chrono::milliseconds most) const {
    if (directory_.empty()) return Lock(-1);
    Lock lock(::open((directory_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock.is_held()) return lock;
    const std::string text = key.text();
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(XXH3_64bits(text.data(), text.size()) >> 33U); // a long of 32 bits has room
    range.l_len = 1;
    const auto end = std::chrono::steady_clock::now() + most;
    while (::fcntl(lock.file_, F_SETLK, &range) != 0) {
        const bool is_taken = errno == EACCES || errno == EAGAIN || errno == EINTR;
        if (!is_taken || std::chrono::steady_clock::now() >= end) return Lock(-1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return lock;
}

std::string ProgramCache::prepare() const {
    if (most_bytes_ == 0) return "WINNOW_PROGRAM_CACHE_MIB is 0";
    if (directory_.empty()) return "there is no cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path";
    std::error_code failed;
    std::filesystem::create_directories(directory_, failed);
    if (failed) return file_error("cannot create", directory_, failed.value()).what();
    if (::access(directory_.c_str(), W_OK | X_OK) != 0)
        return file_error("cannot write into", directory_, errno).what();
    return {};
}

std::string ProgramCache::store(const ProgramKey& key, const std::vector<std::byte>& binary) const {
    std::string obstacle = prepare();
    if (!obstacle.empty()) return obstacle;
    if (binary.empty()) return "the driver gave an empty binary";

    const std::string key_text = key.text();
    Header header{magic, key_text.size(), binary.size(), 0};
    header.checksum = checksum(header, key_text.data(), binary.data());

    const std::filesystem::path path = directory_ / key.file_name();
    try {
        ReplacedFile file(path);
        file.write(&header, sizeof header);
        file.write(key_text.data(), key_text.size());
        file.write(binary.data(), binary.size());
        file.put();
    } catch (const Error& error) {
        return error.what();
    }
    make_room(path);
    return {};
}

} // namespace winnow::opencl
