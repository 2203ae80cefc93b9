// A prompt, chunk by chunk: room, append, attention and what it showed. Under recall it is only an append of at most
// one chunk, without queries.
#include <algorithm>
#include <utility>

#include "cache/calls/layer_call.hpp"
#include "cache/layer/zeroing.hpp"

namespace winnow::cache {
namespace {

class Prompt : LayerCall {
public:
    Prompt(CacheState& cache, const CacheStep& args) : LayerCall(cache, args) {}

    void run() {
        check();
        Growth grown = growth();
        validate(segments_after(geometry_, layer_, grown, false), geometry_.chunk());
        take_scratch(grown);
        take_cell_positions(most_leaving());
        commit(std::move(grown), true);
        keeping(appended_ > 0, [&] { run_chunks(); });
    }

private:
    void run_chunks() {
        free_cells();
        const int64_t tokens = std::max(appended_, asked_), chunk = geometry_.chunk();
        for (int64_t first = 0; first < tokens; first += chunk) {
            const int64_t count = std::min(chunk, tokens - first), before = layer_.index.next();
            make_room(first, count);
            std::optional<Pending> last = append(first, count);
            attend_in_parts(first, count, {layer_.segments(geometry_)}, last);
            zero_after_chunk(cache_, layer_, before);
        }
        layer_.cold.is_moved = false;
    }
};

} // namespace

void run_prompt(CacheState& cache, const CacheStep& args) { Prompt(cache, args).run(); }

} // namespace winnow::cache
