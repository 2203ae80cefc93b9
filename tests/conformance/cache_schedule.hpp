// Random schedules: the calls that a host makes of a cache, drawn from a seed, each judged by the oracle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache_setup.hpp"

namespace winnow::conformance {

struct Schedule {
    CacheSetup setup;
    uint64_t seed = 1;
    int operations = 40;
    bool edits = true;        // truncate, remove, copy, shift, reserve, anchors
    bool changes = true;      // set_config, set_pressure
    bool is_decode = false;   // one token at a time after a first prompt
    bool is_tight = false;    // every call at any place, as for a cache with hardly any room
    bool tells_picks = false; // each step asks for scores, which tell what a query of recall picked
};

struct ScheduleResult {
    std::string wrong;  // "" or what is wrong, with the seed and the last calls
    std::string digest; // of all outputs and of what was left: the same for the same schedule
    uint64_t evictions = 0, passes = 0, refusals = 0;
};

ScheduleResult run_schedule(const Schedule& schedule);
// Expects it to be right with the cold tier in memory and in a file, and every output to have the same bits.
void run_in_both_tiers(Schedule schedule);

} // namespace winnow::conformance
