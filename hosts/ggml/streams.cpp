// Counting batches and widening masks.
#include "streams.hpp"

#include <cstring>

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
    its.mask = is_narrow(mask) ? mask->data : nullptr;
    if (its.mask) widen_mask(its.wide_mask, mask, slice, static_cast<int64_t>(cells.size()));
    return opening;
}

const char* Streams::wide_mask(int64_t stream, const ggml_tensor* mask) const {
    return of(stream).mask == mask->data ? of(stream).wide_mask.data() : nullptr;
}

void Streams::widen_mask(std::vector<char>& wide, const ggml_tensor* mask, int64_t slice, int64_t tokens) const {
    const MaskSlice view(mask, slice);
    const size_t element = view.element_bytes(), row = static_cast<size_t>(shape_.cells()) * element;
    const size_t size = static_cast<size_t>(tokens) * row;
    if (wide.capacity() > 2 * size) wide = std::vector<char>(); // a long prompt's is not kept
    wide.resize(size);
    for (int64_t token = 0; token < tokens; ++token) {
        char* to = &wide[static_cast<size_t>(token) * row];
        const size_t known = static_cast<size_t>(view.columns()) * element;
        std::memcpy(to, view.row(token), known);
        view.hide(to + known, to + row);
    }
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
