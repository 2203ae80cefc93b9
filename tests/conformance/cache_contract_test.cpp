// What winnow_cache.h says of caches in half a sentence: what an estimate leaves out, what the context bounds in cell
// mode, how many columns scores_out has after a shift, when a sequence is as new, which token an anchor means; and that
// an appended token is stored, wherever shifts brought the sinks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "saved_state.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

CacheSetup window_of(int64_t budget, int64_t cadence) {
    CacheSetup setup{.layers = 1, .context = 160, .budget = budget, .residual = 0, .cadence = cadence};
    return setup;
}

class Judged {
public:
    explicit Judged(const CacheSetup& setup) : setup_(setup), host(subject(), setup), oracle(host) {}

    // Tokens by chunks, each judged.
    std::string append(int64_t tokens) {
        for (std::string wrong; tokens > 0; tokens -= setup_.chunk()) {
            const int64_t chunk = std::min(tokens, setup_.chunk());
            Step step = draw_step(setup_, engine_, 0, 0, chunk, chunk);
            if (wrong = oracle.step(step); !wrong.empty()) return wrong;
        }
        return oracle.look();
    }
    bool holds(int64_t position) const {
        const std::vector<int64_t> resident = host.positions(0, 0, 0);
        return std::find(resident.begin(), resident.end(), static_cast<int32_t>(position)) != resident.end();
    }

private:
    CacheSetup setup_;
    std::mt19937_64 engine_{options().seed};

public:
    CacheHost host;
    CacheOracle oracle;
};

void run_sinks_up_and_down() {
    Judged cache(window_of(12, 4));
    ASSERT_EQ(cache.append(12), "");
    ASSERT_EQ(cache.oracle.shift(0, 0, -1, 4), "");
    ASSERT_EQ(cache.append(4), "");
    ASSERT_EQ(cache.oracle.shift(0, 4, -1, -4), "");
    for (int64_t token = 0; token < 40; ++token) ASSERT_EQ(cache.append(1), "") << "token " << token;
}

void run_sinks_beside_their_slots() {
    Judged cache(window_of(8, 4));
    ASSERT_EQ(cache.append(4), "");
    ASSERT_EQ(cache.oracle.remove(0, 0, 2), "");
    ASSERT_EQ(cache.oracle.shift(0, 2, -1, -2), "");
    for (int64_t token = 0; token < 40; ++token) ASSERT_EQ(cache.append(1), "") << "token " << token;
    for (int64_t sink = 0; sink < 4; ++sink) EXPECT_TRUE(cache.holds(sink)) << "sink " << sink;
}

void run_anchor_before_the_shift() {
    Judged cache(window_of(24, 4));
    ASSERT_EQ(cache.append(20), "");
    ASSERT_EQ(cache.oracle.remove(0, 12, 16), "");
    ASSERT_EQ(cache.oracle.anchor(0, {13, 60}), "");
    ASSERT_EQ(cache.oracle.shift(0, 16, -1, -4), "");
    ASSERT_EQ(cache.append(80), "");
    EXPECT_TRUE(cache.holds(13)) << "a token was shifted to the anchor";
    EXPECT_TRUE(cache.holds(56)) << "a token was appended to the anchor, which the shift moved";
    EXPECT_FALSE(cache.holds(12) || cache.holds(14) || cache.holds(60));
}

