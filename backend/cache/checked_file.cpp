// Files by descriptors, hashed as they pass.
#include "cache/checked_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <xxhash.h>

#include "cache/value.hpp"
#include "device/device.hpp"

namespace winnow::cache {
namespace {

[[noreturn]] void fail(int32_t status, const char* what, const std::string& path, int code) {
    throw Error(status, std::string(what) + " " + path + ": " + std::generic_category().message(code));
}

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

} // namespace

struct CheckedWriter::State {
    std::string path, temporary;
    int file = -1;
    Hash hash;

    void write(const void* data, uint64_t size) const {
        auto at = static_cast<const char*>(data);
        while (size > 0) {
            const ssize_t written = ::write(file, at, size);
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail(WINNOW_ERROR_DEVICE, "cannot write", temporary, errno);
            at += written;
            size -= static_cast<uint64_t>(written);
        }
    }
};

CheckedWriter::CheckedWriter(const std::string& path) : state_(std::make_unique<State>()) {
    static std::atomic<unsigned> serial{0}; // unique among processes and among the threads of this one
    state_->path = path;
    state_->temporary = path + "." + std::to_string(::getpid()) + "." + std::to_string(serial++) + ".tmp";
    state_->file = ::open(state_->temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (state_->file < 0) fail(WINNOW_ERROR_NOT_FOUND, "cannot create", state_->temporary, errno);
}

CheckedWriter::~CheckedWriter() {
    if (state_->file >= 0) ::close(state_->file);
    if (!state_->temporary.empty()) ::unlink(state_->temporary.c_str());
}

void CheckedWriter::bytes(const void* data, uint64_t size) {
    state_->hash.add(data, size);
    state_->write(data, size);
}

void CheckedWriter::finish() {
    const XXH128_canonical_t digest = state_->hash.digest();
    state_->write(&digest, sizeof digest);
    if (::fsync(state_->file) != 0) fail(WINNOW_ERROR_DEVICE, "cannot write", state_->temporary, errno);
    const int closed = ::close(std::exchange(state_->file, -1));
    if (closed != 0) fail(WINNOW_ERROR_DEVICE, "cannot write", state_->temporary, errno);
    if (::rename(state_->temporary.c_str(), state_->path.c_str()) != 0)
        fail(WINNOW_ERROR_NOT_FOUND, "cannot rename to", state_->path, errno);
    state_->temporary.clear();
}

struct CheckedReader::State {
    std::string path;
    int file = -1;
    uint64_t left = 0; // with the checksum
    Hash hash;

    ~State() { // of the reader, too, that its constructor refuses
        if (file >= 0) ::close(file);
    }

    void read(void* data, uint64_t size) {
        auto at = static_cast<char*>(data);
        left -= size;
        while (size > 0) {
            const ssize_t count = ::read(file, at, size);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) fail(WINNOW_ERROR_DEVICE, "cannot read", path, count < 0 ? errno : EIO);
            at += count;
            size -= static_cast<uint64_t>(count);
        }
    }
};

CheckedReader::CheckedReader(const std::string& path) : state_(std::make_unique<State>()) {
    state_->path = path;
    state_->file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (state_->file < 0) fail(WINNOW_ERROR_NOT_FOUND, "cannot open", path, errno);
    struct stat status {};
    if (::fstat(state_->file, &status) != 0 || !S_ISREG(status.st_mode)) refuse_file("is not a file");
    state_->left = static_cast<uint64_t>(status.st_size);
    if (state_->left < hash_size) refuse_file("is cut short");
}

CheckedReader::~CheckedReader() = default;

void CheckedReader::refuse_file(const std::string& why) const { refuse(quote(state_->path) + " " + why); }

uint64_t CheckedReader::left() const { return state_->left - hash_size; }

void CheckedReader::bytes(void* data, uint64_t size) {
    if (size > left()) refuse_file("is cut short");
    state_->read(data, size);
    state_->hash.add(data, size);
}

void CheckedReader::finish() {
    if (left() > 0) refuse_file("is longer than what it holds");
    XXH128_canonical_t written;
    state_->read(&written, sizeof written);
    const XXH128_canonical_t digest = state_->hash.digest();
    if (std::memcmp(&written, &digest, sizeof digest) != 0) refuse_file("is damaged: its checksum is wrong");
}

} // namespace winnow::cache
