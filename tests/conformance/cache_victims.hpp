// Holds an eviction pass of one KV head against what backend/cache/plan/policies/README.md says of it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cache_setup.hpp"

namespace winnow::conformance {

// A token that was resident in the head before the eviction pass.
struct Candidate {
    int64_t position = 0;
    bool is_anchor = false;
    double importance = 0;             // as the cache itself told it
    bool frees_slot = true;            // evicting it frees a slot that needed_slots counts
    double value = 1, value_slack = 0; // |v - o|, where the ranking asks for it
};

struct EvictionPass {
    int64_t head = 0, seen = 0, incoming = 0;
    int64_t context = 0;      // no sequence grows longer
    int64_t needed_slots = 0; // the fewest victims that have to free a slot
};

// "" where the victims (positions) are those that the rules require, up to ties within rounding; else what is wrong.
// *shortfall: how many should have been evicted and were protected.
std::string check_victims(const Rules& rules, const EvictionPass& pass, const std::vector<Candidate>& candidates,
                          const std::set<int64_t>& victims, int64_t* shortfall);

// Likewise for the tokens that go down from a packed segment: `count` of the candidates, those that are protected last,
// by the ranking or by age. moved: positions.
std::string check_moved(const Rules& rules, const EvictionPass& pass, const std::vector<Candidate>& candidates,
                        const std::set<int64_t>& moved, int64_t count, bool by_age);

} // namespace winnow::conformance
