// Counting batches.
#include "streams.hpp"

namespace winnow::ggml {

void Streams::make(int64_t sinks) {
    const auto streams = static_cast<size_t>(shape_.streams());
    streams_.assign(streams, Stream(CellTracker(shape_.cells(), streams > 1, sinks)));
    batches_of_layers_.assign(shape_.layers().size(), std::vector<uint64_t>(streams, 0));
}

bool Streams::begins_batch(size_t layer, int64_t stream) {
    uint64_t& newest = batches_of_layers_[layer][static_cast<size_t>(stream)];
    uint64_t& batches = of(stream).batches;
    const bool is_first = newest == batches;
    if (is_first) ++batches;
    newest = batches;
    return is_first;
}

CellTracker::Opening Streams::open(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask,
                                   int64_t slice) {
    Stream& its = of(stream);
    const MaskSlice view(mask, slice);
    CellTracker::Opening opening = its.tracker.open(cells, view);
    its.sees_ahead = CellTracker::sees_ahead(cells, view);
    return opening;
}

void Streams::clear() {
    for (Stream& stream : streams_) stream.tracker.clear();
}

uint64_t Streams::tokens_seen() const {
    uint64_t tokens = 0;
    for (const Stream& stream : streams_) tokens += static_cast<uint64_t>(stream.tracker.tokens_seen());
    return tokens;
}

} // namespace winnow::ggml
