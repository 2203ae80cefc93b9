// The levels: groups of suites that follow the tables of the C API. Every suite is in one of them.
#pragma once

#include <string>
#include <vector>

namespace winnow::conformance {

struct Level {
    const char* name;
    std::vector<std::string> suites; // beginnings of their names
};

const std::vector<Level>& levels();
std::string names_of_levels(); // "core, formats, ..."

// nullptr where there is none.
const Level* find_level(const std::string& name);
const Level* level_of(const std::string& suite);

// A pattern of GoogleTest's for those tests of `pattern` that are in the chosen levels; none chosen: in any.
std::string within_levels(const std::string& pattern, const std::vector<const Level*>& chosen);

// How many tests of a level there are, and what became of those that ran.
struct Tally {
    int all = 0, selected = 0, passed = 0, skipped = 0, failed = 0;
};
Tally tally_of(const Level& level);

} // namespace winnow::conformance
