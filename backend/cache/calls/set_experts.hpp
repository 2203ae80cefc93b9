// Which experts a router chose for tokens: what `moe` ranks by.
#pragma once

#include <span>
#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

int64_t number_of_experts(const Config& config); // of a layer; 0: the policy counts none

// As many experts for each token id, one after another. Counts them, and gives the tokens their importance in all KV
// heads. Throws Error, and changes nothing, where the policy is another or an expert does not exist.
void set_experts(CacheState& cache, int64_t sequence, int64_t layer, std::span<const int32_t> token_ids,
                 std::span<const int32_t> experts);

// How often each expert of a layer was chosen, in all sequences.
std::vector<uint64_t> expert_counts(const CacheState& cache, int64_t layer);

} // namespace winnow::cache
