// Which token came to each cell of a stream, so that two caches of one model can tell that they have the same token: a
// cache of sliding windows knows less of what llama.cpp has removed than the cache of the other layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cell_tracker.hpp"

namespace winnow::ggml {

// Of a cache with one stream; of others nothing is noted.
class Arrivals {
public:
    Arrivals(int64_t cells, int64_t streams) : tokens_(streams == 1 ? static_cast<size_t>(cells) : 0) {}

    // From now on both get the same batches and states, each in its own cells.
    void join(const Arrivals& other) { counts_ = other.counts_; }
    void forget_all();

    // A batch comes to these cells, in its order.
    void take_batch(std::span<const int32_t> cells);
    // A state begins to be written; the number by which its tokens are told. Of the caches of a model llama.cpp writes
    // `is_first` first. 0: the state is written to this cache alone.
    uint64_t begin_state(bool is_first);
    void take_state(std::span<const int32_t> cells, uint64_t state);
    // What comes next to a cache of windows alone belongs to no state of the first cache's.
    void end_state() { counts_->open_state = 0; }
    void forget(const CellRange& range);

    // The cells whose tokens another cache had, too, and has no more. states: numbers of those that it has set aside.
    std::vector<int64_t> gone_from(const Arrivals& other, std::span<const uint64_t> states) const;

private:
    bool has_had(uint64_t state, const Arrivals& other) const;

    struct Counts {
        uint64_t batches = 0, states = 0;
        uint64_t open_state = 0; // that was written to the first of them
    };
    std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
    uint64_t newest_ = 0;               // batch that this cache has
    uint64_t newest_state_ = 0;         // that it has together with the others
    std::vector<uint64_t> tokens_;      // of each cell; 0: none, or none that another cache knows
    std::map<uint64_t, size_t> states_; // tokens of each of the newest that were not refused
};

} // namespace winnow::ggml