void run_anchor_beyond_the_context() {
    const CacheSetup setup = window_of(24, 4);
    Judged cache(setup);
    ASSERT_EQ(cache.append(20), "");
    ASSERT_EQ(cache.oracle.anchor(0, {setup.context - 3}), "");
    EXPECT_EQ(cache.host.caches().shift(cache.host.get(), 0, 0, -1, 3), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(cache.host.message().find("anchors would meet, or come before 0 or beyond the context"),
              std::string::npos)
        << cache.host.message();
    ASSERT_EQ(cache.oracle.shift(0, 0, -1, 2), "");
    const TemporaryFolder folder;
    const std::string file = folder.file("cache");
    ASSERT_EQ(save_state(cache.host.caches(), cache.host.get(), file), WINNOW_OK) << cache.host.message();
    EXPECT_EQ(load_state(cache.host.caches(), cache.host.get(), file), WINNOW_OK) << cache.host.message();
}

void run_columns_after_a_shift() {
    CacheSetup setup = window_of(24, 4);
    CacheHost cache(subject(), setup);
    std::mt19937_64 engine(options().seed);
    StepOptions with_scores;
    with_scores.scores = true;
    const auto step = [&](int64_t columns) {
        Step one = draw_step(setup, engine, 0, 0, 1, 1, with_scores, columns);
        return cache.run(one);
    };
    for (int64_t token = 0; token < 10; ++token) ASSERT_EQ(step(token + 1), WINNOW_OK) << cache.message();
    ASSERT_EQ(cache.caches().shift(cache.get(), 0, 6, -1, 20), WINNOW_OK) << cache.message();
    EXPECT_EQ(step(30), WINNOW_ERROR_INVALID_ARGUMENT) << "the token has position 30";
    EXPECT_NE(cache.message().find("scores_out has 30 columns, expected at least 31"), std::string::npos)
        << cache.message();
    EXPECT_EQ(step(31), WINNOW_OK) << cache.message();
    ASSERT_EQ(cache.caches().shift(cache.get(), 0, 26, -1, -20), WINNOW_OK) << cache.message();
    EXPECT_EQ(step(12), WINNOW_OK) << cache.message();
    EXPECT_EQ(step(12), WINNOW_ERROR_INVALID_ARGUMENT) << "the token has position 12";
}

// 30 tokens, of which a head holds 12 at most: those that were evicted are tokens of the sequence.
void run_no_token_is_left() {
    Judged cache(window_of(12, 4));
    ASSERT_EQ(cache.append(30), "");
    const std::vector<int64_t> resident = cache.host.positions(0, 0, 0);
    ASSERT_LT(resident.size(), 30u);
    for (const int32_t position : resident) ASSERT_EQ(cache.oracle.remove(0, position, position + 1), "");
    EXPECT_EQ(cache.host.stats().resident_slots, 0u);
    EXPECT_GT(cache.host.stats().bytes, 0u) << "tokens that were evicted are there until they are removed";
    ASSERT_EQ(cache.append(1), "");
    EXPECT_TRUE(cache.holds(30)) << "the sequence goes on";
    ASSERT_EQ(cache.oracle.remove(0, 0, 31), "");
    EXPECT_EQ(cache.host.stats().bytes, 0u);
    ASSERT_EQ(cache.append(1), "");
    EXPECT_TRUE(cache.holds(0)) << "the sequence is as new";
}

void run_cells_beyond_the_context() {
    CacheSetup setup = window_of(24, 4);
    setup.context = 40;
    setup.cells = 32;
    CacheHost cache(subject(), setup);
    std::mt19937_64 engine(options().seed);
    for (int64_t token = 0; token < 3 * setup.context; ++token) {
        Step step = draw_step(setup, engine, 0, 0, 1, 0);
        step.cells = TestTensor(WINNOW_TYPE_I32, {1, 1, 1, 1});
        step.cells.set({0, 0, 0, 0}, static_cast<double>(token % setup.cells));
        ASSERT_EQ(cache.run(step), WINNOW_OK) << "token " << token << ": " << cache.message();
    }
    EXPECT_EQ(cache.stats().tokens, static_cast<uint64_t>(setup.cells));
}

winnow_cache_stats estimate_of(const CacheSetup& setup, const std::string& config, int32_t status, std::string& text) {
    const SetupDesc desc(setup, config);
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(subject().caches().estimate(subject().context(), desc.get(), 40, &stats), status) << subject().message();
    text = status == WINNOW_OK ? "" : subject().message();
    return stats;
}

void run_estimate_counts_nothing() {
    std::string text;
    const CacheSetup setup = window_of(24, 4);
    const winnow_cache_stats stats = estimate_of(setup, setup.config(), WINNOW_OK, text);
    EXPECT_EQ(stats.tokens, 40u);
    EXPECT_EQ(stats.resident_slots + stats.evictions + stats.shortfall + stats.eviction_passes + stats.steps, 0u);
}

// Positions may have come and gone without a token ever being stored: who asks then sees nobody, and gets zeros.
void run_nobody_to_see() {
    for (const bool scores : {false, true}) {
        CacheSetup setup = window_of(12, 4);
        setup.sink = 0;
        Judged cache(setup);
        ASSERT_EQ(cache.oracle.shift(0, 0, -1, 5), "");
        std::mt19937_64 engine(1);
        Step step = draw_step(setup, engine, 0, 0, 0, 3);
        if (scores) step.scores = TestTensor(WINNOW_TYPE_F32, {1, setup.q_heads(), 3, 5});
        ASSERT_EQ(cache.host.run(step), WINNOW_OK) << cache.host.message();
        step.out.each([&](const Index& at) { ASSERT_EQ(step.out.get(at), 0); });
        if (scores) step.scores.each([&](const Index& at) { ASSERT_EQ(step.scores.get(at), -INFINITY); });
    }
}

// The budget that the refusal names is the least that has a residual window.
void run_center_without_a_residual() {
    CacheSetup setup{.layers = 1};
    std::string text;
    estimate_of(setup, "window:center=on,residual=0,budget=100", WINNOW_ERROR_INVALID_ARGUMENT, text);
    EXPECT_NE(text.find("residual=0 says that there is none"), std::string::npos) << text;
    estimate_of(setup, "window:center=on,budget=16", WINNOW_ERROR_INVALID_ARGUMENT, text);
    const size_t at = text.find("there are 32 from ");
    ASSERT_NE(at, std::string::npos) << text;
    const int64_t least = std::stoll(text.substr(at + 18));
    const auto with = [](int64_t budget) { return "window:center=on,budget=" + std::to_string(budget); };
    estimate_of(setup, with(least), WINNOW_OK, text);
    estimate_of(setup, with(least - 1), WINNOW_ERROR_INVALID_ARGUMENT, text);
}

} // namespace

void register_cache_contract() {
    const struct {
        const char* name;
        void (*action)();
    } tests[] = {{"sinks_shifted_up_and_down", run_sinks_up_and_down},
                 {"sinks_beside_their_slots", run_sinks_beside_their_slots},
                 {"anchor_before_the_shift", run_anchor_before_the_shift},
                 {"anchor_beyond_the_context", run_anchor_beyond_the_context},
                 {"columns_after_a_shift", run_columns_after_a_shift},
                 {"no_token_is_left", run_no_token_is_left},
                 {"cells_beyond_the_context", run_cells_beyond_the_context},
                 {"estimate_counts_nothing", run_estimate_counts_nothing},
                 {"nobody_to_see", run_nobody_to_see},
                 {"center_without_a_residual", run_center_without_a_residual}};
    for (const auto& [name, action] : tests)
        register_cache_test("contract", name, __FILE__, __LINE__, [action = action] { action(); });
}

} // namespace winnow::conformance
