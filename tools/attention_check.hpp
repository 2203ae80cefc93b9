// A layer of attention over a small cache, on two backends that have to agree.
#pragma once

#include <string>
#include <vector>

#include "open_backend.hpp"

namespace winnow::tools {

struct AttentionRun {
    std::vector<float> out;            // [1, query heads, tokens, head size] of each step
    std::vector<std::string> warnings; // that the backend logged
};

// A prompt and some tokens after it, the same ones every time, through a packed cache. Throws std::runtime_error with
// the backend's message.
AttentionRun run_attention(const OpenBackend& backend, const std::string& device);

// The largest difference of two outputs; infinite where one has another size, or something that is no number.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b);

// The most that rounding explains, of values and keys from -1 to 1: as the conformance suite has it.
constexpr double most_rounding = 1e-4;

} // namespace winnow::tools
