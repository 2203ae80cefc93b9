// The formula of winnow_sdpa_desc, one query row at a time, in the order in which the header writes it.
#include "reference/operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/element.hpp"
#include "reference/row.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One query row: batch entry, query head, query token, and what follows from them.
struct Row {
    int64_t batch, head, token;
    int64_t position;
};

// What a KV head has stored: row for row a key, its value, and the position of both.
struct Stored {
    std::vector<std::vector<double>> keys, values;
    std::vector<int64_t> positions; // negative: nothing is there
};

// Adds the first `length` rows of a KV head.
void gather(const Segment& segment, int64_t batch, int64_t head, int64_t length, Stored& to) {
    if (!segment.has_rows_of(head)) return; // a segment that shares these slots has them
    Segment its = heads_of(segment, head, 1);
    for (Tensor* each : {&its.k, &its.v, &its.tokens}) each->offset += static_cast<uint64_t>(batch * each->stride[0]);
    for (int64_t slot = 0; slot < std::min(its.slots(), length); ++slot) {
        to.keys.push_back(slot_row(its.k, its.k_mean, 0, slot));
        to.values.push_back(slot_row(its.v, its.v_mean, 0, slot));
        const int32_t token = its.tokens ? entry(its.tokens, 0, slot) : static_cast<int32_t>(slot);
        to.positions.push_back(is_live(token) ? token_id_of(token) : free_slot);
    }
}

// Reads a batch entry's number and clamps it; `absent` is that of all entries where there is no tensor.
int64_t per_entry(const Tensor& tensor, int64_t batch, int64_t absent, int64_t least, int64_t most) {
    return tensor ? std::clamp(load_index(tensor.type, address(tensor, 0, 0, 0, batch)), least, most) : absent;
}

double per_head(const Tensor& tensor, int64_t head, double absent) {
    return tensor ? load(tensor.type, address(tensor, 0, 0, 0, head)) : absent;
}

// The column is the key's position.
std::byte* mask_element(const Sdpa& args, const Row& row, int64_t position) {
    const Tensor& mask = args.mask;
    return address(mask, row.batch % mask.shape[0], row.head % mask.shape[1], mask.shape[2] == 1 ? 0 : row.token,
                   mask.shape[3] == 1 ? 0 : position);
}

// Whether the row may look at the key at all. An additive -inf hides a key just as a boolean false does, so that
// whatever lies in a hidden key or value, NaN included, has no way into the result.
bool is_visible(const Sdpa& args, const Row& row, int64_t position) {
    if (position < 0) return false;
    if (args.is_causal && position > row.position) return false;
    if (args.window_left != 0 && position <= row.position - args.window_left) return false;
    if (args.window_right != 0 && position > row.position + args.window_right) return false;
    if (!args.mask) return true;
    if (args.mask.shape[3] != 1 && position >= args.mask.shape[3]) return false;
    const std::byte* element = mask_element(args, row, position);
    if (args.mask.type == Type::boolean) return *element != std::byte{0};
    return load(args.mask.type, element) != -infinity;
}

double raw_score(const Sdpa& args, const std::vector<double>& query, const std::vector<double>& key) {
    std::array<double, 8> sums = {}; // the compiler's lanes: one sum alone would wait for each addition
    const size_t size = query.size(), whole = size - size % sums.size();
    for (size_t d = 0; d < whole; d += sums.size())
        for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += query[d + lane] * key[d + lane];
    for (size_t d = whole; d < size; ++d) sums[0] += query[d] * key[d];
    return static_cast<double>(args.scale) * std::accumulate(sums.begin(), sums.end(), 0.0);
}

double softcapped(const Sdpa& args, double score) {
    return args.softcap != 0 ? static_cast<double>(args.softcap) * std::tanh(score / static_cast<double>(args.softcap))
                             : score;
}

double biased(const Sdpa& args, const Row& row, int64_t position, double score) {
    if (args.mask && args.mask.type != Type::boolean)
        score += per_head(args.mask_slopes, row.head, 1) * load(args.mask.type, mask_element(args, row, position));
    if (args.alibi_slopes)
        score += per_head(args.alibi_slopes, row.head, 0) * static_cast<double>(position - row.position);
    return score;
}

// A maximum that does not lose NaN.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// What a row has of the keys of earlier launches, as if these had been all: its maximum, its sum and its output.
struct Carried {
    double maximum = -infinity, sum = 0;
    std::vector<double> out;
};

Carried load_carried(const Sdpa& args, const Row& row) {
    Carried carried;
    carried.out.resize(static_cast<size_t>(args.out.shape[3]));
    if (!args.carry.joins) return carried;
    const std::byte* const from = row_address(args.carry.rows, row.batch, row.head, row.token);
    std::memcpy(&carried.maximum, from, sizeof(double));
    std::memcpy(&carried.sum, from + sizeof(double), sizeof(double));
    std::memcpy(carried.out.data(), from + 2 * sizeof(double), carried.out.size() * sizeof(double));
    return carried;
}

void store_carried(const Sdpa& args, const Row& row, const Carried& carried) {
    std::byte* const to = row_address(args.carry.rows, row.batch, row.head, row.token);
    std::memcpy(to, &carried.maximum, sizeof(double));
    std::memcpy(to + sizeof(double), &carried.sum, sizeof(double));
    std::memcpy(to + 2 * sizeof(double), carried.out.data(), carried.out.size() * sizeof(double));
}

