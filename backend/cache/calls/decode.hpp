// A decode: queries that attend one by one. Without recall that is one query. With recall it is one to eight queries,
// and each picks its pages first.
#pragma once

#include "cache/calls/layer_call.hpp"

namespace winnow::cache {

class Decode : public LayerCall {
public:
    Decode(CacheState& cache, const CacheStep& args);

    // For one query that picks no pages, in the place of `run`: makes room for its token, and returns its attention,
    // which is to be launched alone or together with those of other sequences. `end` is for after the launch.
    SlotAttend begin();
    void end(const SlotAttend& launched);
    bool changes_before_file() const override;

private:
    bool picks_pages() const override { return picks_; }
    void validate(std::vector<Segment>& segments) const override { validate_chunks(segments, 1); }
    void bring_tokens() override;
    SlotAttend begin_query(int64_t query);
    void end_query(const SlotAttend& launched);

    const bool picks_;
    std::optional<Pending> token_; // between the beginning of a query and its end
    int64_t before_ = 0;           // the next token's position, before the query
};

} // namespace winnow::cache
