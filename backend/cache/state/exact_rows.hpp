// Rows by token without any loss: as records (row_record.hpp) and a ledger (ledger.hpp) in the place of dense rows.
// export_rows.cpp writes them, import_rows.cpp takes them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void export_rows(CacheState& cache, const CacheRows& args);
void import_rows(CacheState& cache, const CacheRows& args);

// A host's rows of 16-bit elements, copied: [head][token].
class ExactRows {
public:
    ExactRows() = default;
    // Copies a tensor [1, heads, count, size]; throws Error that names it where it is no such tensor.
    ExactRows(const Tensor& tensor, const char* name);
    static void check(const Tensor& tensor, const char* name); // throws the same Error
    void store() const;                                        // writes the rows back into that tensor
    ExactRows part(int64_t first, int64_t size) const;         // elements of each row

    int64_t heads() const { return tensor_.shape[1]; }
    int64_t count() const { return tensor_.shape[2]; }
    int64_t size() const { return tensor_.shape[3]; }
    Type type() const { return tensor_.type; }
    std::span<std::byte> row(int64_t head, int64_t token) {
        return std::span(bytes_).subspan(static_cast<size_t>((head * count() + token) * 2 * size()),
                                         static_cast<size_t>(2 * size()));
    }
    // Whether a plain row says that the token is not resident in the head.
    bool is_nan(int64_t head, int64_t token);
    // A tensor over the copy, which has no gaps.
    Tensor tensor();

private:
    uint64_t offset_of(int64_t head, int64_t token) const;

    Tensor tensor_;
    std::vector<std::byte> bytes_;
};

// Slots of one head in a buffer that has `row` bytes a slot, the first of them at `begin`: those from the first to the
// last that is asked for.
class SlotBytes {
public:
    SlotBytes(Buffer* buffer, uint64_t begin, uint64_t row) : buffer_(buffer), begin_(begin), row_(row) {}
    void read(std::span<const int32_t> slots); // negative ones are none
    std::span<const std::byte> at(int32_t slot) const {
        return std::span(bytes_).subspan(static_cast<size_t>(slot - first_) * row_, row_);
    }

private:
    Buffer* buffer_;
    uint64_t begin_, row_;
    int32_t first_ = 0;
    std::vector<std::byte> bytes_;
};

// What the slots of a layer depend on beside the tokens.
uint64_t digest_of(const Geometry& geometry, int64_t layer);

} // namespace winnow::cache
