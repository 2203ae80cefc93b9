// The cold tier of recall in a file: one for a cache, without a name, so that nothing is left of it when the process
// ends, however it ends. Each layer of each sequence has a region of it, of which only what was reserved takes space.
//
//     | region 0: layer 0 of sequence 0 | region 1: layer 1 | (free: its space is given back) | ...
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace winnow::cache {

class ColdFile {
public:
    // Throws Error that names the folder where it is not there, is no folder, or takes no file.
    ColdFile(const std::string& folder, uint64_t region_bytes, const Log& log);
    ~ColdFile();
    ColdFile(const ColdFile&) = delete;
    ColdFile& operator=(const ColdFile&) = delete;

private:
    friend class ColdRegion;
    Error failure(const char* what, int code) const;
    void give_back(uint64_t begin, uint64_t bytes) const;
    // Throws where something that was written is no longer to be had.
    void check_written() const;

    mutable std::atomic<int> lost_ = 0; // not 0: why
    std::string folder_;
    uint64_t region_bytes_;
    int file_ = -1;
    uint64_t regions_ = 0;       // there have been
    std::vector<uint64_t> free_; // of them
};

// A read of `to.size()` bytes at an offset of a region.
struct ColdRead {
    uint64_t offset = 0;
    std::span<std::byte> to;
};

// A part of the file; its space is given back with it. Every function throws Error with WINNOW_ERROR_IO.
class ColdRegion {
public:
    explicit ColdRegion(std::shared_ptr<ColdFile> file);
    ~ColdRegion();
    ColdRegion(const ColdRegion&) = delete;
    ColdRegion& operator=(const ColdRegion&) = delete;

    // Takes space on the disk for its first so many bytes, so that writes of them do not run out of it.
    void reserve(uint64_t bytes);
    // Gives back the space behind so many bytes.
    void shrink(uint64_t bytes) noexcept;
    uint64_t reserved() const { return reserved_; }
    // What is written leaves the page cache when it has aged.
    void write(uint64_t offset, std::span<const std::byte> bytes);
    // In ascending order. Those that are not in the page cache are asked for together, with what lies around them,
    // which later reads ask for more often than for what lies elsewhere; and then waited for.
    void read(std::span<const ColdRead> reads) const;

private:
    void read(const ColdRead& read) const;
    void age(uint64_t begin, uint64_t end);

    std::shared_ptr<ColdFile> file_;
    uint64_t number_ = 0, begin_ = 0, reserved_ = 0;
    // Written and not yet sent to the disk, and sent there before; in the file.
    uint64_t new_begin_ = 0, new_end_ = 0, old_begin_ = 0, old_end_ = 0;
};

// Space that a region takes on the disk for its first so many bytes; what it took more goes back unless it is kept.
class ColdReservation {
public:
    ColdReservation() = default;
    ColdReservation(std::shared_ptr<ColdRegion> region, uint64_t bytes)
        : region_(std::move(region)), before_(region_->reserved()) {
        region_->reserve(bytes);
    }
    ColdReservation(ColdReservation&&) = default;
    ColdReservation& operator=(ColdReservation&& other) noexcept {
        std::swap(region_, other.region_);
        std::swap(before_, other.before_);
        return *this;
    }
    ~ColdReservation() {
        if (region_) region_->shrink(before_);
    }
    std::shared_ptr<ColdRegion> keep() { return std::exchange(region_, nullptr); } // none where nothing was reserved

private:
    std::shared_ptr<ColdRegion> region_;
    uint64_t before_ = 0;
};

} // namespace winnow::cache
