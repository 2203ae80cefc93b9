// Registers a test that is a function, once the command line is known.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

namespace winnow::conformance {

// A test whose action is a function.
class FunctionTest : public testing::Test {
public:
    explicit FunctionTest(std::function<void()> action) : action_(std::move(action)) {}
    void TestBody() override { action_(); }

private:
    std::function<void()> action_;
};

inline void register_function(const std::string& suite, const std::string& name, const char* file, int line,
                              const std::function<void()>& action) {
    testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, file, line,
                          [action]() -> testing::Test* { return new FunctionTest(action); });
}

} // namespace winnow::conformance
