// The streams of a virtual cache, batch by batch: which cells have tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache_shape.hpp"
#include "cell_tracker.hpp"
#include "lost_cells.hpp"

namespace winnow::ggml {

class Streams {
public:
    // The shape has to outlive the streams.
    explicit Streams(const CacheShape& shape) : shape_(shape) {}
    // Makes the streams, once it is known how many first tokens of a sequence are sinks. has_window: tokens leave one.
    // decode_from: the position from which on tokens are appended one at a time.
    void make(int64_t sinks, bool has_window, std::optional<int64_t> decode_from);

    // Whether a batch is new: each batch of a stream comes once for every layer, and this layer is the first.
    bool begins_batch(size_t layer, int64_t stream);
    // Whether this layer has a batch of which another was found to see no lost cell under the same mask.
    bool is_checked(size_t layer, int64_t stream, const ggml_tensor* mask, int64_t slice) const;
    void note_checked(int64_t stream, const ggml_tensor* mask, int64_t slice) {
        of(stream).checked = MaskSlice(mask, slice).data();
    }
    // Opens a new batch of tokens with their mask. Returns what the cache has to do before they are appended.
    CellTracker::Opening open(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice);
    // Appends a new batch that has no attention yet; its mask may come with a later layer.
    void append(int64_t stream, std::span<const int32_t> cells);
    bool has_mask(int64_t stream) const { return of(stream).has_mask; }
    void take_mask(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice);

    // Whether a token of the newest batch sees one that comes after it. Known once the batch's mask is there.
    bool sees_ahead(int64_t stream) const { return of(stream).sees_ahead; }

    // How many tokens of the newest batch are appended at once; each of the rest is appended on its own.
    int64_t taken_at_once(int64_t stream) const { return of(stream).taken_at_once; }

    // Restored states, removals and copies, as CellTracker has them.
    CellTracker::Opening restore(int64_t stream, std::span<const int32_t> cells, bool replaces);
    void note_shift(int64_t stream, std::span<const int32_t> cells) { of(stream).tracker.note_shift(cells); }
    void remove(int64_t stream, const CellRange& range);
    void copy(int64_t from, int64_t to);

    // Cells whose tokens are removed although llama.cpp may know them. They are lost until something else is there.
    void lose(int64_t stream, std::span<const int32_t> cells, const std::string& reason) {
        of(stream).lost.add(cells, reason);
        of(stream).checked = nullptr;
    }
    const LostCells& lost(int64_t stream) const { return of(stream).lost; }
    void clear();
    uint64_t tokens_seen() const; // in all streams
    int64_t tokens() const;       // that they have now

private:
    struct Stream {
        explicit Stream(CellTracker made) : tracker(std::move(made)) {}
        CellTracker tracker;
        LostCells lost;
        uint64_t batches = 0;
        bool has_mask = false; // of the newest batch; the two below are known then
        bool sees_ahead = false;
        int64_t taken_at_once = 0;
        const void* checked = nullptr; // a mask under which the newest batch sees no lost cell
    };
    Stream& of(int64_t stream) { return streams_[static_cast<size_t>(stream)]; }
    const Stream& of(int64_t stream) const { return streams_[static_cast<size_t>(stream)]; }

    const CacheShape& shape_;
    std::optional<int64_t> decode_from_;
    std::vector<Stream> streams_;
    std::vector<std::vector<uint64_t>> batches_of_layers_; // and of streams: the newest that the layer has
};

} // namespace winnow::ggml
