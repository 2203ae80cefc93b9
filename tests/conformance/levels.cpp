// The one list of levels.
#include "levels.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace winnow::conformance {

const std::vector<Level>& levels() {
    static const std::vector<Level> instance = {
        {"core", {"abi", "buffers", "context_message", "kv_append", "sdpa", "supports", "sync"}},
        {"formats", {"formats/"}},
        {"cache", {"cache/"}},
        {"opencl", {"opencl"}},
    };
    return instance;
}

std::string names_of_levels() {
    std::string names;
    for (const Level& level : levels()) names += (names.empty() ? "" : ", ") + std::string(level.name);
    return names;
}

const Level* find_level(const std::string& name) {
    for (const Level& level : levels())
        if (level.name == name) return &level;
    return nullptr;
}

const Level* level_of(const std::string& suite) {
    for (const Level& level : levels())
        for (const std::string& beginning : level.suites)
            if (suite.starts_with(beginning)) return &level;
    return nullptr;
}

std::string within_levels(const std::string& pattern, const std::vector<const Level*>& chosen) {
    if (chosen.empty()) return pattern;
    std::string within = pattern;
    for (const Level& level : levels()) {
        if (std::find(chosen.begin(), chosen.end(), &level) != chosen.end()) continue;
        for (const std::string& beginning : level.suites)
            within += (within.find('-') == std::string::npos ? "-" : ":") + beginning + "*";
    }
    return within;
}

Tally tally_of(const Level& level) {
    Tally tally;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int at = 0; at < all.total_test_suite_count(); ++at) {
        const testing::TestSuite& suite = *all.GetTestSuite(at);
        if (level_of(suite.name()) != &level) continue;
        tally.all += suite.total_test_count();
        tally.selected += suite.test_to_run_count();
        tally.passed += suite.successful_test_count();
        tally.skipped += suite.skipped_test_count();
        tally.failed += suite.failed_test_count();
    }
    return tally;
}

} // namespace winnow::conformance
