// Descriptions of rows by token.
#include "state_rows.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "ggml_api.hpp"
#include "tensors.hpp"

namespace winnow::ggml {

namespace {

constexpr uint16_t not_a_number = 0x7fff; // of f16 and of bf16

// Where values are a part of the keys, so are their records.
winnow_cache_rows_desc exact_rows_desc(const CacheShape& shape, size_t layer, int64_t stream,
                                       const winnow_tensor& tokens) {
    winnow_cache_rows_desc desc = rows_desc(static_cast<int64_t>(layer), stream, tokens);
    if (!shape.layers()[layer].v) {
        desc.has_v_in_k = 1;
        desc.v_first = static_cast<uint32_t>(shape.v_skip());
    }
    return desc;
}

// Once in a process: a state has many rows.
void warn_of_rounding(const CacheHandle& cache) {
    static std::once_flag once;
    std::call_once(once, [&] {
        log_line(GGML_LOG_LEVEL_WARN, "%s: a state is rounded, and its importance is lost: %s", cache.shape().name(),
                 cache.context().message());
    });
}

// Fills rows of a root, those of a stream's cells in these ranges. Rows that cannot be exact are rounded.
void export_rows(const CacheHandle& cache, const ggml_tensor* root, int64_t stream,
                 const std::vector<CellRange>& ranges, std::vector<char>& rows) {
    const CacheShape& shape = cache.shape();
    std::vector<int32_t> cells;
    for (const CellRange& range : ranges)
        for (int64_t cell = range.begin; cell < range.end; ++cell) cells.push_back(static_cast<int32_t>(cell));
    const winnow_tensor tokens = token_ids_over(cells),
                        to = shape.rows(root, rows.data(), static_cast<int64_t>(cells.size()));
    winnow_cache_rows_desc desc = exact_rows_desc(shape, shape.layer_of(root), stream, tokens);
    (shape.is_keys(root) ? desc.k : desc.v) = &to;
    const int32_t status = cache.caches().export_rows(cache.get(), &desc);
    if (status != WINNOW_ERROR_UNSUPPORTED) return cache.expect(status);
    warn_of_rounding(cache);
    desc.has_v_in_k = desc.v_first = 0;
    cache.expect(cache.caches().read(cache.get(), &desc));
}

} // namespace

std::vector<char> empty_rows(const ggml_tensor* root, int64_t count) {
    std::vector<char> rows(static_cast<size_t>(count) * root->nb[1]);
    std::fill_n(reinterpret_cast<uint16_t*>(rows.data()), rows.size() / sizeof(uint16_t), not_a_number);
    return rows;
}

void fill_damaged(char* data, size_t size) {
    constexpr uint16_t damaged = 0x7fa5;
    for (size_t at = 0; at + sizeof damaged <= size; at += sizeof damaged)
        std::memcpy(data + at, &damaged, sizeof damaged);
}

void StateReader::read(const CacheHandle& cache, const ggml_tensor* root, int64_t stream, int64_t first,
                       std::vector<char>& rows) {
    const CellRange range{first, first + static_cast<int64_t>(rows.size() / root->nb[1])};
    const bool are_keys = cache.shape().is_keys(root);
    if (stream != stream_ || (are_keys && values_)) end();
    stream_ = stream;
    if (are_keys) {
        std::vector<CellRange>& ranges = ranges_[root];
        if (!ranges.empty() && ranges.back().end > range.begin) ranges.clear();
        ranges.push_back(range);
    } else if (read_values(cache, root, range, rows)) {
        return;
    }
    export_rows(cache, root, stream, {range}, rows);
}

// Where the ranges are those of the keys.
bool StateReader::read_values(const CacheHandle& cache, const ggml_tensor* root, const CellRange& range,
                              std::vector<char>& rows) {
    const CacheShape& shape = cache.shape();
    const std::vector<CellRange>& ranges = ranges_[shape.layers()[shape.layer_of(root)].k];
    const bool is_first = values_ != root;
    if (is_first) next_ = at_ = 0;
    values_ = root;
    if (ranges.size() < 2 || next_ == ranges.size() || ranges[next_].begin != range.begin ||
        ranges[next_].end != range.end) {
        next_ = ranges.size();
        return false;
    }
    if (is_first) {
        size_t cells = 0;
        for (const CellRange& each : ranges) cells += static_cast<size_t>(each.end - each.begin);
        rows_ = empty_rows(root, static_cast<int64_t>(cells));
        export_rows(cache, root, stream_, ranges, rows_);
    }
    std::copy_n(rows_.begin() + static_cast<ptrdiff_t>(at_), rows.size(), rows.begin());
    at_ += rows.size();
    ++next_;
    return true;
}

const std::vector<int32_t>& cells_of(const CacheShape& shape, const PendingStates::State& state) {
    const ggml_tensor* first = shape.layers().front().k;
    const auto keys = state.rows_of.find(first);
    for (const LayerRoots& layer : shape.layers()) {
        for (const ggml_tensor* root : {layer.k, layer.v}) {
            if (!root) continue; // its values are in the keys
            const auto rows = state.rows_of.find(root);
            if (keys != state.rows_of.end() && rows != state.rows_of.end() && rows->second.cells == keys->second.cells)
                continue;
            throw std::runtime_error(std::string(root->name) + ": a state was written of other cells than those of " +
                                     first->name);
        }
    }
    return keys->second.cells;
}

void import_state(const CacheHandle& cache, const PendingStates::State& state) {
    const CacheShape& shape = cache.shape();
    const std::vector<int32_t>& cells = cells_of(shape, state);
    const winnow_tensor tokens = token_ids_over(cells);
    for (size_t layer = 0; layer < shape.layers().size(); ++layer) {
        winnow_cache_rows_desc desc = exact_rows_desc(shape, layer, state.stream, tokens);
        const auto rows = [&](const ggml_tensor* root) {
            return shape.rows(root, state.rows_of.at(root).bytes.data(), static_cast<int64_t>(cells.size()));
        };
        const LayerRoots& roots = shape.layers()[layer];
        const winnow_tensor k = rows(roots.k), v = roots.v ? rows(roots.v) : winnow_tensor{};
        desc.k = &k;
        desc.v = roots.v ? &v : nullptr;
        cache.expect(cache.caches().import_rows(cache.get(), &desc));
    }
}

} // namespace winnow::ggml
