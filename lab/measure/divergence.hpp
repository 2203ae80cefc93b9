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

// What the runs of many configurations are compared with.
struct Base {
    std::vector<float> logits;    // [tokens][vocabulary]
    std::vector<double> log_sums; // ln of the sum of exp over the vocabulary, of each token
};

// Adds the scores of `count` tokens to `scores`. logits: [count][vocabulary], next: [count]. base: where the same
// tokens are from number `first` on; NULL for the base itself. Sums are in double, in an order that does not depend on
// `threads`.
void add_scores(const float* logits, const Base* base, size_t first, const int32_t* next, size_t count,
                size_t vocabulary, unsigned threads, Scores& scores);

// Adds `count` tokens to a base: logits, as above, and their sums.
void add_to_base(const float* logits, size_t count, size_t vocabulary, unsigned threads, Base& base);

} // namespace winnow::measure
