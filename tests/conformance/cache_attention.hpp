// Attention of one query over the rows that a cache still holds, in double precision, with the error that a backend in
// single precision is permitted. The permitted error is that of sdpa_judge.cpp, where it is derived.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace winnow::conformance {

// The key and value of one token of one KV head, as they are stored.
struct StoredRow {
    std::vector<float> k, v;
    std::vector<float> k_slack, v_slack; // by how much each element may be another one; empty: by nothing
    double k_size = 0;                   // length of the key, or of what it is computed from
    std::vector<float> v_size;           // of each element, at least its magnitude
    std::vector<float> v_group;          // of each element the largest magnitude that shares its bias; empty: no bias
    std::vector<float> k_less_mean, v_less_mean; // as they lie in a packed segment that has means; else empty
};

struct QueryOptions {
    double scale = 1, softcap = 0, alibi_slope = 0;
    std::optional<double> head_sink;
    int64_t window_left = 0;
    double v_threshold = 0; // values whose probability is below it may be passed over
};

struct VisibleRow {
    const StoredRow* row;
    int64_t position;
    double bias = 0; // of an additive mask
};

// What a query gives each visible row.
struct Weight {
    double score, delta;     // after bias; its permitted error
    double p, p_low, p_high; // probability
};

struct QueryResult {
    std::vector<double> out, bound; // without rounding to the output's type
    std::vector<Weight> weights;    // one for each visible row
};

// q: head_size numbers. The rows are those that the query sees.
QueryResult attend(const std::vector<double>& q, int64_t position, const std::vector<VisibleRow>& rows, size_t v_size,
                   const QueryOptions& options);

} // namespace winnow::conformance
