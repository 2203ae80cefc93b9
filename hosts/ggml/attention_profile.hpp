// What attention looks like in each layer: how spread out its probabilities are, how much the largest of them and those
// of the newest tokens hold, and how much a token's share moves. Taken from the scores of a cache's steps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention_samples.hpp"
#include "winnow.h"

namespace winnow::ggml {

// The profile of a layer, [query head]: means over its queries; of the variance, the mean over tokens.
struct LayerProfile {
    std::string name;
    uint64_t queries = 0;
    std::vector<double> entropy;       // of a query's probabilities, in nats
    std::vector<double> concentration; // what the largest tenth of what a query sees hold together
    std::vector<double> variance;      // of the probability that a token gets from query to query
    // What the newest 50 and the newest 100 tokens hold together, over the queries that see more; the query's own is
    // one of them.
    std::vector<double> newest_50, newest_100;
    std::vector<std::vector<AttentionSample>> samples; // of each KV head, where they are taken
};

class AttentionProfile {
public:
    // A query that sees fewer tokens is not counted: its probabilities cannot be spread out.
    static constexpr int64_t fewest_seen = 32;

    // kv_heads: of which samples are taken; 0: none are.
    AttentionProfile(int64_t layers, int64_t q_heads, int64_t columns, int64_t kv_heads = 0);

    // Where a step of so many tokens is to put its scores, until the next call.
    const winnow_tensor* scores(int64_t tokens);
    // The columns that tokens were stored in, in their order, before the scores of queries that see them.
    void append(int64_t layer, int64_t stream, std::span<const int32_t> columns);
    // These scores, once they are there.
    void add(int64_t layer, int64_t stream);
    // The sequences end; what a column holds from now on is another token.
    void end_sequences();

    std::vector<LayerProfile> layers(const std::vector<std::string>& names) const;

private:
    struct Head {
        double entropy = 0, concentration = 0; // sums over queries
        std::array<double, 2> newest{};
        std::array<uint64_t, 2> newest_queries{};
        double variance = 0; // sum over tokens
        uint64_t queries = 0, tokens = 0;
    };
    // What one column received: how many queries saw it, the sums of their probabilities and of the squares.
    struct Received {
        double count = 0, sum = 0, squares = 0;
    };

    // What a layer and stream was given.
    struct Columns {
        std::vector<Received> received; // heads by columns
        std::vector<int64_t> token;     // that is in a column, counted as they come
        int64_t tokens = 0;
    };

    Columns& columns_of(int64_t layer, int64_t stream);
    // probabilities: where those are added up, or NULL.
    void add_row(Head& head, const float* logits, Received* received, const std::vector<int64_t>& token,
                 float* probabilities);
    // Of a KV head whose query heads were all added.
    void add_samples(int64_t layer, int64_t stream, int64_t kv_head, int64_t tokens, const Columns& columns);
    void add_newest(Head& head); // of what by_age_ has
    static void end(Head& head, std::vector<Received>& received, size_t first, size_t count);

    int64_t q_heads_, columns_, group_ = 1; // query heads of a KV head
    std::optional<AttentionSamples> samples_;
    std::vector<float> of_group_; // by token and column: sums of probabilities over a query group
    std::vector<std::vector<Head>> layers_;
    std::map<std::pair<int64_t, int64_t>, Columns> streams_; // by layer and stream
    std::vector<float> scores_;
    winnow_tensor tensor_{};
    std::vector<float> seen_;                       // probabilities of one query
    std::vector<std::pair<int64_t, float>> by_age_; // the same with their tokens
};

} // namespace winnow::ggml
