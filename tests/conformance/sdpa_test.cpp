// Attention against the reference: the hostile table, and cases drawn at random.
#include <gtest/gtest.h>

#include "registered_cases.hpp"
#include "sdpa_problem.hpp"

namespace winnow::conformance {
namespace {

void run_case(const SdpaCase& shape, uint64_t seed) {
    SCOPED_TRACE(describe(shape));
    std::string refusal;
    const std::string wrong = judge_sdpa(shape, seed, &refusal);
    if (!wrong.empty()) FAIL() << wrong;
    if (!refusal.empty()) GTEST_SKIP() << "UNSUPPORTED: " << refusal;
}

} // namespace

void register_sdpa_cases() {
    uint64_t at = 0;
    for (const SdpaCase& shape : sdpa_cases()) {
        const uint64_t seed = options().seed + ++at;
        register_function("sdpa_table", shape.name, __FILE__, __LINE__, [=] { run_case(shape, seed); });
    }
    for (int index = 0; index < options().cases; ++index) {
        const SdpaCase shape = random_sdpa_case(options().seed, index);
        const uint64_t seed = options().seed * 7919 + uint64_t(index);
        register_function("sdpa_random", shape.name, __FILE__, __LINE__, [=] { run_case(shape, seed); });
    }
}

void register_cases() {
    register_sdpa_cases();
    register_kv_append_cases();
}

} // namespace winnow::conformance
