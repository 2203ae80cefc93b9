// Registers the tests of the level "cache". Of a backend that leaves the cache out each says that it is not offered.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "registration.hpp"
#include "session.hpp"

namespace winnow::conformance {

// Whether a test is in the share that was asked for: by its name (FNV-1a), so that no regular list of cases falls into
// one share as a whole.
inline bool is_in_share(const std::string& name) {
    uint32_t hash = 2166136261u;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return (hash >> 16) % options().shares == options().share;
}

inline void register_cache_test(const std::string& suite, const std::string& name, const char* file, int line,
                                const std::function<void()>& action) {
    const bool is_left_out = !is_in_share(suite + "." + name);
    register_function("cache/" + suite, name, file, line, [action, is_left_out] {
        if (is_left_out) GTEST_SKIP() << "another share has it";
        if (!subject().offers_cache()) {
            subject().note_not_offered("the table " WINNOW_CACHE_TABLE);
            GTEST_SKIP() << "NOT OFFERED: the backend has no cache";
        }
        action();
    });
}

} // namespace winnow::conformance
