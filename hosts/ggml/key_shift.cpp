// Keys are read, turned by the host's own arithmetic, and stored again in their places.
#include "key_shift.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "cpu_rope.hpp"
#include "ggml_api.hpp"
#include "tensors.hpp"

namespace winnow::ggml {

namespace {

constexpr int64_t most_at_once = 1024; // tokens

void check(const CacheShape& shape, const ggml_tensor* node) {
    const ggml_tensor *keys = node->src[0], *deltas = node->src[1], *root = keys->view_src;
    const int64_t skip = offset_in(root, keys->data) / static_cast<int64_t>(root->nb[0]);
    if (!shape.is_keys(root) || keys->ne[2] != root->ne[1] * root->ne[2] || keys->nb[2] != root->nb[1] ||
        keys->ne[1] != shape.kv_heads() || skip + keys->ne[0] > shape.head_size() ||
        static_cast<int64_t>(keys->nb[1]) != shape.head_size() * static_cast<int64_t>(root->nb[0]) ||
        deltas->type != GGML_TYPE_I32 || deltas->ne[0] != keys->ne[2]) {
        throw std::runtime_error(std::string(node->name) + ": a rotation of a part of " + root->name +
                                 ", expected the keys of all cells, with one i32 shift for each cell");
    }
}

// Cells of a stream and by how much the keys of each are turned.
struct Turns {
    int64_t stream;
    std::vector<int32_t> cells, by;
};

void turn(const CacheHandle& cache, const ggml_tensor* node, const Turns& turns) {
    const CacheShape& shape = cache.shape();
    const ggml_tensor* root = node->src[0]->view_src;
    const int64_t heads = shape.kv_heads(), size = shape.head_size(), turned = node->src[0]->ne[0];
    const int64_t skip = offset_in(root, node->src[0]->data) / static_cast<int64_t>(root->nb[0]);
    const auto count = static_cast<int64_t>(turns.cells.size());
    std::vector<float> keys(static_cast<size_t>(count * heads * size)),
        part(static_cast<size_t>(count * heads * turned));
    const winnow_tensor tokens = token_ids_over(turns.cells);
    const winnow_tensor k =
        rows_over(WINNOW_TYPE_F32, keys.data(),
                  {heads, count, size, sizeof(float), heads * size * static_cast<int64_t>(sizeof(float)), size});
    winnow_cache_rows_desc desc = rows_desc(static_cast<int64_t>(shape.layer_of(root)), turns.stream, tokens);
    desc.k = &k;
    cache.expect(cache.caches().read(cache.get(), &desc));
    const auto each_row = [&](auto&& action) {
        for (int64_t row = 0; row < count * heads; ++row)
            action(&keys[static_cast<size_t>(row * size + skip)], row * turned);
    };
    each_row([&](const float* from, int64_t to) { std::copy_n(from, turned, &part[static_cast<size_t>(to)]); });
    rotate_on_cpu(node, part, heads, turned, turns.by);
    each_row([&](float* to, int64_t from) { std::copy_n(&part[static_cast<size_t>(from)], turned, to); });
    cache.expect(cache.caches().write(cache.get(), &desc));
}

} // namespace

void shift_keys(const CacheHandle& cache, Streams& streams, const ggml_tensor* node) {
    const CacheShape& shape = cache.shape();
    check(shape, node);
    const auto* by = static_cast<const int32_t*>(node->src[1]->data);
    for (int64_t stream = 0; stream < shape.streams(); ++stream) {
        Turns turns{stream, {}, {}};
        for (int64_t cell = 0; cell < shape.cells(); ++cell) {
            const int32_t delta = by[stream * shape.cells() + cell];
            if (delta != 0) {
                turns.cells.push_back(static_cast<int32_t>(cell));
                turns.by.push_back(delta);
            }
            const bool is_last = cell + 1 == shape.cells();
            if (turns.cells.empty() || (!is_last && static_cast<int64_t>(turns.cells.size()) < most_at_once)) continue;
            streams.note_shift(stream, turns.cells);
            turn(cache, node, turns);
            turns = {stream, {}, {}};
        }
    }
}

} // namespace winnow::ggml
