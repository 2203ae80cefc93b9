// Zeroing passes. What they find is all in the rows and the slot maps, so that nothing else is kept of them.
#include "cache/layer/zeroing.hpp"

namespace winnow::cache {
namespace {

// of_head: what is zeroed in heads that store alike, of which the first is given.
template <class OfHead>
void zero(CacheState& cache, const Layer& layer, const OfHead& of_head) {
    const Geometry& geometry = *cache.geometry;
    if (!geometry.zeroing() || layer.index.next() < geometry.zeroing().after || layer.parts(geometry).empty()) return;
    for (const Geometry::Heads& heads : geometry.alike(layer.number)) {
        const Zeroing zeroing = of_head(heads.first);
        if (!zeroing) continue;
        SlotZero args;
        args.segments = layer.segments(geometry, heads);
        args.k_scale = zeroing.k;
        args.v_scale = zeroing.v;
        args.sink = zeroing.sink;
        args.positions = state_tensor(Type::i32, geometry.state(layer.number).positions, layer.state.get(), 1,
                                      geometry.request().cells);
        cache.device.launch(args);
    }
}

} // namespace

void zero_after_chunk(CacheState& cache, const Layer& layer, int64_t before) {
    const Zeroing& zeroing = cache.geometry->zeroing();
    if (!zeroing) return;
    // Layers take turns, so that steps take equal time.
    const int64_t early = zeroing.every - layer.number * zeroing.every / cache.geometry->layers();
    if ((layer.index.next() + early) / zeroing.every > (before + early) / zeroing.every)
        zero(cache, layer, [&](int64_t) { return zeroing; });
}

void zero_before_packing(CacheState& cache, const Layer& layer) {
    zero(cache, layer, [&](int64_t head) { return cache.geometry->zeroing_of_packed(layer.number, head); });
}

} // namespace winnow::cache
