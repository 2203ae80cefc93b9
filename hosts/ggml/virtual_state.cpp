// What llama.cpp reads and writes of a cache's rows beside its graphs: states that are saved and restored, and keys
// that are turned when a context shifts.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cpu_rope.hpp"
#include "ggml_api.hpp"
#include "tensors.hpp"
#include "virtual_cache.hpp"

namespace winnow::ggml {

namespace {

constexpr uint16_t not_a_number = 0x7fff; // of f16 and of bf16
constexpr int64_t most_at_once = 1024;    // tokens whose keys are rotated

winnow_tensor numbers_over(const std::vector<int32_t>& numbers) {
    return flat(WINNOW_TYPE_I32, sizeof(int32_t), numbers.data(), int64_t(numbers.size()));
}

winnow_cache_rows_desc rows_desc(int64_t layer, int64_t stream, const winnow_tensor& tokens) {
    winnow_cache_rows_desc desc{};
    desc.struct_size = sizeof desc;
    desc.layer = layer;
    desc.sequence = stream;
    desc.tokens = &tokens;
    return desc;
}

} // namespace

void VirtualCache::read(const ggml_tensor* root, char* data, size_t offset, size_t size) {
    restore_pending();
    const size_t row = root->nb[1];
    const auto begin = int64_t(offset / row), end = int64_t((offset + size + row - 1) / row);
    std::vector<char> rows;
    for (int64_t first = begin; first < end;) { // of one stream at a time
        const int64_t stream = first / figures_.cells;
        const int64_t count = std::min(end, (stream + 1) * figures_.cells) - first;
        const std::vector<char> of_stream = read_rows(root, stream, first % figures_.cells, count);
        rows.insert(rows.end(), of_stream.begin(), of_stream.end());
        first += count;
    }
    std::memcpy(data, rows.data() + (offset - size_t(begin) * row), size);
}

std::vector<char> VirtualCache::read_rows(const ggml_tensor* root, int64_t stream, int64_t first, int64_t count) {
    const auto row = int64_t(root->nb[1]), element = int64_t(root->nb[0]);
    std::vector<char> rows(size_t(count * row));
    std::fill_n(reinterpret_cast<uint16_t*>(rows.data()), rows.size() / sizeof(uint16_t), not_a_number);
    if (!cache_) { // nothing was ever stored, but may have been written
        for (const State& state : states_) {
            const auto half = state.halves.find(root);
            if (state.stream != stream || half == state.halves.end()) continue;
            for (size_t i = 0; i < half->second.cells.size(); ++i) {
                const int64_t at = half->second.cells[i] - first;
                if (at < 0 || at >= count) continue;
                std::memcpy(&rows[size_t(at * row)], &half->second.rows[i * size_t(row)], size_t(row));
            }
        }
        return rows;
    }
    const Layer& layer = layers_[layer_of_.at(root)];
    std::vector<int32_t> cells;
    for (int64_t cell = first; cell < first + count; ++cell) cells.push_back(int32_t(cell));
    const winnow_tensor tokens = numbers_over(cells);
    winnow_cache_rows_desc desc = exact_rows_desc(layer, stream, tokens);
    const int64_t size = root == layer.roots.k ? shape_.head_size : shape_.v_head_size;
    const winnow_tensor to =
        rows_over(type_of(root->type), rows.data(), {shape_.kv_num_heads, count, size, element, row, size});
    (root == layer.roots.k ? desc.k : desc.v) = &to;
    expect(context_.api().cache_export_rows(cache_, &desc));
    return rows;
}

// Where values are a part of the keys, so are their records.
winnow_cache_rows_desc VirtualCache::exact_rows_desc(const Layer& layer, int64_t stream,
                                                     const winnow_tensor& tokens) const {
    winnow_cache_rows_desc desc = rows_desc(number_of(layer), stream, tokens);
    if (!layer.roots.v) {
        desc.has_v_in_k = 1;
        desc.v_first = uint32_t(v_skip_);
    }
    return desc;
}

void VirtualCache::write(const ggml_tensor* root, const char* data, size_t offset, size_t size) {
    // So llama.cpp wipes cells, in parts that may end within a row; keys or values that are all 0 there are not.
    if (std::all_of(data, data + size, [](char byte) { return byte == 0; })) {
        wipe(root, offset, size);
        return;
    }
    const size_t row = root->nb[1];
    if (offset % row != 0 || size % row != 0) {
        throw std::runtime_error(std::string(root->name) + ": " + std::to_string(size) + " bytes are written at byte " +
                                 std::to_string(offset) + "; expected whole rows of " + std::to_string(row));
    }
    for (size_t at = 0; at < size; at += row) {
        const auto number = int64_t((offset + at) / row);
        const int64_t stream = number / figures_.cells;
        const auto cell = int32_t(number % figures_.cells);
        if (begins_state(root, stream, cell)) states_.push_back({stream, {}});
        last_written_ = root;
        Half& half = states_.back().halves[root];
        half.cells.push_back(cell);
        half.rows.insert(half.rows.end(), data + at, data + at + row);
    }
}

// A state comes with the keys of all layers first.
bool VirtualCache::begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const {
    if (states_.empty() || states_.back().stream != stream) return true;
    if (root != layers_.front().roots.k) return false;
    const auto half = states_.back().halves.find(root);
    return last_written_ != root || (half != states_.back().halves.end() && half->second.cells.front() == cell);
}

void VirtualCache::wipe(const ggml_tensor* root, size_t offset, size_t size) {
    const size_t row = root->nb[1];
    const auto begin = int64_t(offset / row), end = int64_t((offset + size + row - 1) / row);
    for (int64_t number = begin; number < end;) { // of one stream at a time
        const int64_t stream = number / figures_.cells, first = number % figures_.cells;
        const int64_t last = std::min(first + end - number, figures_.cells);
        for (State& state : states_) {
            if (state.stream == stream) drop_cells(state, {first, last});
        }
        if (cache_) {
            expect(context_.api().cache_remove(cache_, stream, first, last));
            streams_[size_t(stream)].tracker.remove({first, last});
        }
        number += last - first;
    }
    std::erase_if(states_, [](const State& state) { return state.halves.empty(); });
}

void VirtualCache::drop_cells(State& state, const CellRange& range) {
    for (auto& [root, half] : state.halves) {
        Half left;
        const size_t row = root->nb[1];
        for (size_t i = 0; i < half.cells.size(); ++i) {
            if (half.cells[i] >= range.begin && half.cells[i] < range.end) continue;
            left.cells.push_back(half.cells[i]);
            left.rows.insert(left.rows.end(), &half.rows[i * row], &half.rows[i * row] + row);
        }
        half = std::move(left);
    }
    std::erase_if(state.halves, [](const auto& each) { return each.second.cells.empty(); });
}

// What fails in the middle leaves other rows than llama.cpp believes.
template <typename Action>
void VirtualCache::with_sticky_error(Action&& action) {
    if (!failed_.empty()) throw std::runtime_error(failed_);
    try {
        action();
    } catch (const std::exception& error) {
        failed_ = error.what();
        throw;
    }
}

// States that were written become tokens, as soon as heads and their sizes are known.
void VirtualCache::restore_pending() {
    with_sticky_error([&] {
        last_written_ = nullptr;
        if (!cache_) return;
        const std::vector<State> states = std::move(states_);
        states_.clear();
        for (const State& state : states) restore(state);
    });
}

void VirtualCache::restore(const State& state) {
    const ggml_tensor* first = layers_.front().roots.k;
    const auto keys = state.halves.find(first);
    for (const Layer& layer : layers_) {
        for (const ggml_tensor* root : {layer.roots.k, layer.roots.v}) {
            const auto half = root ? state.halves.find(root) : keys;
            if (half != state.halves.end() && keys != state.halves.end() && half->second.cells == keys->second.cells)
                continue;
            throw std::runtime_error(std::string(root->name) + ": a state was written of other cells than those of " +
                                     first->name);
        }
    }
    std::vector<int32_t> cells = keys->second.cells;
    Stream& stream = streams_[size_t(state.stream)];
    apply(stream.tracker.restore(cells), state.stream);
    const winnow_tensor tokens = numbers_over(cells);
    for (const Layer& layer : layers_) {
        winnow_cache_rows_desc desc = exact_rows_desc(layer, state.stream, tokens);
        const auto rows = [&](const ggml_tensor* root, int64_t size) {
            return rows_over(
                type_of(root->type), state.halves.at(root).rows.data(),
                {shape_.kv_num_heads, int64_t(cells.size()), size, int64_t(root->nb[0]), int64_t(root->nb[1]), size});
        };
        const winnow_tensor k = rows(layer.roots.k, shape_.head_size);
        winnow_tensor v{};
        desc.k = &k;
        if (layer.roots.v) {
            v = rows(layer.roots.v, shape_.v_head_size);
            desc.v = &v;
        }
        expect(context_.api().cache_import_rows(cache_, &desc));
    }
    figures_.restored += cells.size();
}

void VirtualCache::shift(const ggml_tensor* node) {
    restore_pending();
    with_sticky_error([&] { shift_restored(node); });
}

void VirtualCache::shift_restored(const ggml_tensor* node) {
    const ggml_tensor *keys = node->src[0], *deltas = node->src[1];
    const ggml_tensor* root = keys->view_src;
    const Layer& layer = layers_[layer_of_.at(root)];
    const int64_t skip = offset_in(root, keys->data) / int64_t(root->nb[0]);
    if (!cache_ && states_.empty()) return; // nothing to turn
    if (!cache_) {
        throw std::runtime_error(std::string(node->name) + ": a state of " + root->name +
                                 " is shifted before any attention over it");
    }
    if (root != layer.roots.k || keys->ne[2] != root->ne[1] * root->ne[2] || keys->nb[2] != root->nb[1] ||
        keys->ne[1] != shape_.kv_num_heads || skip + keys->ne[0] > shape_.head_size ||
        int64_t(keys->nb[1]) != shape_.head_size * int64_t(root->nb[0]) || deltas->type != GGML_TYPE_I32 ||
        deltas->ne[0] != keys->ne[2]) {
        throw std::runtime_error(std::string(node->name) + ": a rotation of other parts of " + root->name +
                                 " than each cell's keys by a number for each cell");
    }
    const auto* by = static_cast<const int32_t*>(deltas->data);
    for (int64_t stream = 0; stream < figures_.streams; ++stream) {
        std::vector<int32_t> cells, turns;
        for (int64_t cell = 0; cell < figures_.cells; ++cell) {
            const int32_t delta = by[stream * figures_.cells + cell];
            if (delta != 0) cells.push_back(int32_t(cell)), turns.push_back(delta);
            const bool is_last = cell + 1 == figures_.cells;
            if (cells.empty() || (!is_last && int64_t(cells.size()) < most_at_once)) continue;
            rotate(layer, node, stream, cells, turns, skip);
            cells.clear();
            turns.clear();
        }
    }
}

// Keys are read, turned by the host's own arithmetic, and stored again in their places.
void VirtualCache::rotate(const Layer& layer, const ggml_tensor* node, int64_t stream,
                          const std::vector<int32_t>& cells, const std::vector<int32_t>& turns, int64_t skip) {
    const int64_t heads = shape_.kv_num_heads, size = shape_.head_size, turned = node->src[0]->ne[0];
    const auto count = int64_t(cells.size());
    std::vector<float> keys(size_t(count * heads * size)), part;
    const winnow_tensor tokens = numbers_over(cells);
    const winnow_tensor k = rows_over(WINNOW_TYPE_F32, keys.data(),
                                      {heads, count, size, sizeof(float), heads * size * int64_t(sizeof(float)), size});
    winnow_cache_rows_desc desc = rows_desc(number_of(layer), stream, tokens);
    desc.k = &k;
    expect(context_.api().cache_read(cache_, &desc));
    const auto each_row = [&](auto&& action) {
        for (int64_t row = 0; row < count * heads; ++row) action(&keys[size_t(row * size + skip)], row * turned);
    };
    part.resize(size_t(count * heads * turned));
    each_row([&](const float* from, int64_t to) { std::copy_n(from, turned, &part[size_t(to)]); });
    rotate_on_cpu(node, part, heads, turned, turns);
    each_row([&](float* to, int64_t from) { std::copy_n(&part[size_t(from)], turned, to); });
    expect(context_.api().cache_write(cache_, &desc));
}

} // namespace winnow::ggml
