// Files by descriptors, hashed as they pass.
#include "cache/state/checked_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

} // namespace

struct CheckedWriter::State {
    explicit State(const std::string& path) : file(path) {}
    ReplacedFile file;
    Hash hash;
};

CheckedWriter::CheckedWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}

CheckedWriter::~CheckedWriter() = default;

void CheckedWriter::bytes(const void* data, uint64_t size) {
    state_->hash.add(data, size);
    state_->file.write(data, size);
}

void CheckedWriter::finish() {
    const XXH128_canonical_t digest = state_->hash.digest();
    state_->file.write(&digest, sizeof digest);
    state_->file.sync();
    state_->file.put();
}

struct CheckedReader::State {
    std::string path;
    int file = -1;
    uint64_t left = 0; // with the checksum
    Hash hash;

    ~State() { // of the reader, too, that its constructor refuses
        if (file >= 0) ::close(file);
    }

    // False where the file ends before.
    bool read(void* data, uint64_t size) {
        auto at = static_cast<char*>(data);
        left -= size;
        while (size > 0) {
            const ssize_t count = uninterrupted([&] { return ::read(file, at, size); });
            if (count < 0) throw file_error("cannot read", path, errno);
            if (count == 0) return false;
            at += count;
            size -= static_cast<uint64_t>(count);
        }
        return true;
    }
};

CheckedReader::CheckedReader(const std::string& path) : state_(std::make_unique<State>()) {
    state_->path = path;
    // Without waiting for a writer, where the path is a pipe's.
    state_->file = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
    if (state_->file < 0) throw file_error("cannot open", path, errno);
    struct stat status {};
    if (::fstat(state_->file, &status) != 0) throw file_error("cannot look at", path, errno);
    if (!S_ISREG(status.st_mode)) refuse_file("is not a file");
    state_->left = static_cast<uint64_t>(status.st_size);
    if (state_->left < hash_size) refuse_file("is cut short");
}

CheckedReader::~CheckedReader() = default;

void CheckedReader::refuse_file(const std::string& why) const { refuse(quote(state_->path) + " " + why); }

uint64_t CheckedReader::left() const { return state_->left - hash_size; }

void CheckedReader::bytes(void* data, uint64_t size) {
    if (size > left()) refuse_file("is cut short");
    if (!state_->read(data, size)) refuse_file("is cut short");
    state_->hash.add(data, size);
}

void CheckedReader::finish() {
    if (left() > 0) refuse_file("is longer than what it holds");
    XXH128_canonical_t written;
    if (!state_->read(&written, sizeof written)) refuse_file("is cut short");
    const XXH128_canonical_t digest = state_->hash.digest();
    if (std::memcmp(&written, &digest, sizeof digest) != 0) refuse_file("is damaged: its checksum is wrong");
}

} // namespace winnow::cache
