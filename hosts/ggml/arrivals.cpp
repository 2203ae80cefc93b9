// Numbers of tokens: of a batch its own and the token's place in it; of a state its own, from the highest down.
#include "arrivals.hpp"

#include <algorithm>
#include <unordered_set>

namespace winnow::ggml {

namespace {

constexpr unsigned place_bits = 24;

} // namespace

// The first of the caches that a batch comes to counts it. So one that misses a batch, whose graph was aborted, has the
// right number again with the next.
void Arrivals::take_batch(std::span<const int32_t> cells) {
    if (tokens_.empty()) return;
    if (newest_ == counts_->batches) ++counts_->batches;
    newest_ = counts_->batches;
    counts_->open_state = 0;
    for (size_t i = 0; i < cells.size(); ++i)
        tokens_[static_cast<size_t>(cells[i])] = newest_ << place_bits | static_cast<uint64_t>(i);
}

uint64_t Arrivals::begin_state(bool is_first) {
    if (is_first) counts_->open_state = ++counts_->states;
    if (newest_state_ == counts_->open_state) return 0; // this cache has that one already
    return newest_state_ = counts_->open_state;
}

void Arrivals::take_state(std::span<const int32_t> cells, uint64_t state) {
    if (tokens_.empty()) return;
    for (const int32_t cell : cells) tokens_[static_cast<size_t>(cell)] = state == 0 ? 0 : ~state;
}

void Arrivals::forget(const CellRange& range) {
    if (tokens_.empty()) return;
    std::fill(tokens_.begin() + range.begin, tokens_.begin() + range.end, 0);
}

std::vector<int64_t> Arrivals::gone_from(const Arrivals& other, std::span<const uint64_t> states) const {
    std::unordered_set<uint64_t> present(other.tokens_.begin(), other.tokens_.end());
    for (const uint64_t state : states) present.insert(~state);
    std::vector<int64_t> gone;
    for (size_t cell = 0; cell < tokens_.size(); ++cell)
        if (tokens_[cell] != 0 && !present.contains(tokens_[cell])) gone.push_back(static_cast<int64_t>(cell));
    return gone;
}

} // namespace winnow::ggml
