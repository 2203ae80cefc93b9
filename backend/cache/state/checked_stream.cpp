// Streams are hashed as they pass.
#include "cache/state/checked_stream.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include <xxhash.h>

#include "cache/plan/config_value.hpp"
#include "device/replaced_file.hpp"

namespace winnow::cache {
namespace {

class Hash {
public:
    Hash() : state_(XXH3_createState()) {
        if (state_ == nullptr) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "no memory for a checksum");
        XXH3_128bits_reset(state_);
    }
    ~Hash() { XXH3_freeState(state_); }
    Hash(const Hash&) = delete;
    Hash& operator=(const Hash&) = delete;
    void add(const void* data, size_t size) { XXH3_128bits_update(state_, data, size); }
    XXH128_canonical_t digest() const {
        XXH128_canonical_t bytes;
        XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(state_));
        return bytes;
    }

private:
    XXH3_state_t* state_;
};

constexpr uint64_t hash_size = sizeof(XXH128_canonical_t);

// Of the host's function, which was to take or to give bytes.
void check_host(const char* name, int32_t returned, uint64_t size, uint64_t passed) {
    if (returned == 0) return;
    throw Error(WINNOW_ERROR_IO, std::string("the host's function ") + name + " returned " + std::to_string(returned) +
                                     " for " + std::to_string(size) + " bytes at byte " + std::to_string(passed));
}

} // namespace

struct CheckedWriter::State {
    explicit State(const CacheSaving& into) : write(into.write) {
        if (!into.path.empty()) file.emplace(into.path);
    }
    std::optional<ReplacedFile> file;
    std::function<int32_t(const void*, uint64_t)> write;
    Hash hash;
};

CheckedWriter::CheckedWriter() = default;

CheckedWriter::CheckedWriter(const CacheSaving& into) : state_(std::make_unique<State>(into)) {}

CheckedWriter::~CheckedWriter() = default;

void CheckedWriter::bytes(const void* data, uint64_t size) {
    if (state_ && size > 0) {
        state_->hash.add(data, size);
        if (state_->file)
            state_->file->write(data, size);
        else
            check_host("write", state_->write(data, size), size, size_);
    }
    size_ += size;
}

void CheckedWriter::finish() {
    XXH128_canonical_t digest{};
    if (state_) digest = state_->hash.digest();
    bytes(&digest, sizeof digest);
    if (!state_ || !state_->file) return;
    state_->file->sync();
    state_->file->put();
}

struct CheckedReader::State {
    std::string path; // "": the host's function is read
    std::function<int32_t(void*, uint64_t)> host_read;
    int file = -1;
    uint64_t size = 0, left = 0; // with the checksum
    Hash hash;

    ~State() { // of the reader, too, that its constructor refuses
        if (file >= 0) ::close(file);
    }

    void open_file() {
        // Without waiting for a writer, where the path is a pipe's.
        file = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
        if (file < 0) throw file_error("cannot open", path, errno);
        struct stat status {};
        if (::fstat(file, &status) != 0) throw file_error("cannot look at", path, errno);
        if (!S_ISREG(status.st_mode)) refuse(quote(path) + " is not a file");
        size = static_cast<uint64_t>(status.st_size);
    }

    // False where the file ends before.
    bool read(void* data, uint64_t bytes) {
        const uint64_t passed = size - left;
        left -= bytes;
        if (file < 0) {
            check_host("read", host_read(data, bytes), bytes, passed);
            return true;
        }
        for (auto at = static_cast<char*>(data); bytes > 0;) {
            const ssize_t count = uninterrupted([&] { return ::read(file, at, bytes); });
            if (count < 0) throw file_error("cannot read", path, errno);
            if (count == 0) return false;
            at += count;
            bytes -= static_cast<uint64_t>(count);
        }
        return true;
    }
};

CheckedReader::CheckedReader(const CacheLoading& from) : state_(std::make_unique<State>()) {
    state_->path = from.path;
    state_->host_read = from.read;
    state_->size = from.size;
    if (!from.path.empty()) state_->open_file();
    state_->left = state_->size;
    if (state_->left < hash_size) refuse_stream("is cut short");
}

CheckedReader::~CheckedReader() = default;

void CheckedReader::refuse_stream(const std::string& why) const {
    refuse((state_->path.empty() ? "the stream" : quote(state_->path)) + " " + why);
}

uint64_t CheckedReader::left() const { return state_->left - hash_size; }

void CheckedReader::bytes(void* data, uint64_t size) {
    if (size == 0) return;
    if (size > left()) refuse_stream("is cut short");
    if (!state_->read(data, size)) refuse_stream("is cut short");
    state_->hash.add(data, size);
}

void CheckedReader::finish() {
    if (left() > 0) refuse_stream("is longer than what it holds");
    XXH128_canonical_t written;
    if (!state_->read(&written, sizeof written)) refuse_stream("is cut short");
    const XXH128_canonical_t digest = state_->hash.digest();
    if (std::memcmp(&written, &digest, sizeof digest) != 0) refuse_stream("is damaged: its checksum is wrong");
}

} // namespace winnow::cache
