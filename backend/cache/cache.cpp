// The functions of a cache, each in the file that it is about.
#include "cache/cache.hpp"

#include "cache/cache_state.hpp"
#include "cache/calls/edit_sequence.hpp"
#include "cache/calls/inspect.hpp"
#include "cache/calls/layer_call.hpp"
#include "cache/calls/set_config.hpp"
#include "cache/calls/set_importance.hpp"
#include "cache/calls/token_rows.hpp"
#include "cache/failures.hpp"
#include "cache/plan/pressure.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"
#include "cache/state/exact_rows.hpp"
#include "cache/state/snapshot.hpp"

namespace winnow::cache {
Cache::Cache(Device& device, const CacheRequest& request, const Log& log)
    : state_(std::make_unique<CacheState>(device, std::make_unique<Geometry>(request, parse(request.config)))) {
    state_->log = log;
    state_->cold_file = open_cold_file(*state_->geometry, log);
    state_->codebooks = make_codebooks(device, *state_->geometry);
    if (request.codebooks) *request.codebooks = {}; // the device has them
}

Cache::~Cache() = default;

void Cache::step(std::span<const CacheStep> steps, bool marks_event) {
    changing(state_->device, [&] { cache::run_step(*state_, steps, marks_event); });
}

void Cache::reserve(int64_t sequence, int64_t tokens) {
    changing(state_->device, [&] { cache::reserve(*state_, sequence, tokens); });
}

void Cache::truncate(int64_t sequence, int64_t length) {
    changing(state_->device, [&] { cache::truncate(*state_, sequence, length); });
}

void Cache::remove(int64_t sequence, int64_t begin, int64_t end) {
    changing(state_->device, [&] { cache::remove(*state_, sequence, begin, end); });
}

void Cache::copy(int64_t from, int64_t to) { cache::copy(*state_, from, to); }

void Cache::shift(int64_t sequence, int64_t begin, int64_t end, int64_t delta) {
    changing(state_->device, [&] { cache::shift(*state_, sequence, begin, end, delta); });
}

void Cache::reset() {
    std::vector<Sequence> empty = state_->new_sequences();
    state_ = std::make_unique<CacheState>(*state_, std::move(empty));
}

void Cache::save(const CacheSaving& into) { cache::save(*state_, into); }

void Cache::load(const CacheLoading& from) { cache::load(*state_, from); }

uint64_t Cache::saved_size(int64_t sequence) { return cache::saved_size(*state_, sequence); }

void Cache::stats(winnow_cache_stats& out) { cache::stats(*state_, out); }

void Cache::sequence_stats(int64_t sequence, winnow_cache_stats& out) { cache::sequence_stats(*state_, sequence, out); }

int64_t Cache::next_position(int64_t sequence, int64_t layer) const {
    return state_->sequence(sequence).layers[static_cast<size_t>(layer)].index.next();
}

std::vector<HeldToken> Cache::tokens(int64_t sequence, int64_t layer, int64_t head, bool wants_importance) {
    return cache::tokens(*state_, sequence, layer, head, wants_importance);
}

void Cache::set_importance(int64_t sequence, int64_t layer, int64_t head, std::span<const int64_t> positions,
                           std::span<const float> importance) {
    cache::set_importance(*state_, sequence, layer, head, positions, importance);
}

void Cache::set_config(const std::string& config) {
    changing(state_->device, [&] { cache::set_config(*state_, config); });
}

void Cache::set_pressure(double pressure) {
    if (pressure < 0 && !memory_pressure())
        throw Error(WINNOW_ERROR_UNSUPPORTED, "neither /proc/pressure/memory nor /proc/meminfo tells the pressure");
    state_->pressure = pressure;
}

void Cache::anchor(int64_t sequence, std::span<const int64_t> positions) {
    changing(state_->device, [&] { cache::anchor(*state_, sequence, positions); });
}

void Cache::read(const CacheRows& rows) {
    changing(state_->device, [&] { cache::read(*state_, rows); });
}

void Cache::write(const CacheRows& rows) {
    changing(state_->device, [&] { cache::write(*state_, rows); });
}

void Cache::export_rows(const CacheRows& rows) {
    changing(state_->device, [&] { cache::export_rows(*state_, rows); });
}

void Cache::import_rows(const CacheRows& rows) { cache::import_rows(*state_, rows); }

} // namespace winnow::cache
