// The oracle of a cache: it keeps every key and value that was appended, reads after each call which tokens are left
// and in which segment they lie, and judges what it finds by what docs/cache.md promises: which tokens were evicted and
// how many, which rows were packed and as what, what attention over the resident tokens gives (dense attention in
// double over the values as they are stored), and what importance that leaves. In which call an eviction pass falls it
// is told by the cache's counts, and holds against bounds. It knows the cache by the C table alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cache_attention.hpp"
#include "cache_host.hpp"
#include "cache_rows.hpp"
#include "cache_setup.hpp"
#include "cache_token_rows.hpp"
#include "cache_victims.hpp"

namespace winnow::conformance {

// A number that is known to lie between two.
struct Between {
    double low = 0, high = 0;
};

// What one KV head knows of a token.
struct HeadToken {
    bool is_resident = true;
    int64_t segment = 0; // 0: dense; else the number of a packed one
    StoredRow row;
    std::optional<StoredRow> dense; // the row before it left the residual window, where there are lower segments
    Between importance;
    double told = 0; // the importance that the cache told last
};

struct OracleToken {
    int64_t token_id = 0; // position, or the host's cell
    int64_t position = 0; // in the order of appending
    int64_t id = 0;       // in the order of appending, whatever becomes of token ids
    bool is_sink = false; // it came to one of the first positions, and lies in a sink's slot
    std::vector<HeadToken> heads;
};

// The segment of each token that a head holds, as the cache tells it.
using Holding = std::map<int64_t, int64_t>;

// Of each head, what is subtracted before rows are packed.
struct Means {
    std::vector<std::vector<float>> k, v;
};

struct OracleLayer {
    int64_t number = 0;
    std::vector<OracleToken> tokens;  // that some head still holds, in the order of appending
    std::map<int64_t, bool> appended; // token ids that were not removed, evicted or not: whether in a sink's slot
    int64_t next = 0, next_id = 0;    // position and id of the next token
    // Tokens beside sinks since the last eviction pass; none after a call that may have made room, or taken some.
    std::optional<int64_t> since_pass;
    int64_t last_turn = never; // position at which a token that came alone last had a pass for that
    bool has_means = false;
    Means means;
    std::vector<Means> possible_means;                         // one of these they are, once there are any
    std::vector<std::vector<double>> output_sum, output_slack; // of each head since the last eviction pass
    int64_t outputs = 0;
    std::vector<int64_t> shortfall; // of each head: how many its last eviction pass lacked; empty: not known

    static constexpr int64_t never = INT64_MIN / 2;
    void forget_time() { since_pass.reset(), last_turn = never; }
};

// Drops the tokens that no head holds any more.
void forget_gone(OracleLayer& layer);

struct OracleSequence {
    std::vector<OracleLayer> layers;
    std::set<int64_t> anchors;
    bool is_reserved = false, is_used = false; // by a step, also one that attends where there is no token
};

class CacheOracle {
public:
    explicit CacheOracle(CacheHost& host);

    // Each carries out the call and judges what became of it: "" or what is wrong. A step has at most chunk() tokens.
    // What may be refused (shift, anchor and set_config) has to be where it must be, and then to have changed nothing.
    std::string step(Step& step);
    std::string truncate(int64_t sequence, int64_t length);
    std::string remove(int64_t sequence, int64_t begin, int64_t end);
    std::string copy(int64_t from, int64_t to);
    std::string shift(int64_t sequence, int64_t begin, int64_t end, int64_t delta);
    std::string reserve(int64_t sequence, int64_t tokens);
    std::string reset();
    std::string anchor(int64_t sequence, const std::vector<int64_t>& positions);
    std::string set_pressure(double pressure);
    std::string set_config(const CacheSetup& setup); // the same but for policy and budget
    // Saves, changes what there is if `disturb` says so, and loads it again.
    std::string save_and_load(const std::string& path, bool disturb);
    // All rows of a layer, in a type of the host's; and some of them replaced.
    std::string read(int64_t sequence, int64_t layer_number, uint32_t type);
    std::string write(int64_t sequence, int64_t layer_number, std::mt19937_64& engine);
    // Some tokens of each head get an importance.
    std::string set_importance(int64_t sequence, int64_t layer_number, std::mt19937_64& engine);
    // Rows of a type of the host's are appended, each to the heads in which it is no NaN; tokens: cells, or absent.
    std::string restore(TokenRows& rows);
    // What stats, positions and importance of all sequences have to say now.
    std::string look();

    // Takes the counts of events from the cache: after a load, which brings those of another.
    void forget_counts();

    const CacheSetup& setup() const { return setup_; }
    int64_t length(int64_t sequence, int64_t layer) const { return at(sequence, layer).next; }
    const OracleLayer& at(int64_t sequence, int64_t layer) const {
        return sequences_[static_cast<size_t>(sequence)].layers[static_cast<size_t>(layer)];
    }
    size_t anchors(int64_t sequence) const { return sequences_[static_cast<size_t>(sequence)].anchors.size(); }
    uint64_t evictions() const { return evictions_; }
    uint64_t passes() const { return passes_; }
    uint64_t refusals() const { return refusals_; }

private:
    enum class Refusal { wrong, permitted, due };
    static constexpr int64_t most_picking = 8; // query tokens of a step that pick one by one (docs/recall.md)

