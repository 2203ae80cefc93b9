// Telling where one state ends and the next begins, and keeping their rows.
#include "pending_states.hpp"

#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace winnow::ggml {

namespace {

void drop_cells(PendingStates::State& state, const CellRange& range) {
    for (auto& [root, rows] : state.rows_of) {
        PendingStates::Rows left;
        const size_t row = root->nb[1];
        for (size_t i = 0; i < rows.cells.size(); ++i) {
            if (rows.cells[i] >= range.begin && rows.cells[i] < range.end) continue;
            left.cells.push_back(rows.cells[i]);
            left.bytes.insert(left.bytes.end(), &rows.bytes[i * row], &rows.bytes[i * row] + row);
        }
        rows = std::move(left);
    }
    std::erase_if(state.rows_of, [](const auto& each) { return each.second.cells.empty(); });
}

} // namespace

void PendingStates::write(const ggml_tensor* root, const char* data, size_t offset, size_t size) {
    const size_t row = root->nb[1];
    if (offset % row != 0 || size % row != 0) {
        throw std::runtime_error(std::string(root->name) + ": " + std::to_string(size) + " bytes are written at byte " +
                                 std::to_string(offset) + "; expected whole rows of " + std::to_string(row));
    }
    for (size_t at = 0; at < size; at += row) {
        const auto number = static_cast<int64_t>((offset + at) / row);
        const int64_t stream = number / shape_.cells();
        const auto cell = static_cast<int32_t>(number % shape_.cells());
        if (begins_state(root, stream, cell)) states_.push_back({stream, {}});
        last_written_ = root;
        Rows& rows = states_.back().rows_of[root];
        rows.cells.push_back(cell);
        rows.bytes.insert(rows.bytes.end(), data + at, data + at + row);
    }
}

// A state comes with the keys of the first layer first.
bool PendingStates::begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const {
    if (states_.empty() || states_.back().stream != stream) return true;
    if (root != shape_.layers().front().k) return false;
    const auto rows = states_.back().rows_of.find(root);
    return last_written_ != root || (rows != states_.back().rows_of.end() && rows->second.cells.front() == cell);
}

void PendingStates::read(const ggml_tensor* root, int64_t stream, int64_t first, std::vector<char>& rows) const {
    const size_t row = root->nb[1];
    const auto count = static_cast<int64_t>(rows.size() / row);
    for (const State& state : states_) {
        const auto its = state.rows_of.find(root);
        if (state.stream != stream || its == state.rows_of.end()) continue;
        for (size_t i = 0; i < its->second.cells.size(); ++i) {
            const int64_t at = its->second.cells[i] - first;
            if (at < 0 || at >= count) continue;
            std::memcpy(&rows[static_cast<size_t>(at) * row], &its->second.bytes[i * row], row);
        }
    }
}

void PendingStates::drop(int64_t stream, const CellRange& range) {
    for (State& state : states_) {
        if (state.stream == stream) drop_cells(state, range);
    }
    std::erase_if(states_, [](const State& state) { return state.rows_of.empty(); });
}

void PendingStates::copy(int64_t from, int64_t to) {
    std::erase_if(states_, [&](const State& state) { return state.stream == to; });
    std::vector<State> copies;
    for (const State& state : states_) {
        if (state.stream == from) copies.push_back({to, state.rows_of});
    }
    states_.insert(states_.end(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
}

void PendingStates::clear() {
    states_.clear();
    last_written_ = nullptr;
}

std::vector<PendingStates::State> PendingStates::take() {
    last_written_ = nullptr;
    return std::exchange(states_, {});
}

} // namespace winnow::ggml
