// Counting batches.
#include "streams.hpp"

#include <algorithm>

namespace winnow::ggml {

void Streams::make(int64_t sinks, bool has_window, std::optional<int64_t> decode_from) {
    decode_from_ = decode_from;
    const auto streams = static_cast<size_t>(shape_.streams());
    streams_.assign(streams, Stream(CellTracker(shape_.cells(), streams > 1, sinks, has_window)));
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

bool Streams::is_checked(size_t layer, int64_t stream, const ggml_tensor* mask, int64_t slice) const {
    const bool is_new = batches_of_layers_[layer][static_cast<size_t>(stream)] == of(stream).batches;
    return !is_new && of(stream).checked == MaskSlice(mask, slice).data();
}

CellTracker::Opening Streams::open(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask,
                                   int64_t slice) {
    const MaskSlice rows(mask, slice);
    of(stream).lost.note_batch(cells, rows.columns());
    CellTracker& tracker = of(stream).tracker;
    CellTracker::Opening opening =
        shape_.has_computed_masks() ? tracker.open(cells, rows.columns()) : tracker.open(cells, rows);
    take_mask(stream, cells, mask, slice);
    return opening;
}

void Streams::append(int64_t stream, std::span<const int32_t> cells) {
    of(stream).lost.forget(cells);
    of(stream).tracker.append(cells);
    of(stream).has_mask = false;
    of(stream).checked = nullptr;
}

void Streams::take_mask(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice) {
    Stream& its = of(stream);
    its.has_mask = true;
    its.sees_ahead = CellTracker::sees_ahead(cells, MaskSlice(mask, slice));
    const auto is_decoded = [&](int32_t cell) {
        return decode_from_ && its.tracker.count_before(cell) >= *decode_from_;
    };
    const auto first = its.sees_ahead ? cells.end() : std::find_if(cells.begin(), cells.end(), is_decoded);
    its.taken_at_once = first - cells.begin();
}

CellTracker::Opening Streams::restore(int64_t stream, std::span<const int32_t> cells, bool replaces) {
    of(stream).lost.forget(cells);
    CellTracker::Opening opening = of(stream).tracker.restore(cells, replaces);
    const std::vector<int32_t> guessed(opening.guessed.begin(), opening.guessed.end());
    if (!guessed.empty())
        lose(stream, guessed, "its token was dropped for a state that overwrote the first token of its sequence");
    return opening;
}

void Streams::remove(int64_t stream, const CellRange& range) {
    of(stream).lost.forget(range);
    of(stream).tracker.remove(range);
}

void Streams::copy(int64_t from, int64_t to) {
    of(to).tracker.copy(of(from).tracker);
    of(to).lost = of(from).lost;
}

void Streams::clear() {
    for (Stream& stream : streams_) {
        stream.tracker.clear();
        stream.lost.clear();
    }
}

int64_t Streams::tokens() const {
    int64_t count = 0;
    for (const Stream& stream : streams_) count += stream.tracker.tokens();
    return count;
}

uint64_t Streams::tokens_seen() const {
    uint64_t tokens = 0;
    for (const Stream& stream : streams_) tokens += static_cast<uint64_t>(stream.tracker.tokens_seen());
    return tokens;
}

} // namespace winnow::ggml
