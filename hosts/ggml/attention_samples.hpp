// On what the networks of the policy learned are trained: of some tokens what the policy's cache would have kept of
// them at a query, and what attention they got from the queries after that.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace winnow::ggml {

struct AttentionSample {
    double importance = 0; // the decayed sum of its probabilities, means over the query group
    double age = 0;        // queries that saw it
    double attention = 0;  // sum of its probabilities over the horizon
};

class AttentionSamples {
public:
    static constexpr double decay = .99; // that of the policy, backend/cache/plan/policies/learned.cpp
    static constexpr int64_t horizon = 256, every = 128, at_once = 32; // queries, queries, tokens
    static constexpr int64_t youngest = 32;                            // queries that saw a token

    AttentionSamples(int64_t layers, int64_t kv_heads, int64_t columns);

    // The probabilities of a query, means over the query group, by column; token: which one is in a column, counted as
    // they come. Queries of a KV head come in their order.
    void add(int64_t layer, int64_t stream, int64_t head, std::span<const float> probabilities,
             std::span<const int64_t> token);
    // What lacks a part of its horizon is dropped.
    void end_sequences() { streams_.clear(); }

    // [KV head] of a layer.
    const std::vector<std::vector<AttentionSample>>& of(int64_t layer) const {
        return samples_[static_cast<size_t>(layer)];
    }

private:
    struct Open {
        size_t column;
        int64_t token; // that is there, until the column is used again
        AttentionSample sample;
        int64_t left; // of the horizon
    };
    struct Head {
        std::vector<double> importance; // by column
        std::vector<int64_t> token;     // whose it is
        std::vector<Open> open;
        int64_t queries = 0;
    };

    void begin(Head& head, std::span<const float> probabilities);

    int64_t kv_heads_, columns_;
    std::vector<std::vector<std::vector<AttentionSample>>> samples_;
    std::map<std::pair<int64_t, int64_t>, std::vector<Head>> streams_; // by layer and stream
    std::vector<size_t> candidates_;
    std::mt19937_64 random_{1}; // a run repeats itself
};

} // namespace winnow::ggml
