// Numbers of tokens: of a batch its own and the token's place in it; of a state its own, from the highest down.
#include "arrivals.hpp"

#include <algorithm>
#include <unordered_set>

namespace winnow::ggml {

namespace {

constexpr unsigned place_bits = 24;
constexpr size_t most_states = 1024; // that are known; of older ones nothing is told

} // namespace

void Arrivals::forget_all() {
    std::fill(tokens_.begin(), tokens_.end(), 0);
    states_.clear();
}

// The first of the caches that a batch comes to counts it. So one that misses a batch, whose graph was aborted, has the
// right number again with the next.
void Arrivals::take_batch(std::span<const int32_t> cells) {
    if (tokens_.empty()) return;
    if (newest_ == counts_->batches) ++counts_->batches;
    newest_ = counts_->batches;
    end_state();
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
    if (state != 0) states_[state] = cells.size();
    if (states_.size() > most_states) states_.erase(states_.begin());
    for (const int32_t cell : cells) tokens_[static_cast<size_t>(cell)] = state == 0 ? 0 : ~state;
}

void Arrivals::forget(const CellRange& range) {
    if (tokens_.empty()) return;
    std::fill(tokens_.begin() + range.begin, tokens_.begin() + range.end, 0);
}

// Whether this cache has had a state that the other one has. Older llama.cpp may refuse a state and leave no trace of
// it in the other cache. The next state that comes to that cache alone then gets the same number, mostly with another
// count of tokens.
bool Arrivals::has_had(uint64_t state, const Arrivals& other) const {
    const auto here = states_.find(state), there = other.states_.find(state);
    if (here == states_.end() || there == other.states_.end()) return false;
    const bool have_equal_cells = tokens_.size() == other.tokens_.size();
    return have_equal_cells ? here->second == there->second : here->second >= there->second;
}

std::vector<int64_t> Arrivals::gone_from(const Arrivals& other, std::span<const uint64_t> states) const {
    std::unordered_set<uint64_t> present(other.tokens_.begin(), other.tokens_.end());
    for (const uint64_t state : states) present.insert(~state);
    std::vector<int64_t> gone;
    for (size_t cell = 0; cell < tokens_.size(); ++cell) {
        const uint64_t token = tokens_[cell];
        const bool is_of_state = token >> 63 != 0, was_there = !is_of_state || other.has_had(~token, *this);
        if (token != 0 && was_there && !present.contains(token)) gone.push_back(static_cast<int64_t>(cell));
    }
    return gone;
}

} // namespace winnow::ggml