void attend_row(const Sdpa& args, const Row& row, const Stored& stored) {
    std::vector<double> query(static_cast<size_t>(args.head_size()));
    decode_row(args.q.type, row_address(args.q, row.batch, row.head, row.token), args.head_size(), query.data());
    const size_t keys = stored.keys.size();
    std::vector<double> logits(keys);
    const Carried carried = load_carried(args, row);
    bool sees_any = carried.sum != 0;
    double maximum = carried.maximum;
    const bool has_hidden_scores = // of keys that the row does not see
        args.scores_out && (args.scores_mode == Scores::raw || args.scores_mode == Scores::softcapped);
    for (size_t key = 0; key < keys; ++key) {
        const bool is_seen = is_visible(args, row, stored.positions[key]);
        const double raw = is_seen || has_hidden_scores ? raw_score(args, query, stored.keys[key]) : 0;
        const double capped = softcapped(args, raw);
        const double logit = is_seen ? biased(args, row, stored.positions[key], capped) : -infinity;
        logits[key] = logit;
        if (logit != -infinity) {
            sees_any = true;
            maximum = larger(maximum, logit);
        }
        if (!args.scores_out) continue;
        std::byte* score = address(args.scores_out, row.batch, row.head, row.token, static_cast<int64_t>(key));
        if (args.scores_mode == Scores::raw) store(args.scores_out.type, score, raw);
        if (args.scores_mode == Scores::softcapped) store(args.scores_out.type, score, capped);
        if (args.scores_mode == Scores::biased) store(args.scores_out.type, score, logit);
    }

    double sum = 0;
    if (sees_any) {
        const double sink = args.carry.leaves ? -infinity : per_head(args.head_sink, row.head, -infinity);
        maximum = larger(maximum, sink);
        if (carried.sum != 0) sum = carried.sum * std::exp(carried.maximum - maximum);
        for (double logit : logits) sum += logit == -infinity ? 0 : std::exp(logit - maximum);
        if (sink != -infinity) sum += std::exp(sink - maximum);
    }
    std::vector<double> probabilities(keys, 0);
    for (size_t key = 0; key < keys; ++key)
        if (logits[key] != -infinity) probabilities[key] = std::exp(logits[key] - maximum) / sum;

    std::vector<double> out(static_cast<size_t>(args.out.shape[3]), 0);
    if (carried.sum != 0)
        for (size_t d = 0; d < out.size(); ++d)
            out[d] = carried.sum * std::exp(carried.maximum - maximum) / sum * carried.out[d];
    int32_t skipped = 0;
    for (size_t key = 0; key < keys; ++key) {
        if (logits[key] == -infinity) continue;
        if (probabilities[key] < static_cast<double>(args.v_threshold)) {
            ++skipped;
            continue;
        }
        for (size_t d = 0; d < out.size(); ++d) out[d] += probabilities[key] * stored.values[key][d];
    }
    if (args.carry.leaves) {
        store_carried(args, row, {maximum, sum, out});
        return;
    }
    encode_row(args.out.type, row_address(args.out, row.batch, row.head, row.token), args.out.shape[3], out.data(),
               Norm::plain);
    if (args.v_rows_skipped)
        std::memcpy(row_address(args.v_rows_skipped, row.batch, row.head, row.token), &skipped, sizeof skipped);
    if (args.scores_out && args.scores_mode == Scores::probs)
        for (size_t key = 0; key < keys; ++key)
            store(args.scores_out.type,
                  address(args.scores_out, row.batch, row.head, row.token, static_cast<int64_t>(key)),
                  probabilities[key]);
    for (auto key = static_cast<int64_t>(keys); args.scores_out && key < args.kv_len(); ++key)
        store(args.scores_out.type, address(args.scores_out, row.batch, row.head, row.token, key),
              args.scores_mode == Scores::probs ? 0 : -infinity);
    if (args.row_stats) {
        store(args.row_stats.type, address(args.row_stats, row.batch, row.head, row.token, 0), maximum);
        store(args.row_stats.type, address(args.row_stats, row.batch, row.head, row.token, 1), sum);
    }
}

} // namespace

void require_supported(const Sdpa& args) {
    for (const Tensor* tensor : {&args.q, &args.out})
        if (!is_floating(tensor->type)) refuse_type(tensor->type);
    for (const Segment& segment : args.segments) {
        require_rows(segment.k, "k");
        require_rows(segment.v, "v");
    }
}

void sdpa(const Sdpa& args) {
    for (int64_t batch = 0; batch < args.batch(); ++batch) {
        const int64_t length = per_entry(args.kv_lengths, batch, args.kv_len(), 0, args.kv_len());
        const int64_t offset = per_entry(args.q_offsets, batch, args.q_offset, -position_limit, position_limit);
        for (int64_t kv_head = 0; kv_head < args.kv_heads(); ++kv_head) {
            Stored stored;
            for (const Segment& segment : args.segments)
                gather(segment, batch / args.kv_share(), kv_head, length, stored);
            for (int64_t head = kv_head * args.group(); head < (kv_head + 1) * args.group(); ++head)
                for (int64_t token = 0; token < args.q_len(); ++token)
                    attend_row(args, {batch, head, token, offset + token}, stored);
        }
    }
}

} // namespace winnow::reference
