// The cache: sequences, what each layer of each of them holds, and when it evicts. It decides; the device computes
// (device/slots.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/request.hpp"
#include "device/device.hpp"

namespace winnow::cache {

struct CacheState;

// Every function throws Error, and leaves the cache as it was when it does. What can be told from the request alone has
// been checked: sequences, layers and heads are there, token ids and ranges are of positions of the context, or of
// cells, and pressure is no more than 1. What they mean: the functions of the same names in winnow_cache.h.
class Cache {
public:
    Cache(
        Device& device, const CacheRequest& request, const Log& log = [](int32_t, const std::string&) {});
    ~Cache();
    Cache(const Cache&) = delete;
    Cache& operator=(const Cache&) = delete;

    // Of one layer, each of another sequence. marks_event: the caller asks for an event of what the step enqueues.
    void step(std::span<const CacheStep> steps, bool marks_event = false);

    void reserve(int64_t sequence, int64_t tokens);
    void truncate(int64_t sequence, int64_t length);
    void remove(int64_t sequence, int64_t begin, int64_t end);
    void copy(int64_t from, int64_t to);
    void shift(int64_t sequence, int64_t begin, int64_t end, int64_t delta);
    void reset();

    void save(const CacheSaving& into);
    void load(const CacheLoading& from);
    uint64_t saved_size(int64_t sequence); // -1: of all

    void stats(winnow_cache_stats& out); // all fields but struct_size
    void sequence_stats(int64_t sequence, winnow_cache_stats& out);
    int64_t next_position(int64_t sequence, int64_t layer) const;
    // Refused where the importance is wanted and the policy keeps none; else it is 0 there.
    std::vector<HeldToken> tokens(int64_t sequence, int64_t layer, int64_t head, bool wants_importance);
    void set_importance(int64_t sequence, int64_t layer, int64_t head, std::span<const int64_t> positions,
                        std::span<const float> importance); // one for each position

    void set_config(const std::string& config);
    void set_pressure(double pressure);
    void anchor(int64_t sequence, std::span<const int64_t> positions);

    void read(const CacheRows& rows);
    void write(const CacheRows& rows);
    void export_rows(const CacheRows& rows);
    void import_rows(const CacheRows& rows);

private:
    std::unique_ptr<CacheState> state_;
};

} // namespace winnow::cache
