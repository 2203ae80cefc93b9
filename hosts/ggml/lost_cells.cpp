// Looking for them in masks.
#include "lost_cells.hpp"

#include <algorithm>
#include <stdexcept>

namespace winnow::ggml {

void LostCells::add(std::span<const int32_t> cells, const std::string& reason) {
    const auto shared = std::make_shared<const std::string>(reason);
    for (const int32_t cell : cells) reasons_[cell] = shared;
}

void LostCells::forget(std::span<const int32_t> cells) {
    for (const int32_t cell : cells) reasons_.erase(cell);
}

void LostCells::forget(const CellRange& range) {
    reasons_.erase(reasons_.lower_bound(range.begin), reasons_.lower_bound(range.end));
}

void LostCells::note_batch(std::span<const int32_t> cells, int64_t columns) {
    forget(cells);
    reasons_.erase(reasons_.lower_bound(columns), reasons_.end());
}

void LostCells::expect_unseen(const MaskSlice& mask, int64_t tokens, std::span<const int32_t> overwritten) const {
    std::vector<int64_t> cells; // ascend, too
    auto own = overwritten.begin();
    for (const auto& [cell, reason] : reasons_) {
        while (own != overwritten.end() && *own < cell) ++own;
        if (own == overwritten.end() || *own != cell) cells.push_back(cell);
    }
    for (int64_t token = 0; token < tokens; ++token) {
        const auto seen =
            std::find_if(cells.begin(), cells.end(), [&](int64_t cell) { return mask.sees(token, cell); });
        if (seen == cells.end()) continue;
        throw std::runtime_error("a sequence needs cell " + std::to_string(*seen) +
                                 ", which has no token; it has to be removed: " + *reasons_.at(*seen));
    }
}

} // namespace winnow::ggml
