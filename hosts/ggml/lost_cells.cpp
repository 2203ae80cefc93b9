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

void LostCells::expect_unseen(const MaskSlice& mask, int64_t tokens, std::span<const int32_t> overwritten) const {
    for (const auto& [cell, reason] : reasons_) {
        if (std::binary_search(overwritten.begin(), overwritten.end(), cell)) continue;
        for (int64_t token = 0; token < tokens; ++token) {
            if (!mask.sees(token, cell)) continue;
            throw std::runtime_error("a sequence needs cell " + std::to_string(cell) +
                                     ", whose state was refused; it has to be removed: " + *reason);
        }
    }
}

} // namespace winnow::ggml
