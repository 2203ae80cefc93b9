// The streams of a virtual cache, batch by batch: which cells have tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache_shape.hpp"
#include "cell_tracker.hpp"

namespace winnow::ggml {

class Streams {
public:
    // The shape has to stay.
    explicit Streams(const CacheShape& shape) : shape_(shape) {}
    // Once it is known how many first tokens of a sequence stay. decode_from: the position from which on tokens are
    // taken one at a time.
    void make(int64_t sinks, std::optional<int64_t> decode_from);

    // Every layer has each batch of a stream. Whether this layer is the first with a new one.
    bool begins_batch(size_t layer, int64_t stream);
    // A new batch's tokens and their mask. What the cache has to do before they are appended.
    CellTracker::Opening open(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice);
    // A new batch without an attention; its mask may come with a later layer.
    void append(int64_t stream, std::span<const int32_t> cells);
    bool has_mask(int64_t stream) const { return of(stream).has_mask; }
    void take_mask(int64_t stream, std::span<const int32_t> cells, const ggml_tensor* mask, int64_t slice);

    // Of the newest batch, once its mask is there: whether a token sees one that comes after it.
    bool sees_ahead(int64_t stream) const { return of(stream).sees_ahead; }

    // And how many of its tokens are taken at once; each of the rest is taken on its own.
    int64_t taken_at_once(int64_t stream) const { return of(stream).taken_at_once; }

    // Of states, removals and copies: as CellTracker.
    CellTracker::Opening restore(int64_t stream, std::span<const int32_t> cells) {
        return of(stream).tracker.restore(cells);
    }
    void remove(int64_t stream, const CellRange& range) { of(stream).tracker.remove(range); }
    void copy(int64_t from, int64_t to) { of(to).tracker.copy(of(from).tracker); }
    void clear();
    uint64_t tokens_seen() const; // in all streams

private:
    struct Stream {
        explicit Stream(CellTracker made) : tracker(std::move(made)) {}
        CellTracker tracker;
        uint64_t batches = 0;
        bool has_mask = false; // of the newest batch: what follows is known
        bool sees_ahead = false;
        int64_t taken_at_once = 0;
    };
    Stream& of(int64_t stream) { return streams_[static_cast<size_t>(stream)]; }
    const Stream& of(int64_t stream) const { return streams_[static_cast<size_t>(stream)]; }

    const CacheShape& shape_;
    std::optional<int64_t> decode_from_;
    std::vector<Stream> streams_;
    std::vector<std::vector<uint64_t>> batches_of_layers_; // and of streams: the newest that the layer has
};

} // namespace winnow::ggml
