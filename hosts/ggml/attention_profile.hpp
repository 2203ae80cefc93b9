// What attention looks like in each layer: how spread out its probabilities are, how much the largest of them hold,
// and how much a token's share moves. Taken from the scores of a cache's steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "winnow.h"

namespace winnow::ggml {

// The profile of a layer, [query head]: means over its queries; of the variance, the mean over tokens.
struct LayerProfile {
    std::string name;
    uint64_t queries = 0;
    std::vector<double> entropy;       // of a query's probabilities, in nats
    std::vector<double> concentration; // what the largest tenth of what a query sees hold together
    std::vector<double> variance;      // of the probability that a token gets from query to query
};

class AttentionProfile {
public:
    // A query that sees fewer tokens is not counted: its probabilities cannot be spread out.
    static constexpr int64_t fewest_seen = 32;

    AttentionProfile(int64_t layers, int64_t q_heads, int64_t columns);

    // Where a step of so many tokens is to put its scores, until the next call.
    const winnow_tensor* scores(int64_t tokens);
    // These scores, once they are there.
    void add(int64_t layer, int64_t stream);
    // The sequences end; what a column holds from now on is another token.
    void end_sequences();

    std::vector<LayerProfile> layers(const std::vector<std::string>& names) const;

private:
    struct Head {
        double entropy = 0, concentration = 0; // sums over queries
        double variance = 0;                   // sum over tokens
        uint64_t queries = 0, tokens = 0;
    };
    // What one column received: how many queries saw it, the sums of their probabilities and of the squares.
    struct Received {
        double count = 0, sum = 0, squares = 0;
    };

    void add_row(Head& head, const float* logits, Received* received);
    static void end(Head& head, std::vector<Received>& received, size_t first, size_t count);

    int64_t q_heads_, columns_;
    std::vector<std::vector<Head>> layers_;
    std::map<std::pair<int64_t, int64_t>, std::vector<Received>> received_; // by layer and stream; heads by columns
    std::vector<float> scores_;
    winnow_tensor tensor_{};
    std::vector<float> seen_; // probabilities of one query
};

} // namespace winnow::ggml
