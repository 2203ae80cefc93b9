// Registers the tests of the level "formats": packed formats and operations on rows. Of a backend that leaves them out
// each says that they are not offered.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "formats.hpp"
#include "registration.hpp"
#include "session.hpp"

namespace winnow::conformance {

inline void register_format_test(const std::string& suite, const std::string& name, const char* file, int line,
                                 const std::function<void()>& action) {
    register_function("formats/" + suite, name, file, line, [action] {
        if (!subject().offers_formats()) {
            subject().note_not_offered("packed formats and operations on rows");
            GTEST_SKIP() << "NOT OFFERED: the backend has no packed formats";
        }
        const uint64_t calls = subject().calls(), refusals = subject().refusals();
        action();
        if (subject().calls() == calls && subject().refusals() > refusals && !testing::Test::HasFailure() &&
            !testing::Test::IsSkipped())
            GTEST_SKIP() << "NOT OFFERED: no call of the test was carried out";
    });
}

// Calls, and holds the call against what supports says of it, `before` the tensors had memory and now. True: it was
// carried out. Otherwise the test is over.
template <typename Desc>
bool carried_out(const char* operation, const Session::Answer& before, const Desc& desc) {
    const Session::Answer with_memory = subject().supports(desc);
    const int32_t status = subject().run(desc);
    const std::string message = status == WINNOW_OK ? "" : subject().message();
    EXPECT_EQ(before.status, status) << "supports says: " << before.message << "; the call: " << message;
    EXPECT_EQ(with_memory.status, status) << with_memory.message;
    EXPECT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    if (status == WINNOW_ERROR_UNIMPLEMENTED) {
        subject().note_not_offered(operation);
        return false;
    }
    EXPECT_NE(before.message, "") << "neither a variant nor a reason";
    if (status == WINNOW_ERROR_UNSUPPORTED) {
        subject().note_unsupported(operation, before.message);
        return false;
    }
    EXPECT_EQ(status, WINNOW_OK) << message;
    return status == WINNOW_OK;
}

} // namespace winnow::conformance
