// What all calls have in common that bring tokens to a layer or attend over it: a decode (decode.cpp), a prompt
// (prompt.cpp), a prompt that streams over a cold tier (cold_prompt.cpp), and restored rows (restored_tokens.cpp).
#pragma once

#include <optional>
#include <vector>

#include "cache/cache_state.hpp"
#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"

namespace winnow::cache {

// cache_step: carried out as a decode, a prompt or a prompt over a cold tier.
void run_step(CacheState& cache, const CacheStep& args);

void run_decode(CacheState& cache, const CacheStep& args);
void run_prompt(CacheState& cache, const CacheStep& args);
void run_cold_prompt(CacheState& cache, const CacheStep& args);

// Under recall: whether each query picks the pages that it attends to; else all of them attend to all of the cold tier.
bool picks(const Geometry& geometry, const CacheStep& args);

class LayerCall {
public:
    LayerCall(const LayerCall&) = delete;
    LayerCall& operator=(const LayerCall&) = delete;

protected:
    LayerCall(CacheState& cache, const CacheStep& args);
    ~LayerCall() = default;

    // What queries attend to.
    struct Attended {
        std::vector<Segment> segments;
        Tensor carried{}; // of a prompt over a cold tier: what its queries have of stretches before; else absent
        int64_t carried_first = 0; // the query of its first row
    };
    // Rows that the launch of their attention appends. They are noted after it: a failure leaves no token noted that
    // was not stored.
    struct Pending {
        SlotAppend append;
        Run run;
    };

    // What comes before the tokens, in this order; nothing of the layer changes before `commit`.
    void check() const;
    Growth growth() const; // for all tokens of the call
    // What attentions over these segments are going to look like, `chunk` queries after `chunk` queries, in all lengths
    // that there are.
    void validate(const std::vector<Segment>& segments, int64_t chunk) const;
    void take_scratch(const Growth& growth);
    // Memory for the rare pass by which the oldest tokens go, where one may come.
    void take_cell_positions(std::optional<int64_t> leaving);
    std::optional<int64_t> most_leaving() const; // from the residual window before all tokens came
    void commit(Growth growth, bool is_signed);  // is_signed: where the layer is new, no row of it lacks a signature

    // Runs the rest of the call. changes: so that the layer is as before where the file of its cold tier fails it.
    template <class Action>
    void keeping(bool changes, Action&& action) {
        if (changes)
            keeping_layer(cache_, layer_, action);
        else
            action();
    }

    void free_cells(); // tokens that had the cells before are gone
    // How many rows leave the residual window before `others` tokens come; none where no eviction pass is due.
    std::optional<int64_t> rows_to_leave(int64_t others) const;
    // Evicts the oldest tokens of a cold tier with a budget if `others` more find no room.
    void evict_oldest_before(int64_t others);
    // Has an eviction pass where the residual window, or without one the free-listed slots, have no room for `others`
    // tokens.
    void evict_before(int64_t others);
    void make_room(int64_t first, int64_t count); // for these tokens, by both
    // Appends tokens, but for those that their queries' attention appends.
    std::optional<Pending> append(int64_t first, int64_t count);
    SlotAppend append_of(const Run& run) const;
    void note(const Run& run);
    int64_t outside_sinks(int64_t first, int64_t count) const; // how many of these tokens get no sink's slot

    // Queries [first, first + count) attend, and what that showed is accumulated; `pending` is appended before and
    // noted after.
    void attend(int64_t first, int64_t count, Attended attended, std::optional<Pending>& pending);
    // The same in parts, where there is not scratch for the scores of all of them.
    void attend_in_parts(int64_t first, int64_t count, const Attended& attended, std::optional<Pending>& pending);
    int64_t queries_at_a_time(int64_t first, int64_t count, int64_t slots) const;
    // Of these queries, over so many slots. Segments and carry are the caller's.
    SlotAttention attention_of(int64_t first, int64_t count, int64_t slots) const;
    void keep_scores(const SlotAttention& attention, int64_t first, int64_t count, bool keeps_others);
    void pick_for(int64_t query);

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheStep& args_;
    Sequence& sequence_;
    Layer& layer_;
    int64_t appended_, asked_, seen_; // tokens; seen_: before the call
    std::vector<int32_t> cells_;
    CallMemory cell_positions_;

private:
    int64_t counted_queries(int64_t first, int64_t count) const;
    void attend_with_scores(const SlotStep& step, int64_t first, int64_t count, bool keeps_others);
    Tensor step_weights() const;
    Tensor scratch_tensor(Buffer* buffer, int64_t rows, int64_t columns) const;
};

} // namespace winnow::cache
