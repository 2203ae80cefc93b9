// A prompt, chunk by chunk: room, append, attention and what it showed. Under recall it is only an append of at most
// one chunk, without queries.
#include <algorithm>
#include <utility>

#include "cache/calls/layer_call.hpp"
#include "cache/layer/zeroing.hpp"

namespace winnow::cache {
namespace {

class Prompt : public LayerCall {
public:
    Prompt(CacheState& cache, const CacheStep& args) : LayerCall(cache, args) {}

private:
    void validate(std::vector<Segment>& segments) const override { validate_chunks(segments, geometry_.chunk()); }

    void bring_tokens() override {
        free_cells();
        const int64_t tokens = std::max(appended_, asked_), chunk = geometry_.chunk();
        for (int64_t first = 0; first < tokens; first += chunk) {
            const int64_t count = std::min(chunk, tokens - first), before = layer_.index.next();
            make_room(first, count);
            std::optional<Pending> last = append(first, count);
            if (asked_ > 0) attend_in_parts(first, count, {layer_.segments(geometry_)}, last);
            zero_after_chunk(cache_, layer_, before);
        }
    }
};

} // namespace

std::unique_ptr<LayerCall> make_prompt(CacheState& cache, const CacheStep& args) {
    return std::make_unique<Prompt>(cache, args);
}

} // namespace winnow::cache
