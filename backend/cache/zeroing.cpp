// Zeroing passes. What they find is all in the rows and the slot maps, so that nothing else is kept of them.
#include "cache/zeroing.hpp"

namespace winnow::cache {
namespace {

void zero(CacheState& cache, const Layer& layer, const Zeroing& zeroing) {
    const Geometry& geometry = *cache.geometry;
    if (!zeroing || layer.index.next() < zeroing.after) return;
    SlotZero args;
    args.k_scale = zeroing.k;
    args.v_scale = zeroing.v;
    args.sink = zeroing.sink;
    args.positions =
        state_tensor(Type::i32, geometry.state().positions, layer.state.get(), 1, geometry.request().cells);
    if (layer.parts(geometry).empty()) return;
    for (const Geometry::Heads& heads : geometry.alike(layer.number)) {
        args.segments = layer.segments(geometry, heads);
        cache.device.launch(args);
    }
}

} // namespace

void zero_after_chunk(CacheState& cache, const Layer& layer, int64_t layer_number, int64_t before) {
    const Zeroing& zeroing = cache.geometry->zeroing();
    if (!zeroing) return;
    // Layers take turns, so that steps take equal time.
    const int64_t early = zeroing.every - layer_number * zeroing.every / cache.geometry->shape().layers;
    if ((layer.index.next() + early) / zeroing.every > (before + early) / zeroing.every) zero(cache, layer, zeroing);
}

void zero_before_packing(CacheState& cache, const Layer& layer) {
    zero(cache, layer, cache.geometry->zeroing_of_packed(layer.number));
}

} // namespace winnow::cache
