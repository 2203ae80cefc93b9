// The scores of winnow-measure against their definitions, in long double and token by token.
#include "divergence.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace winnow::measure {
namespace {

constexpr size_t words = 300, tokens = 17;

std::vector<float> logits(unsigned seed, float reach) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, reach);
    std::vector<float> all(words * tokens);
    std::generate(all.begin(), all.end(), [&] { return normal(engine); });
    return all;
}

std::vector<int32_t> next_tokens() {
    std::mt19937 engine(7);
    std::vector<int32_t> all(tokens);
    std::generate(all.begin(), all.end(), [&] { return static_cast<int32_t>(engine() % words); });
    return all;
}

long double probability(const std::vector<float>& all, size_t token, size_t word) {
    long double sum = 0;
    for (size_t other = 0; other < words; ++other)
        sum += std::exp(static_cast<long double>(all[token * words + other]) - all[token * words + word]);
    return 1 / sum;
}

Scores scores_of(const std::vector<float>& run, const std::vector<float>* base, unsigned threads = 1) {
    Scores scores;
    const std::vector<int32_t> next = next_tokens();
    // The base comes in two parts, and so does what is compared with it.
    constexpr std::array<std::pair<size_t, size_t>, 2> parts{{{0, 5}, {5, tokens - 5}}};
    Base kept;
    for (const auto& [first, count] : parts)
        if (base) add_to_base(base->data() + first * words, count, words, threads, kept);
    for (const auto& [first, count] : parts) {
        add_scores(run.data() + first * words, base ? &kept : nullptr, first, next.data() + first, count, words,
                   threads, scores);
    }
    return scores;
}

TEST(measure_divergence, is_what_its_definition_says) {
    const std::vector<float> base = logits(1, 3), run = logits(2, 4);
    const std::vector<int32_t> next = next_tokens();
    const Scores scores = scores_of(run, &base);
    ASSERT_EQ(scores.nll.size(), tokens);
    ASSERT_EQ(scores.divergence.size(), tokens);
    for (size_t token = 0; token < tokens; ++token) {
        long double expected = 0;
        for (size_t word = 0; word < words; ++word) {
            const long double p = probability(base, token, word);
            expected += p * std::log(p / probability(run, token, word));
        }
        EXPECT_NEAR(scores.divergence[token], static_cast<double>(expected), 1e-12);
        const auto came = static_cast<size_t>(next[token]);
        EXPECT_NEAR(scores.nll[token], static_cast<double>(-std::log(probability(run, token, came))), 1e-12);
    }
}

TEST(measure_divergence, of_a_run_from_itself_is_nothing_and_of_the_base_is_not_told) {
    const std::vector<float> base = logits(3, 3);
    const Scores scores = scores_of(base, &base);
    for (size_t token = 0; token < tokens; ++token) {
        EXPECT_EQ(scores.divergence[token], 0);
        EXPECT_TRUE(scores.same_top[token]);
    }
    const Scores own = scores_of(base, nullptr);
    EXPECT_EQ(own.nll, scores.nll);
    EXPECT_TRUE(own.divergence.empty() && own.same_top.empty());
}

TEST(measure_divergence, tells_the_top_tokens_apart) {
    const std::vector<float> base = logits(4, 3);
    std::vector<float> run = base;
    *std::max_element(run.begin() + 2 * words, run.begin() + 3 * words) -= 20;
    const Scores scores = scores_of(run, &base);
    for (size_t token = 0; token < tokens; ++token) EXPECT_EQ(scores.same_top[token], token != 2);
}

TEST(measure_divergence, words_that_are_ruled_out_add_nothing) {
    std::vector<float> base = logits(5, 3), run = base;
    constexpr float never = -std::numeric_limits<float>::infinity();
    for (size_t token = 0; token < tokens; ++token) base[token * words] = never;
    for (const double divergence : scores_of(run, &base).divergence) EXPECT_TRUE(std::isfinite(divergence));
    run[words] = never;
    EXPECT_EQ(scores_of(run, &run).divergence[1], 0);
}

// As many words as no vector divides, the largest and the lost one in each place of a vector.
TEST(measure_divergence, a_logit_that_is_no_number_is_seen) {
    const std::vector<float> base = logits(8, 3);
    for (size_t word = 0; word < 40; ++word) {
        std::vector<float> run = base;
        run[word] = std::numeric_limits<float>::quiet_NaN();
        run[words + words - 1 - word] = 100;
        const Scores scores = scores_of(run, &base);
        EXPECT_TRUE(std::isnan(scores.divergence[0]) && std::isnan(scores.nll[0])) << word;
        EXPECT_TRUE(std::isnan(scores_of(base, &run).divergence[0])) << word;
        EXPECT_GT(scores.divergence[1], 50) << word;
    }
}

TEST(measure_divergence, does_not_depend_on_threads) {
    const std::vector<float> base = logits(6, 3), run = logits(7, 3);
    const Scores one = scores_of(run, &base);
    for (const unsigned threads : {2U, 3U, 40U}) {
        const Scores many = scores_of(run, &base, threads);
        EXPECT_EQ(many.nll, one.nll);
        EXPECT_EQ(many.divergence, one.divergence);
        EXPECT_EQ(many.same_top, one.same_top);
    }
}

} // namespace
} // namespace winnow::measure
