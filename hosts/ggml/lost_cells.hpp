// Cells whose tokens are not there although llama.cpp may believe it: those of a state that was refused, and those that
// were dropped for one. Whoever sees one fails, and all others go on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "cell_tracker.hpp"

namespace winnow::ggml {

// Of one stream.
class LostCells {
public:
    bool empty() const { return reasons_.empty(); }
    bool has(int64_t cell) const { return reasons_.contains(cell); }
    void add(std::span<const int32_t> cells, const std::string& reason);
    // Cells that have other tokens from now on, or none that llama.cpp knows of.
    void forget(std::span<const int32_t> cells);
    void forget(const CellRange& range);
    // A batch overwrites these cells, and no cell from `columns` on is in use. What it does not see may be seen later.
    void note_batch(std::span<const int32_t> cells, int64_t columns);
    void clear() { reasons_.clear(); }
    // Throws std::runtime_error with the reason where one of the first `tokens` rows sees one, unless it is among the
    // cells that the batch overwrites, which ascend. Reads no more of the mask than the host wrote, as it lies.
    void expect_unseen(const MaskSlice& mask, int64_t tokens, std::span<const int32_t> overwritten) const;

private:
    std::map<int64_t, std::shared_ptr<const std::string>> reasons_; // by cell
};

} // namespace winnow::ggml
