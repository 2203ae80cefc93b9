// What all calls have in common that bring tokens to a layer of a sequence or attend over it: a decode (decode.cpp), a
// prompt (prompt.cpp), a prompt that streams over a cold tier (cold_prompt.cpp), and restored rows
// (restored_tokens.cpp).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache_state.hpp"
#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"

namespace winnow::cache {

// cache_step: for each sequence a decode, a prompt or a prompt over a cold tier. All of them take their memory before
// the first one changes its layer.
void run_step(CacheState& cache, std::span<const CacheStep> steps, bool marks_event);

// Why a step would wait for the device or for a file, and what helps; null: it would not. This is about what its
// sequences share; LayerCall::why_waits is about each of them.
const char* why_waits(const CacheState& cache, const CacheStep& step, bool marks_event);
void refuse_to_wait(const char* why); // throws WOULD_WAIT where there is a reason

class LayerCall;
std::unique_ptr<LayerCall> make_prompt(CacheState& cache, const CacheStep& args);
std::unique_ptr<LayerCall> make_cold_prompt(CacheState& cache, const CacheStep& args);

// Under recall: whether each query picks the pages that it attends to; else all of them attend to all of the cold tier.
bool picks(const Geometry& geometry, const CacheStep& args);

// What the calls of a step share, which come one after the other.
struct StepMemory {
    int64_t scratch_slots = 0; // for which scratch was taken
    uint64_t bytes = 0;        // that the calls so far take
    CallMemory carried;        // by the queries of a prompt over a cold tier
    CallMemory cell_positions;
};

class LayerCall {
public:
    LayerCall(const LayerCall&) = delete;
    LayerCall& operator=(const LayerCall&) = delete;
    virtual ~LayerCall() = default;

    // A call, whose arguments were checked when it was made, goes through these in this order. `prepare` takes its
    // memory, and the layer does not change.
    void prepare(StepMemory& shared);
    void copy_rows(); // into the memory
    void adopt();     // the memory becomes the layer's
    void run();       // the tokens come and attend

    Layer& layer() { return layer_; }
    // Whether something of the layer changes before the last read or write of a file that holds its cold tier.
    virtual bool changes_before_file() const { return appended_ > 0; }

protected:
    LayerCall(CacheState& cache, const CacheStep& args);

    // What calls do differently; the first three within `prepare`. Attentions are going to be over these segments.
    virtual void validate(std::vector<Segment>& segments) const = 0;
    virtual void take_memory(StepMemory&) {}
    virtual bool takes_memory() const { return false; } // whether that allocates
    virtual bool picks_pages() const { return false; }
    // How many rows leave the residual window at most before all tokens came.
    virtual std::optional<int64_t> most_leaving() const;
    // Where the layer is new: no row of it is going to lack a signature.
    virtual bool begins_signed() const { return true; }
    virtual void bring_tokens() = 0;

    // Those that queries attend to, which stay the same through the call once it has its memory.
    std::vector<Segment> take_segments();

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

    // What attentions over these segments are going to look like, `chunk` queries after `chunk` queries, in all lengths
    // that there are. The segments are the same afterwards.
    void validate_chunks(std::vector<Segment>& segments, int64_t chunk) const;

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
    // noted after: what is launched, what comes after it, and both.
    SlotAttend attention_with(int64_t first, int64_t count, Attended attended, const std::optional<Pending>& pending);
    void launch(const SlotAttend& fused, int64_t first, int64_t count);
    void end_attention(const SlotAttend& launched, std::optional<Pending>& pending);
    void attend(int64_t first, int64_t count, Attended attended, std::optional<Pending>& pending);
    // The same in parts, where there is not scratch for the scores of all of them.
    void attend_in_parts(int64_t first, int64_t count, const Attended& attended, std::optional<Pending>& pending);
    int64_t queries_at_a_time(int64_t first, int64_t count, int64_t slots) const;
    // Of these queries, over so many slots. Segments and carry are the caller's.
    Sdpa attention_of(int64_t first, int64_t count, int64_t slots) const;
    void keep_scores(const Sdpa& attention, int64_t first, int64_t count, bool keeps_others);
    void pick_for(int64_t query);

    CacheState& cache_;
    const Geometry& geometry_;
    const CacheStep& args_;
    const LayerShape& shape_;
    Sequence& sequence_;
    Layer& layer_;
    int64_t appended_, asked_, seen_; // tokens; seen_: before the call
    std::vector<int32_t> cells_;
    StepMemory* shared_ = nullptr; // from `prepare` on
    Growth growth_;
    std::vector<Segment> segments_; // those that were validated, until they are taken or the layer grows

private:
    void check() const;
    const char* why_waits(const GrowthPlan& plan) const;
    bool may_evict_oldest() const; // whether evict_oldest_before may evict
    // Memory for the rare pass by which the oldest tokens go, where one may come.
    void take_cell_positions();
    int64_t counted_queries(int64_t first, int64_t count) const;
    Tensor weights() const;
    Tensor scratch_tensor(Buffer* buffer, int64_t rows, int64_t columns) const;
};

} // namespace winnow::cache
