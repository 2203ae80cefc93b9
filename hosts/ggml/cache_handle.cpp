// Making the cache, and small questions to it.
#include "cache_handle.hpp"

#include <stdexcept>

#include "ggml_api.hpp"
#include "number_variables.hpp"

namespace winnow::ggml {

CacheHandle::~CacheHandle() { caches().destroy(cache_); }

void CacheHandle::expect(int32_t status) const {
    if (status == WINNOW_OK) return;
    const std::string reason = std::string(shape_.name()) + ": " + context_.message();
    if (status == WINNOW_ERROR_DEVICE) throw IncompleteError(reason);
    throw std::runtime_error(reason);
}

void CacheHandle::check_rules(const std::vector<KvRule>& rules, const std::string& computed_mask) const {
    winnow_cache_desc desc = shape_.desc();
    desc.config = config_for(rules, desc).c_str();
    if (computed_mask.empty()) return;
    const CacheMeaning meaning = meaning_of(context_.api(), caches(), context_.get(), desc);
    if (!meaning.evicts && meaning.budget_tokens >= desc.context) return;
    throw std::runtime_error("the mask is computed (" + computed_mask + ") and picks tokens for each query, which " +
                             meaning.config +
                             " may not hold; expected a configuration that holds all tokens, as winnow");
}

void CacheHandle::make(const std::vector<KvRule>& rules) {
    winnow_cache_desc desc = shape_.desc();
    pressure_ = kv_pressure();
    config_ = config_for(rules, desc);
    desc.config = config_.c_str();
    try {
        meaning_ = meaning_of(context_.api(), caches(), context_.get(), desc);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(std::string(shape_.name()) + ": " + error.what());
    }
    const Resources resources(meaning_, shape_.layer_names(), shape_.kv_heads());
    resources.hand_to(desc);
    expect(caches().create(context_.get(), &desc, &cache_));
    try {
        tell_pressure();
    } catch (...) { // as where the system tells none
        destroy();
        throw;
    }
}

void CacheHandle::destroy() {
    caches().destroy(cache_);
    cache_ = nullptr;
}

void CacheHandle::reset() {
    expect(caches().reset(cache_));
    tell_pressure();
}

void CacheHandle::tell_pressure() {
    if (pressure_ != 0) expect(caches().set_pressure(cache_, pressure_));
}

winnow_cache_tokens CacheHandle::counts_of(int64_t stream, int64_t layer, int64_t head) const {
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    expect(caches().tokens(cache_, stream, layer, head, &look));
    return look;
}

winnow_cache_stats CacheHandle::stats_of(int64_t stream) const {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    expect(caches().stats(cache_, stream, &stats));
    return stats;
}

std::vector<int32_t> CacheHandle::cells_of(int64_t stream, int64_t layer, int64_t head) const {
    std::vector<int64_t> cells(counts_of(stream, layer, head).count);
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    look.capacity = cells.size();
    look.positions = cells.data();
    expect(caches().tokens(cache_, stream, layer, head, &look));
    return {cells.begin(), cells.end()};
}

void CacheHandle::apply(const CellTracker::Opening& opening, int64_t stream) {
    for (const CellRange& range : opening.dead) expect(caches().remove(cache_, stream, range.begin, range.end));
    if (opening.anchors.empty()) return;
    const int32_t status = caches().anchor(cache_, stream, opening.anchors.data(), opening.anchors.size());
    if (status != WINNOW_ERROR_INVALID_ARGUMENT) return expect(status);
    log_line(GGML_LOG_LEVEL_WARN, "%s: the first tokens of a sequence may be evicted: %s", shape_.name(),
             context_.message());
}

} // namespace winnow::ggml
