// Registers the tests of the level "cache". Of a backend that leaves the cache out each says that it is not offered.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "registration.hpp"
#include "session.hpp"

namespace winnow::conformance {

inline void register_cache_test(const std::string& suite, const std::string& name, const char* file, int line,
                                const std::function<void()>& action) {
    register_function("cache/" + suite, name, file, line, [action] {
        if (!subject().offers_cache()) {
            subject().note_not_offered("the cache");
            GTEST_SKIP() << "NOT OFFERED: the backend has no cache";
        }
        action();
    });
}

} // namespace winnow::conformance
