// The oracle of a cache: it keeps every key and value that was ever appended, reproduces the schedule by which rows
// leave the residual window and eviction passes fall (docs/cache.md), reads after each call which tokens are left, and
// checks three things: which tokens were evicted, what attention over the resident tokens gives (dense attention in
// double over the values as they are stored), and what importance that leaves. It knows the cache by the C table alone.
#pragma once

#include <cstdint>
#include <deque>
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
    bool is_in_packed = false, is_in_residual = false;
    std::vector<HeadToken> heads;
};

// A place in the residual window that is taken, also by a token that was removed since.
struct ResidualPlace {
    int64_t id, token_id;
    bool is_removed = false;
};

struct OracleLayer {
    int64_t number = 0;
    std::vector<OracleToken> tokens; // that some head still holds
    std::set<int64_t> original;      // token ids appended and not removed, evicted or not
    int64_t next = 0, next_id = 0;   // position and id of the next token
    std::vector<int64_t> sinks;      // the token id in each sink's slot, in any order, or -1
    std::deque<ResidualPlace>
        newest; // the residual window, oldest first; without a residual window, those in slots of the last list
    int64_t most_in_packed = 0; // no head holds more there
    bool has_packed = false;    // there is memory for it
    bool has_memory = false;    // a step took some, also one that attends where there is no token
    int64_t free_listed = 0;    // without a residual window: for how many tokens the last eviction pass made room
    bool has_means = false;
    std::vector<std::vector<float>> k_mean, v_mean;            // of each head
    std::vector<std::vector<double>> output_sum, output_slack; // of each head since the last eviction pass
    int64_t outputs = 0;
    std::vector<int64_t> shortfall; // of each head: how many its last eviction pass lacked; empty: not known
};

struct OracleSequence {
    std::vector<OracleLayer> layers;
    std::set<int64_t> anchors;
    int64_t reserved = 0; // tokens
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
    // Experts are drawn for some tokens of a layer, of which few are chosen often.
    std::string set_experts(int64_t sequence, int64_t layer_number, std::mt19937_64& engine);
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
    int64_t leaving(const OracleLayer& layer, int64_t layer_number, int64_t entering) const;
    int64_t most_packed(int64_t layer_number) const;
    void reuse_cells(OracleLayer& layer, const std::vector<int64_t>& token_ids) const;
    Refusal refusal_of(const OracleSequence& sequence, const CacheSetup& setup) const;
    std::string judge_call(const char* what, int32_t status, Refusal refusal);
    std::string drop_evicted(const TokenRows& rows, OracleLayer& layer, bool has_room, int64_t last);
    bool has_pass(const OracleLayer& layer, int64_t layer_number, int64_t entering, bool is_decode) const;
    std::string read_resident(const Step& step, const std::vector<int64_t>& token_ids,
                              std::vector<std::set<int64_t>>& left);
    std::string check_pass(const Step& step, OracleLayer& layer, int64_t head, const std::set<int64_t>& victims,
                           int64_t leave);
    double value_of(const OracleLayer& layer, int64_t head, const HeadToken& token, Ranking ranking,
                    double* slack) const;
    Candidate candidate_of(const Step& step, const OracleLayer& layer, const OracleToken& token, int64_t head) const;
    EvictionPass pass_of(const OracleLayer& layer, int64_t layer_number, int64_t head) const;
    static bool leaves(const OracleLayer& layer, const OracleToken& token, int64_t leave);
    void leave_residual(OracleLayer& layer, int64_t sequence, int64_t layer_number, int64_t leave);
    TokenRows read_rows(const OracleLayer& layer, int64_t sequence, int64_t layer_number); // of its tokens, in F32
    // Which packed segment each token of a head is in after an eviction pass: reads and judges.
    std::string check_moves(const Step& step, OracleLayer& layer, int64_t head, int64_t leave);
    std::string check_moves_of(const Step& step, OracleLayer& layer, int64_t head, int64_t from, int64_t count,
                               int64_t leave, const std::map<int64_t, int64_t>& told);
    std::map<int64_t, int64_t> segments_of(int64_t sequence, int64_t layer_number, int64_t head) const;
    std::string find_restored(const TokenRows& rows, OracleLayer& layer);
    std::string look_at_segments(int64_t sequence, int64_t layer_number) const;
    void set_means(OracleLayer& layer);
    // cache_oracle_zero.cpp. Before rows are packed only the sides that are packed anywhere are zeroed.
    bool has_zeroing(int64_t layer_number, int64_t before, int64_t after) const; // numbers of tokens
    void zero_before_packing(const Step& step, OracleLayer& layer, int64_t leave);
    void zero(const Step& step, OracleLayer& layer, bool is_before_packing, int64_t leave);
    void append(OracleLayer& layer, const std::vector<int64_t>& token_ids, const TestTensor& k, const TestTensor& v,
                int64_t first = 0);
    std::string attend(const Step& step, OracleLayer& layer);
    bool tells_picks(const Step& step) const;
    bool is_left_out(const Step& step, const OracleToken& token, int64_t head, int64_t query) const;
    std::string attend_rows(const Step& step, OracleLayer& layer, int64_t head, int64_t query);
    std::string check_importance(int64_t sequence, int64_t layer_number);
    std::string look_at(int64_t sequence, int64_t layer);
    std::string look_at_stats();
    void note_rules();
    void note_packed(OracleLayer& layer, int64_t reserved) const;
    int64_t packed_rows(const OracleLayer& layer) const; // that are resident in the fullest head
    std::vector<StoredRow> stored_in_packed(const OracleLayer& layer, const std::vector<RowPair>& rows,
                                            const std::vector<size_t>& heads) const;
    void compact(OracleLayer& layer, int64_t reserved) const;
    void forget(int64_t sequence);
    bool is_empty(int64_t sequence) const;
    bool is_anchor(int64_t sequence, int64_t token_id) const {
        return sequences_[static_cast<size_t>(sequence)].anchors.contains(token_id);
    }

    static std::vector<float> row_of(const TestTensor& tensor, int64_t head, int64_t token);

    CacheHost& host_;
    CacheSetup setup_;
    std::vector<Rules> rules_; // of each layer
    double pressure_ = 0;
    bool keeps_importance_ = false;
    std::vector<OracleSequence> sequences_;
    std::map<int64_t, std::vector<uint64_t>> expert_counts_; // of layers: moe
    uint64_t evictions_ = 0, passes_ = 0, steps_ = 0, refusals_ = 0;
    uint64_t picked_rows_ = 0;        // of the last step that tells_picks
    uint64_t picks_ = 0, misses_ = 0; // when statistics were looked at last
};

} // namespace winnow::conformance
