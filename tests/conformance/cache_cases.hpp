// The caches that tests of the level "cache" make. Kernels are specialised by shape and format, which these few share.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cache_setup.hpp"

namespace winnow::conformance {

struct NamedSetup {
    std::string name;
    CacheSetup setup;
};

// Formats and sizes: a number from 0 to cache_shapes - 1.
inline constexpr int cache_shapes = 6;
CacheSetup with_shape(CacheSetup setup, int shape);
std::string shape_name(int shape);
// The setup with three layers, each of another shape.
CacheSetup with_unlike_layers(CacheSetup setup);

// Recall inside so many bytes.
CacheSetup recall_setup(int shape, const char* budget);
CacheSetup recall_setup_of_newest(int shape, const char* budget); // that keeps 120 tokens
// Of rows so large that a prompt attends to its cold segment in several stretches, and comes in several pieces.
CacheSetup recall_setup_of_large_rows();

// Every policy, with options that lead everywhere in its description.
std::vector<NamedSetup> policy_setups();
// These, and some with unlike layers.
std::vector<NamedSetup> all_setups();

// Any policy, shape, residual window and budget.
CacheSetup draw_setup(std::mt19937_64& engine);

// Another policy, budget or cadence that a cache of this setup can take on, with room for two anchors; none where few
// tries find none.
std::optional<CacheSetup> draw_change(const CacheSetup& setup, std::mt19937_64& engine);

// A budget of hardly more than what is protected, a short context, a small residual window or none; with cells or
// without.
CacheSetup draw_tight_setup(std::mt19937_64& engine);
// The same in several packed segments of any share and format, or under `mixed`; none where it is too small for that.
std::optional<CacheSetup> draw_segments(CacheSetup setup, std::mt19937_64& engine);
// Any elastic zeroing; it may be refused for that setup.
void draw_zeroing(CacheSetup& setup, std::mt19937_64& engine);
// Another budget, cadence or policy of that kind. Anchors and tokens where they are may forbid it.
std::optional<CacheSetup> draw_tight_change(const CacheSetup& setup, std::mt19937_64& engine);

} // namespace winnow::conformance
