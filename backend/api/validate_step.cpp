// From winnow_cache_step_desc to what each of its sequences gets.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "api/shapes.hpp"
#include "api/structs.hpp"
#include "api/validate_cache.hpp"

namespace winnow::api {
namespace {

// A side of a step is there as a whole or not at all.
void expect_both(const winnow_tensor* a, const winnow_tensor* b, const char* a_name, const char* b_name) {
    if ((a != nullptr) == (b != nullptr)) return;
    invalid(std::string(a != nullptr ? b_name : a_name) + " is NULL, but " + (a != nullptr ? a_name : b_name) +
            " is given, expected both or neither");
}

constexpr const char* without_q = "without q";
constexpr const char* without_cells = "in a cache without cells";

// The two sides, and what belongs to only one of them.
void check_sides(const winnow_cache_step_desc& given) {
    expect_both(given.k, given.v, "k", "v");
    expect_both(given.q, given.out, "q", "out");
    if (given.k == nullptr && given.q == nullptr)
        invalid("neither k and v nor q and out are given, expected one of the pairs or both");
    if (given.q != nullptr) return;
    expect_absent(given.alibi_slopes, "alibi_slopes", without_q);
    expect_absent(given.head_sink, "head_sink", without_q);
    expect_absent(given.mask_slopes, "mask_slopes", without_q);
}

void check_cell_mode(const winnow_cache_step_desc& given, int64_t cells) {
    if (cells == 0) {
        expect_absent(given.cells, "cells", without_cells);
        expect_absent(given.mask_slopes, "mask_slopes", without_cells);
        return;
    }
    if (given.k != nullptr && given.cells == nullptr)
        invalid("cells is NULL, expected the cell of each token, in a cache with cells");
    if (given.k == nullptr) expect_absent(given.cells, "cells", "without k");
    expect_absent(given.alibi_slopes, "alibi_slopes", "in a cache with cells");
    if (given.window_left != 0)
        invalid("window_left is " + std::to_string(given.window_left) +
                ", expected 0 in a cache with cells, where the mask alone says what a query sees");
}

void check_shapes(const cache::CacheStep& all, const cache::LayerShape& shape) {
    const Tensor& one = all.k ? all.k : all.q;
    const int64_t batch = one.shape[0], tokens = one.shape[2];
    if (all.k) {
        expect_shape(all.k, "k", {batch, shape.kv_heads, tokens, shape.head_size});
        expect_shape(all.v, "v", {batch, shape.kv_heads, tokens, shape.v_head_size});
    }
    if (all.cells) expect_shape(all.cells, "cells", {batch, 1, 1, tokens});
    if (!all.q) return;
    expect_shape(all.q, "q", {batch, shape.q_heads, tokens, shape.head_size});
    expect_shape(all.out, "out", {batch, shape.q_heads, tokens, shape.v_head_size});
    const std::array<int64_t, 4> per_head = {1, 1, 1, shape.q_heads};
    if (all.alibi_slopes) expect_shape(all.alibi_slopes, "alibi_slopes", per_head);
    if (all.head_sink) expect_shape(all.head_sink, "head_sink", per_head);
    if (all.mask_slopes) expect_shape(all.mask_slopes, "mask_slopes", per_head);
}

// What all sequences share, with all rows.
cache::CacheStep to_shared(const winnow_cache& cache, const winnow_cache_step_desc& given) {
    const auto tensor = [&](const winnow_tensor* from, const char* name, std::initializer_list<Type> types,
                            Access access = Access::input) {
        return to_tensor(*cache.context, from, {name, types, access}, Memory::required);
    };
    const cache::LayerShape& shape = cache.request.shape.layer(given.layer);
    cache::CacheStep all;
    all.layer = given.layer;
    all.may_wait = (given.flags & WINNOW_STEP_NO_WAIT) == 0;
    all.k = tensor(given.k, "k", dense_types);
    all.v = tensor(given.v, "v", dense_types);
    all.q = tensor(given.q, "q", dense_types);
    all.out = tensor(given.out, "out", dense_types, Access::output);
    all.alibi_slopes = tensor(given.alibi_slopes, "alibi_slopes", float_type);
    all.head_sink = tensor(given.head_sink, "head_sink", float_type);
    all.mask_slopes = tensor(given.mask_slopes, "mask_slopes", float_type);
    all.cells = tensor(given.cells, "cells", index_types);
    all.scale = to_scale(given.scale, shape.head_size, "scale");
    all.softcap = to_softcap(given.softcap, "softcap");
    all.window_left = to_window(given.window_left, "window_left");
    check_shapes(all, shape);
    return all;
}

// Rows of one batch entry.
struct Rows {
    int64_t batch, first, count;
};

Tensor part_of(Tensor tensor, const Rows& rows, int axis) {
    if (!tensor) return tensor;
    tensor.offset += static_cast<uint64_t>(rows.batch * tensor.stride[0] + rows.first * tensor.stride[axis]);
    tensor.shape[0] = 1;
    tensor.shape[axis] = rows.count;
    return tensor;
}

Rows rows_of(const winnow_cache_entry& given, const Tensor& tensor) {
    expect_count("batch", given.batch, tensor.shape[0] - 1, 0);
    expect_count("first", given.first, tensor.shape[2] - 1, 0);
    expect_count("count", given.count, tensor.shape[2] - given.first);
    return {given.batch, given.first, given.count};
}

cache::CacheStep to_step(const winnow_cache& cache, const cache::CacheStep& all, const winnow_cache_entry& given,
                         const Rows& rows) {
    const cache::CacheRequest& of = cache.request;
    expect_sequence(cache, "sequence", given.sequence);
    if (!all.q) expect_absent(given.attn_mask, "attn_mask", without_q);
    if (!all.q) expect_absent(given.scores_out, "scores_out", without_q);
    if (of.cells == 0) expect_absent(given.attn_mask, "attn_mask", without_cells);
    if (of.cells != 0 && all.q && given.attn_mask == nullptr)
        invalid("attn_mask is NULL, expected a mask by cells, in a cache with cells");
    expect_count("draft_tokens", given.draft_tokens, rows.count, 0);
    cache::CacheStep step = all;
    step.sequence = given.sequence;
    step.draft_tokens = given.draft_tokens;
    for (Tensor* each : {&step.k, &step.v, &step.q, &step.out}) *each = part_of(*each, rows, 2);
    step.cells = part_of(step.cells, rows, 3);
    step.mask = to_tensor(*cache.context, given.attn_mask, {"attn_mask", mask_types}, Memory::required);
    step.scores_out =
        to_tensor(*cache.context, given.scores_out, {"scores_out", float_type, Access::output}, Memory::required);
    if (step.mask) expect_mask(step.mask, "attn_mask", step.q, 1, "the cells"); // those it has no column for are hidden
    expect_mask_slopes(step.mask_slopes, "mask_slopes", step.mask);
    if (!step.scores_out) return step;
    expect_shape(step.scores_out, "scores_out", {1, step.q.shape[1], rows.count, -1});
    if (step.scores_out.shape[3] < of.cells)
        invalid("scores_out.shape[3] is " + std::to_string(step.scores_out.shape[3]) +
                ", expected at least the cells, " + std::to_string(of.cells));
    return step;
}

// All rows are sequence 0's.
cache::CacheStep to_only_step(const winnow_cache& cache, const cache::CacheStep& all,
                              const winnow_cache_step_desc& given) {
    if (cache.request.cells != 0 && all.q)
        invalid("entries is NULL, expected an entry with attn_mask in a cache with cells");
    if (given.entry_count != 0 || given.entry_stride != 0)
        invalid("entries is NULL, but entry_count is " + std::to_string(given.entry_count) + " and entry_stride " +
                std::to_string(given.entry_stride) + ", expected all of them or none");
    const Tensor& one = all.k ? all.k : all.q;
    if (one.shape[0] != 1)
        invalid(std::string(all.k ? "k" : "q") + ".shape[0] (batch) is " + std::to_string(one.shape[0]) +
                ", expected 1 without entries");
    return to_step(cache, all, {}, {0, 0, one.shape[2]});
}

// No output on an input of any entry, and no two outputs on each other.
void expect_all_apart(const cache::CacheStep& all, const std::vector<cache::CacheStep>& steps) {
    std::vector<NamedTensor> outputs = {{all.out, "out"}};
    std::vector<NamedTensor> inputs = {{all.q, "q"},
                                       {all.k, "k"},
                                       {all.v, "v"},
                                       {all.alibi_slopes, "alibi_slopes"},
                                       {all.head_sink, "head_sink"},
                                       {all.mask_slopes, "mask_slopes"},
                                       {all.cells, "cells"}};
    for (const cache::CacheStep& step : steps) {
        outputs.push_back({step.scores_out, "scores_out"});
        inputs.push_back({step.mask, "attn_mask"});
    }
    expect_apart(outputs, inputs);
}

template <class T, class Less, class Clash>
void check_neighbours(std::vector<T> all, Less less, Clash clash) {
    std::sort(all.begin(), all.end(), less);
    for (size_t i = 1; i < all.size(); ++i) clash(all[i - 1], all[i]);
}

void expect_distinct(const std::vector<cache::CacheStep>& steps, const std::vector<Rows>& rows) {
    std::vector<int64_t> sequences;
    sequences.reserve(steps.size());
    for (const cache::CacheStep& step : steps) sequences.push_back(step.sequence);
    check_neighbours(sequences, std::less{}, [](int64_t a, int64_t b) {
        if (a == b) invalid("sequence " + std::to_string(a) + " is in entries twice, expected each once");
    });
    const auto place = [](const Rows& it) { return std::tuple(it.batch, it.first); };
    check_neighbours(
        rows, [&](const Rows& a, const Rows& b) { return place(a) < place(b); },
        [](const Rows& a, const Rows& b) {
            if (a.batch == b.batch && a.first + a.count > b.first)
                invalid("row " + std::to_string(b.first) + " of batch " + std::to_string(b.batch) +
                        " is in entries twice, expected each once");
        });
}

} // namespace

std::vector<cache::CacheStep> to_cache_steps(const winnow_cache& cache, const winnow_cache_step_desc* desc) {
    const winnow_cache_step_desc given = read_desc(desc, "desc", WINNOW_STEP_NO_WAIT);
    expect_layer(cache, given.layer);
    check_sides(given);
    check_cell_mode(given, cache.request.cells);
    const cache::CacheStep all = to_shared(cache, given);
    std::vector<cache::CacheStep> steps;
    if (given.entries == nullptr) {
        steps.push_back(to_only_step(cache, all, given));
        expect_all_apart(all, steps);
        return steps;
    }
    expect_count("entry_count", static_cast<int64_t>(std::min<uint64_t>(given.entry_count, INT64_MAX)),
                 cache.request.max_sequences);
    const HostArray<const winnow_cache_entry> entries = {given.entries, given.entry_count, given.entry_stride,
                                                         "entries", "entry"};
    std::vector<Rows> rows;
    for_each_element(entries, [&](const winnow_cache_entry& entry) {
        const winnow_cache_entry of = read_struct(&entry, "entry");
        check_reserved(of.reserved, "entry");
        rows.push_back(rows_of(of, all.k ? all.k : all.q));
        steps.push_back(to_step(cache, all, of, rows.back()));
    });
    expect_distinct(steps, rows);
    expect_all_apart(all, steps);
    return steps;
}

} // namespace winnow::api