    OracleLayer& at(int64_t sequence, int64_t layer) {
        return sequences_[static_cast<size_t>(sequence)].layers[static_cast<size_t>(layer)];
    }
    OracleSequence empty_sequence() const;
    void reuse_cells(OracleLayer& layer, const std::vector<int64_t>& token_ids) const;
    Refusal refusal_of(const OracleSequence& sequence, const CacheSetup& setup) const;
    std::string judge_call(const char* what, int32_t status, Refusal refusal);
    void append(OracleLayer& layer, const std::vector<int64_t>& token_ids, const TestTensor& k, const TestTensor& v);
    std::string check_importance(int64_t sequence, int64_t layer_number);
    std::string look_at(int64_t sequence, int64_t layer_number);
    std::string check_places(const OracleLayer& layer, size_t head) const;
    std::string drop_evicted(int64_t sequence, OracleLayer& layer, bool may_evict); // by set_config
    std::string look_at_stats();
    void note_rules();
    void forget(int64_t sequence);
    bool is_empty(int64_t sequence) const;
    bool is_anchor(int64_t sequence, int64_t token_id) const {
        return sequences_[static_cast<size_t>(sequence)].anchors.contains(token_id);
    }
    int64_t packed_capacity(int64_t layer_number) const; // slots of all packed segments of a head

    // cache_oracle_pass.cpp: what an eviction pass has made of a layer.
    std::vector<Holding> holdings_of(int64_t sequence, int64_t layer_number) const;
    std::string take_new(const OracleLayer& layer, const std::vector<int64_t>& token_ids,
                         std::vector<Holding>& now) const;
    std::string make_room(const Step& step, OracleLayer& layer, const std::vector<int64_t>& token_ids);
    std::string check_time(const Step& step, OracleLayer& layer, int64_t entering) const;
    std::string check_pass(const Step& step, OracleLayer& layer, int64_t head, const Holding& now);
    std::string check_leaving(const OracleLayer& layer, const std::vector<Holding>& now, int64_t least,
                              std::optional<int64_t> most) const;
    std::string check_holdings(const OracleLayer& layer, const std::vector<Holding>& now) const;
    double value_of(const OracleLayer& layer, int64_t head, const HeadToken& token, Ranking ranking,
                    double* slack) const;
    Candidate candidate_of(const Step& step, const OracleLayer& layer, const OracleToken& token, int64_t head) const;
    EvictionPass pass_of(const OracleLayer& layer, int64_t head) const;
    static bool is_in_window(const OracleToken& token, size_t head);
    static bool leaves(const OracleToken& token, size_t head, const std::vector<Holding>& now);
    Means means_of(const OracleLayer& layer, int64_t end_id) const;
    void settle_means(OracleLayer& layer, int64_t sequence, const std::vector<Holding>& now);
    void pack_leaving(OracleLayer& layer, int64_t sequence, const std::vector<Holding>& now);
    std::vector<StoredRow> stored_in_packed(const OracleLayer& layer, const std::vector<RowPair>& rows,
                                            const std::vector<size_t>& heads) const;
    static void begin_outputs(OracleLayer& layer);

    // cache_oracle_rows.cpp
    TokenRows read_rows(const OracleLayer& layer, int64_t sequence); // of its tokens, in F32
    std::string drop_displaced(const TokenRows& rows, OracleLayer& layer, const std::vector<Holding>& now,
                               bool has_room);

    // cache_oracle_segments.cpp: which packed segment each token of a head is in after an eviction pass.
    std::string check_moves(const Step& step, OracleLayer& layer, int64_t head, const std::vector<Holding>& now);
    std::string check_moves_of(const Step& step, OracleLayer& layer, int64_t head, int64_t from, int64_t count,
                               const std::vector<Holding>& now);
    std::string find_restored(const TokenRows& rows, OracleLayer& layer, const std::vector<Holding>& now);

    // cache_oracle_zero.cpp. Before rows are packed only the sides that are packed anywhere are zeroed.
    bool has_zeroing(int64_t layer_number, int64_t before, int64_t after) const; // numbers of tokens
    void zero_before_packing(const Step& step, OracleLayer& layer, const std::vector<Holding>& now);
    void zero(const Step& step, OracleLayer& layer, const std::vector<Holding>* before_packing);

    // cache_oracle_attend.cpp
    std::string attend(const Step& step, OracleLayer& layer);
    bool tells_picks(const Step& step) const;
    bool is_left_out(const Step& step, const OracleToken& token, int64_t head, int64_t query) const;
    std::string attend_rows(const Step& step, OracleLayer& layer, int64_t head, int64_t query);

    static std::vector<float> row_of(const TestTensor& tensor, int64_t head, int64_t token);

    CacheHost& host_;
    CacheSetup setup_;
    std::vector<Rules> rules_; // of each layer
    double pressure_ = 0;
    bool keeps_importance_ = false;
    std::vector<OracleSequence> sequences_;
    uint64_t evictions_ = 0, passes_ = 0, steps_ = 0, refusals_ = 0;
    uint64_t picked_rows_ = 0;        // of the last step that tells_picks
    uint64_t picks_ = 0, misses_ = 0; // when statistics were looked at last
};

} // namespace winnow::conformance
