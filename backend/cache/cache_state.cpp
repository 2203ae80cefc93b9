// What a cache holds: sequences and their layers, and the memory that layers share.
#include "cache/cache_state.hpp"

#include <xxhash.h>

#include "cache/plan/pressure.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

template <class T>
uint64_t hash_of(const std::vector<T>& numbers) {
    return numbers.empty() ? 0 : XXH3_64bits(numbers.data(), numbers.size() * sizeof(T));
}

ResourceHashes hashes_of(const CacheRequest& request) {
    static_assert(sizeof(LayerProfile) == 3 * sizeof(double));
    return {hash_of(request.profile), hash_of(request.network), request.codebooks ? hash_of(*request.codebooks) : 0};
}

} // namespace

Scratch make_scratch(Device& device, const Geometry& geometry, int64_t slots) {
    Scratch scratch;
    if (slots == 0) return scratch;
    scratch.slots = slots;
    scratch.scores = device.allocate(geometry.scores_bytes(slots));
    scratch.row_stats = device.allocate(geometry.row_stats_bytes());
    return scratch;
}

CacheState::CacheState(Device& on, std::unique_ptr<Geometry> sizes) : device(on), geometry(std::move(sizes)) {
    resources = hashes_of(geometry->request());
    sequences = new_sequences();
}

CacheState::CacheState(CacheState& before, std::vector<Sequence> empty)
    : device(before.device), geometry(std::move(before.geometry)), log(std::move(before.log)),
      cold_file(std::move(before.cold_file)), codebooks(std::move(before.codebooks)), resources(before.resources),
      sequences(std::move(empty)) {}

std::vector<Sequence> CacheState::new_sequences() const {
    std::vector<Sequence> all;
    for (int64_t i = 0; i < geometry->request().max_sequences; ++i) all.push_back(new_sequence());
    return all;
}

Sequence CacheState::new_sequence() const {
    Sequence sequence;
    for (int64_t layer = 0; layer < geometry->layers(); ++layer) sequence.layers.emplace_back(*geometry, layer);
    return sequence;
}

uint64_t Sequence::bytes() const {
    uint64_t sum = 0;
    for (const Layer& layer : layers) sum += layer.bytes();
    return sum;
}

double CacheState::pressure_now() const { return pressure < 0 ? memory_pressure().value_or(0) : pressure; }

void drop(CacheState& cache, Sequence& sequence) {
    uint64_t evictions = 0;
    for (const Layer& layer : sequence.layers) evictions += layer.evictions(*cache.geometry);
    const PickCounts picks = pick_counts(*cache.geometry, sequence);
    std::vector<Layer> fresh = cache.new_sequence().layers;
    cache.layer_bytes -= sequence.bytes();
    sequence.layers.swap(fresh);
    cache.evictions += evictions;
    cache.picks += picks;
}

} // namespace winnow::cache
