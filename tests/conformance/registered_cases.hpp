// Tests that come from case tables and from the seed: registered once the command line is known.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

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

void register_abi_checks();
void register_sdpa_vector_cases();
void register_sdpa_prefill_cases();
void register_kv_append_cases();
void register_format_attention();
void register_format_appends();
void register_format_rows();
void register_format_bad_input();
void register_cache_schedules();
void register_cache_steps();
void register_cache_cells();
void register_cache_files();
void register_cache_contract();
void register_cache_rows();
void register_cache_exact_rows();
void register_cache_stats();
void register_cache_describe();
void register_cache_bad_input();

} // namespace winnow::conformance
