// Registers the tests of the level "Cache": the cache of version 0.3. Of a backend of an earlier version, or of one
// that leaves the cache out, each says that it is not offered.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "registered_cases.hpp"
#include "session.hpp"

namespace winnow::conformance {

inline void register_cache_test(const std::string& suite, const std::string& name, const char* file, int line,
                                const std::function<void()>& action) {
    register_function("Cache/" + suite, name, file, line, [action] {
        if (!subject().offers_cache()) {
            subject().note_not_offered("the cache, since version 0.3");
            GTEST_SKIP() << "NOT OFFERED: the backend is of an earlier version than 0.3, or has no cache";
        }
        action();
    });
}

} // namespace winnow::conformance
