// Telling where one state ends and the next begins, and keeping their rows.
#include "pending_states.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace winnow::ggml {

namespace {

void drop_cells(PendingStates::State& state, const CellRange& range) {
    for (auto& [root, rows] : state.rows_of) {
        const auto is_in = [&](int32_t cell) { return cell >= range.begin && cell < range.end; };
        if (std::none_of(rows.cells.begin(), rows.cells.end(), is_in)) continue;
        PendingStates::Rows left;
        const size_t row = root->nb[1];
        for (size_t i = 0; i < rows.cells.size(); ++i) {
            if (is_in(rows.cells[i])) continue;
            left.cells.push_back(rows.cells[i]);
            if (!rows.bytes.empty())
                left.bytes.insert(left.bytes.end(), &rows.bytes[i * row], &rows.bytes[i * row] + row);
        }
        rows = std::move(left);
    }
    std::erase_if(state.rows_of, [](const auto& each) { return each.second.cells.empty(); });
}

} // namespace

bool PendingStates::State::is_zero() const {
    return std::all_of(rows_of.begin(), rows_of.end(), [](const auto& each) {
        const std::vector<char>& bytes = each.second.bytes;
        return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; });
    });
}

void PendingStates::write(const ggml_tensor* root, const char* data, size_t offset, size_t size) {
    const size_t row = root->nb[1];
    if (unfinished_ != root || end_ != offset) begun_.clear();
    if (offset % row != begun_.size()) {
        throw std::runtime_error(std::string(root->name) + ": " + std::to_string(size) + " bytes are written at byte " +
                                 std::to_string(offset) + "; expected whole rows of " + std::to_string(row));
    }
    size_t number = offset / row;
    const char* const end = data + size;
    while (data != end) {
        const size_t count = std::min(row - begun_.size(), static_cast<size_t>(end - data));
        begun_.insert(begun_.end(), data, data + count);
        data += count;
        if (begun_.size() < row) break;
        write_row(root, static_cast<int64_t>(number++));
    }
    unfinished_ = root;
    end_ = offset + size;
}

void PendingStates::write_row(const ggml_tensor* root, int64_t number) {
    const int64_t stream = number / shape_.cells();
    const auto cell = static_cast<int32_t>(number % shape_.cells());
    if (begins_state(root, stream, cell))
        states_.push_back({.stream = stream, .rows_of = {}, .is_set_aside = false, .number = {}});
    last_written_ = root;
    Rows& rows = states_.back().rows_of[root];
    rows.cells.push_back(cell);
    rows.bytes.insert(rows.bytes.end(), begun_.begin(), begun_.end());
    begun_.clear();
}

// A state comes with the keys of the first layer first.
bool PendingStates::begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const {
    if (states_.empty() || states_.back().stream != stream || states_.back().is_set_aside) return true;
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
            char* const to = &rows[static_cast<size_t>(at) * row];
            if (state.is_set_aside)
                std::memset(to, 0, row);
            else
                std::memcpy(to, &its->second.bytes[i * row], row);
        }
    }
}

bool PendingStates::covers(const ggml_tensor* root, int64_t stream, const CellRange& cells) const {
    std::vector<bool> is_there(static_cast<size_t>(cells.end - cells.begin));
    for (const State& state : states_) {
        const auto its = state.rows_of.find(root);
        if (state.stream != stream || its == state.rows_of.end()) continue;
        for (const int32_t cell : its->second.cells)
            if (cell >= cells.begin && cell < cells.end) is_there[static_cast<size_t>(cell - cells.begin)] = true;
    }
    return std::find(is_there.begin(), is_there.end(), false) == is_there.end();
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
        if (state.stream == from) copies.emplace_back(state).stream = to;
    }
    states_.insert(states_.end(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
}

void PendingStates::end_state() {
    last_written_ = unfinished_ = nullptr;
    begun_.clear();
}

void PendingStates::clear() {
    states_.clear();
    end_state();
}

std::vector<PendingStates::State> PendingStates::take() {
    end_state();
    // llama.cpp fills the cells of a state that it could not read to its end with zeros: nothing of it is left.
    for (size_t i = 1; i < states_.size(); ++i) {
        const State& later = states_[i];
        if (later.is_set_aside || !later.is_zero()) continue;
        const std::vector<int32_t>& cells = later.rows_of.begin()->second.cells;
        for (const CellRange& range : to_ranges({cells.begin(), cells.end()}))
            for (size_t before = 0; before < i; ++before)
                if (states_[before].stream == later.stream) drop_cells(states_[before], range);
    }
    std::erase_if(states_, [](const State& state) { return state.rows_of.empty(); });
    return take_if([](const State& state) { return !state.is_set_aside; });
}

void PendingStates::set_aside(State state) {
    state.is_set_aside = true;
    for (auto& [root, rows] : state.rows_of) rows.bytes = {};
    states_.push_back(std::move(state));
}

bool PendingStates::has_set_aside() const {
    return std::any_of(states_.begin(), states_.end(), [](const State& state) { return state.is_set_aside; });
}

std::vector<uint64_t> PendingStates::numbers_set_aside() const {
    std::vector<uint64_t> numbers;
    for (const State& state : states_)
        if (state.is_set_aside) numbers.push_back(state.number.value_or(0));
    return numbers;
}

std::vector<PendingStates::State> PendingStates::take_seen(int64_t stream, const MaskSlice& mask, int64_t tokens) {
    std::vector<State> seen = take_if([&](const State& state) {
        if (!state.is_set_aside || state.stream != stream) return false;
        const std::vector<int32_t>& cells = state.rows_of.begin()->second.cells;
        return std::any_of(cells.begin(), cells.end(), [&](int32_t cell) {
            for (int64_t token = 0; token < tokens; ++token)
                if (mask.sees(token, cell)) return true;
            return false;
        });
    });
    for (State& state : seen)
        for (auto& [root, rows] : state.rows_of) rows.bytes.assign(rows.cells.size() * root->nb[1], 0);
    return seen;
}

template <typename Condition>
std::vector<PendingStates::State> PendingStates::take_if(Condition&& condition) {
    const auto taken =
        std::stable_partition(states_.begin(), states_.end(), [&](const State& state) { return !condition(state); });
    std::vector<State> all(std::make_move_iterator(taken), std::make_move_iterator(states_.end()));
    states_.erase(taken, states_.end());
    return all;
}

} // namespace winnow::ggml
