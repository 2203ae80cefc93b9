// Registers the attention cases of a range of query lengths: the hostile table, and cases drawn at random.
#pragma once

#include <gtest/gtest.h>

#include "registration.hpp"
#include "sdpa_problem.hpp"

namespace winnow::conformance {

inline void run_sdpa_case(const SdpaCase& shape, uint64_t seed) {
    SCOPED_TRACE(describe(shape));
    std::string refusal;
    const std::string wrong = judge_sdpa(shape, seed, &refusal);
    if (!wrong.empty()) FAIL() << wrong;
    if (!refusal.empty()) GTEST_SKIP() << "UNSUPPORTED: " << refusal;
}

inline void register_sdpa_cases(const std::string& suite, const char* file, int line, int64_t fewest_queries,
                                int64_t most_queries) {
    auto is_ours = [=](const SdpaCase& shape) { return shape.q_len >= fewest_queries && shape.q_len <= most_queries; };
    uint64_t at = 0;
    for (const SdpaCase& shape : sdpa_cases()) {
        const uint64_t seed = options().seed + ++at;
        if (is_ours(shape))
            register_function(suite + "_table", shape.name, file, line, [=] { run_sdpa_case(shape, seed); });
    }
    for (int index = 0; index < options().cases; ++index) {
        const SdpaCase shape = random_sdpa_case(options().seed, index, options().pairs == Pairs::all);
        const uint64_t seed = options().seed * 7919 + static_cast<uint64_t>(index);
        if (is_ours(shape))
            register_function(suite + "_random", shape.name, file, line, [=] { run_sdpa_case(shape, seed); });
    }
}

} // namespace winnow::conformance
