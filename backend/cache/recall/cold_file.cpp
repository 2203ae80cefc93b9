// A file by its descriptor: unlinked from the beginning, its space reserved, its page cache left alone but for what was
// written and has aged.
#include "cache/recall/cold_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>

#include <linux/magic.h>

#include "cache/plan/config_value.hpp"
#include "device/replaced_file.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t region_multiple = 1 << 20; // bytes
constexpr uint64_t largest_block = 1 << 16;   // of a file system
constexpr uint64_t aging_bytes = 1 << 18;
constexpr uint64_t largest_window = 1 << 15, smallest_window = 1 << 12; // bytes around what is asked for
constexpr uint64_t most_ahead = 1 << 20;                                // bytes of the windows of some reads
constexpr mode_t owner_only = 0600;

// Where the file system has no files without a name, one is made and its name removed.
int open_named(const std::string& folder) {
    std::string path = folder + "/winnow-cold-XXXXXX";
    const int file = uninterrupted([&] { return ::mkostemp(path.data(), O_CLOEXEC); });
    if (file >= 0 && ::unlink(path.c_str()) != 0) { // what has a name may be left behind
        const int code = errno;
        ::close(file);
        errno = code;
        return -1;
    }
    return file;
}

int open_in(const std::string& folder) {
    const int file =
        uninterrupted([&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, owner_only); });
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    return open_named(folder);
}

bool is_in_memory(int file) {
    struct statfs status {};
    if (::fstatfs(file, &status) != 0) return false;
    const auto type = static_cast<unsigned long>(status.f_type);
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

} // namespace

ColdFile::ColdFile(const std::string& folder, uint64_t region_bytes, const Log& log)
    : folder_(folder), region_bytes_((region_bytes + region_multiple - 1) / region_multiple * region_multiple) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) throw file_error("cannot find recall's folder", folder, errno);
    if (!S_ISDIR(status.st_mode)) refuse("recall=" + folder + " is not a folder");
    file_ = open_in(folder);
    if (file_ < 0) throw failure("cannot make a file in recall's folder", errno);
    ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM); // pages are read alone; other reads are as large as they should be
    if (is_in_memory(file_))
        log(WINNOW_LOG_WARNING,
            "recall=" + folder + " is a tmpfs: its files take memory, so that the cold tier saves none");
}

ColdFile::~ColdFile() { ::close(file_); }

Error ColdFile::failure(const char* what, int code) const {
    const Error error = file_error(what, folder_, code);
    return error.status() == WINNOW_ERROR_NOT_FOUND ? Error(WINNOW_ERROR_IO, error.what()) : error;
}

// What a disk could not take the system forgets: zeros, or what was there before, would be read for it.
void ColdFile::check_written() const {
    if (lost_ == 0 && ::sync_file_range(file_, 0, 1, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        lost_ = errno;
    if (lost_ != 0) throw failure("rows of the cold tier did not reach the disk, and are lost, in", lost_);
}

// To the end of the last block, which no other region has a part of. A file system that cannot do it keeps the space
// for the region's next use.
void ColdFile::give_back(uint64_t begin, uint64_t bytes) const {
    const uint64_t end = (begin + bytes + largest_block - 1) / largest_block * largest_block;
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
}

ColdRegion::ColdRegion(std::shared_ptr<ColdFile> file) : file_(std::move(file)) {
    if (file_->free_.empty()) {
        file_->free_.reserve(static_cast<size_t>(file_->regions_ + 1)); // so that giving one back takes no memory
        number_ = file_->regions_++;
    } else {
        number_ = file_->free_.back();
        file_->free_.pop_back();
    }
    begin_ = number_ * file_->region_bytes_;
}

ColdRegion::~ColdRegion() {
    if (reserved_ > 0) file_->give_back(begin_, reserved_);
    file_->free_.push_back(number_);
}

void ColdRegion::reserve(uint64_t bytes) {
    if (bytes <= reserved_) return;
    int code = EINTR;
    while (code == EINTR)
        code = ::posix_fallocate(file_->file_, static_cast<off_t>(begin_ + reserved_),
                                 static_cast<off_t>(bytes - reserved_));
    if (code != 0) {
        file_->give_back(begin_ + reserved_, bytes - reserved_); // what it took before it failed
        throw file_->failure("cannot reserve space for the cold tier in", code);
    }
    reserved_ = bytes;
}

void ColdRegion::shrink(uint64_t bytes) noexcept {
    if (bytes >= reserved_) return;
    file_->give_back(begin_ + bytes, reserved_ - bytes);
    reserved_ = bytes;
}

void ColdRegion::write(uint64_t offset, std::span<const std::byte> bytes) {
    const uint64_t begin = begin_ + offset;
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t count = uninterrupted([&] {
            return ::pwrite(file_->file_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(begin + done));
        });
        if (count <= 0) throw file_->failure("cannot write the cold tier in", count == 0 ? EIO : errno);
        done += static_cast<size_t>(count);
    }
    age(begin, begin + bytes.size());
}

// Only what is on the disk leaves the page cache: what was written is on its way there when some more has been.
void ColdRegion::age(uint64_t begin, uint64_t end) {
    if (begin < new_begin_ || begin > new_end_) new_begin_ = begin; // what was before is left to the kernel
    new_end_ = end;
    if (new_end_ - new_begin_ < aging_bytes) return;
    const auto length = [](uint64_t first, uint64_t last) { return static_cast<off_t>(last - first); };
    ::sync_file_range(file_->file_, static_cast<off_t>(new_begin_), length(new_begin_, new_end_),
                      SYNC_FILE_RANGE_WRITE);
    if (old_begin_ < old_end_)
        ::posix_fadvise(file_->file_, static_cast<off_t>(old_begin_), length(old_begin_, old_end_),
                        POSIX_FADV_DONTNEED);
    old_begin_ = new_begin_;
    old_end_ = new_end_;
    new_begin_ = new_end_;
}

void ColdRegion::read(const ColdRead& read) const {
    for (size_t done = 0; done < read.to.size();) {
        const ssize_t count = uninterrupted([&] {
            return ::pread(file_->file_, read.to.data() + done, read.to.size() - done,
                           static_cast<off_t>(begin_ + read.offset + done));
        });
        if (count <= 0) throw file_->failure("cannot read the cold tier in", count == 0 ? EIO : errno);
        done += static_cast<size_t>(count);
    }
}

void ColdRegion::read(std::span<const ColdRead> reads) const {
    std::vector<const ColdRead*> others;
    for (const ColdRead& each : reads) {
        const iovec to{each.to.data(), each.to.size()};
        const ssize_t count = ::preadv2(file_->file_, &to, 1, static_cast<off_t>(begin_ + each.offset), RWF_NOWAIT);
        if (count != static_cast<ssize_t>(each.to.size())) others.push_back(&each);
    }
    if (others.empty()) return;
    const uint64_t window = std::clamp(std::bit_floor(most_ahead / others.size()), smallest_window, largest_window);
    uint64_t asked = 0; // up to here
    for (const ColdRead* each : others) {
        const uint64_t end = each->offset + each->to.size();
        const uint64_t first = std::max(each->offset / window * window, asked);
        asked = std::min((end + window - 1) / window * window, reserved_);
        if (first < asked)
            ::posix_fadvise(file_->file_, static_cast<off_t>(begin_ + first), static_cast<off_t>(asked - first),
                            POSIX_FADV_WILLNEED);
    }
    for (const ColdRead* each : others) read(*each);
    file_->check_written();
}

} // namespace winnow::cache
