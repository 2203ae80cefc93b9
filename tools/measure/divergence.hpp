// How far the probabilities of one run are from those of another, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::measure {

// For each scored token: what the run made of the token that came next, and how it differs from the base.
struct Scores {
    std::vector<double> nll;        // -ln of the probability of the token that came, in nats
    std::vector<double> divergence; // KL(base || run) over the vocabulary, in nats; empty for the base itself
    std::vector<bool> same_top;     // whether the most likely token is the base's; empty for the base itself
};

// Adds the scores of `count` tokens to `scores`. logits: [count][vocabulary], next: [count]. base: the same tokens'
// logits of the base, NULL for the base itself. Sums are in double, in an order that does not depend on `threads`.
void add_scores(const float* logits, const float* base, const int32_t* next, size_t count, size_t vocabulary,
                unsigned threads, Scores& scores);

} // namespace winnow::measure
