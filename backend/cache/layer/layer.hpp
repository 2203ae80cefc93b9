// The memory of one layer of one sequence: a dense segment of sinks and residual window, packed segments that grow, and
// the small state of its heads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/layer/token_index.hpp"
#include "cache/plan/geometry.hpp"
#include "cache/recall/cold_file.hpp"
#include "cache/recall/cold_map.hpp"
#include "device/slots.hpp"

namespace winnow::cache {

// The buffers of a segment; none where it has no slots.
struct Rows {
    int64_t slots = 0;
    std::unique_ptr<Buffer> k, v, tokens, importance;
};

// The segments of a layer. Where a packed one has slots, those above it have all that they ever have.
struct SegmentRows {
private:
    template <class Self>
    static auto& of(Self& self, Part part) {
        return part == Part::dense    ? self.dense
               : part == Part::packed ? self.packed
                                      : self.lower[part == Part::third ? 1 : 0];
    }

public:
    Rows dense, packed;
    std::array<Rows, most_tiers - 1> lower; // packed segments below it

    Rows& rows(Part part) { return of(*this, part); }
    const Rows& rows(Part part) const { return of(*this, part); }
    int64_t packed_slots() const; // of all packed segments
};

// Of a layer whose packed rows lie in a file: where, and which slots they are in. The buffers of the packed segment are
// there only while a call needs all of it in memory (cold_rows.hpp).
struct ColdRows {
    std::shared_ptr<ColdRegion> region;
    ColdMap map;
    bool is_moved = false; // slots of rows that a step freed may not be written to before it has succeeded
    uint64_t bytes_read = 0, wait_ns = 0;
};

// Rows of zeros, in slots that are all free; throws where there is no memory.
Rows make_rows(Device& device, const Geometry& geometry, int64_t layer, Part part, int64_t slots);
// The same of a layer's own segments: recall's cold rows lie beside the device.
Rows make_own_rows(Device& device, const Geometry& geometry, int64_t layer, Part part, int64_t slots);
// Rows with room for so many slots of the packed segment of any layer, for all of them, one after another; their bytes.
Rows make_shared_rows(Device& device, const Geometry& geometry, int64_t slots);
uint64_t shared_rows_bytes(const Geometry& geometry, int64_t slots);
Rows rows_elsewhere(int64_t slots); // without buffers
uint64_t bytes_of(const Geometry& geometry, int64_t layer, Part part, int64_t slots);
// The same of what counts for the budget: nothing of the packed segment where that is the cold one of recall.
uint64_t counted_bytes_of(const Geometry& geometry, int64_t layer, Part part, int64_t slots);
// The first `slots` slots of a segment, as attention has them: one for each pair of formats that its KV heads have;
// `rows` may lack buffers.
std::vector<Segment> views_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots);
// The first of them, which is all where heads store alike; and what neighbouring heads that do have.
Segment view_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots);
Segment view_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots,
                Geometry::Heads heads);
// Copies the first `slots` slots of a segment to another memory for it.
void copy_slots(Device& device, const Geometry& geometry, int64_t layer, Part part, const Rows& from, int64_t slots,
                const Rows& to);

// [1, heads, rows, columns] of four bytes each, without gaps, at the beginning of a buffer; or the caller says where.
Tensor tensor_of(Type type, int64_t heads, int64_t rows, int64_t columns, Buffer* buffer = nullptr);
// Rows [first, first + count) of a tensor.
Tensor rows_of(Tensor tensor, int64_t first, int64_t count);
// Slots [first, first + count) of a segment.
Segment slots_of(Segment segment, int64_t first, int64_t count);
// The state of a layer whose heads hold nothing; throws where there is no memory.
std::unique_ptr<Buffer> make_state(Device& device, const Geometry& geometry, int64_t layer);
void write_network(Buffer& state, const Geometry& geometry, int64_t layer); // into it, where there is one
// Sets the evictions of all heads to 0 in the bytes of a state, for another layer: they count once, where they
// happened.
void clear_evictions(const StateLayout& layout, std::span<std::byte> state);
// A tensor [1, heads, 1, columns] of a dense type over a part of a buffer, as of a layer's state.
Tensor state_tensor(Type type, const StateLayout::Range& part, Buffer* buffer, int64_t heads, int64_t columns);

struct Layer : SegmentRows {
    Layer(const Geometry& geometry, int64_t its_number)
        : number(its_number), index(geometry.sink(), geometry.request().cells) {}

    int64_t number; // in the cache

    std::unique_ptr<Buffer> state; // StateLayout; none: the layer holds no memory
    TokenIndex index;
    int64_t most_in_packed =
        0; // no head holds more in its packed segments; with the newest where there is no residual window
    int64_t free_listed = 0; // slots that the last eviction pass promised to be free, without a residual window
    int64_t outputs = 0;     // rows in output_sum
    bool has_means = false;
    // Of recall: the hot slots, as frames of pages, and the page index; whether all pages of the packed segment have
    // their signatures, and then how many slots at its front have rows; and of how many of these the center is, or more
    // where it is not to follow them. With signs there are no signatures where that is of none.
    Rows hot;
    std::unique_ptr<Buffer> index_memory;
    bool is_signed = false;
    int64_t in_front = 0, centered = 0;
    ColdRows cold;
    int64_t packed_first = 0; // the slot that the first row of `packed` is of: not 0 only while the
                              // end of a cold segment in a file is in memory

    // The most tokens that are resident in a head outside the sinks' slots.
    int64_t most_resident() const { return most_in_packed + index.newest(); }

    // The segments that have slots, packed ones with their means; of a part as many as its KV heads have pairs of
    // formats. The same of some heads that store alike: one for each part.
    std::vector<Segment> segments(const Geometry& geometry) const;
    std::vector<Segment> segments(const Geometry& geometry, Geometry::Heads heads) const;
    std::vector<Part> parts(const Geometry& geometry) const; // which those are
    Segment dense_segment(const Geometry& geometry) const;
    Segment segment(const Geometry& geometry, Part part, Geometry::Heads heads) const;
    // Of all heads; where these store unlike rows, of those of the first pair of formats.
    Segment packed_segment(const Geometry& geometry) const;
    // Slots of it, of which the memory lies in `rows` from the first one on.
    Segment packed_segment(const Geometry& geometry, const Rows& rows, int64_t slots) const;
    Segment hot_segment(const Geometry& geometry) const;
    // All that lie in memory; among them, of recall, the hot slots, which hold rows of the packed segment again.
    std::vector<Segment> segments_with_copies(const Geometry& geometry) const;
    // What a query of decoding attends to under recall.
    std::vector<Segment> picked_segments(const Geometry& geometry) const;
    Tensor head_state(const Geometry& geometry) const;
    int64_t slots() const { return dense.slots + packed_slots(); }

    uint64_t bytes() const; // of all its memory but the cold one
    // The slot map of a segment, [head][slot], wherever it is.
    std::vector<int32_t> map_of(const Geometry& geometry, const Rows& segment) const;

    // What a KV head has in a segment: entries of the slot map, and importances.
    struct HeadSlots {
        std::vector<int32_t> entries;
        std::vector<float> importance; // 0 where none is kept
    };
    HeadSlots read_head(const Geometry& geometry, const Rows& segment, int64_t head) const;

    // A part of the state; T: of four bytes.
    template <class T>
    std::vector<T> read_state(const StateLayout::Range& part) const {
        static_assert(sizeof(T) == 4);
        std::vector<T> values(part.size / 4);
        if (!values.empty()) state->read(part.offset, values.data(), part.size);
        return values;
    }
    std::vector<HeadState> read_head_state(const Geometry& geometry) const;
    void write_head_state(const Geometry& geometry, const std::vector<HeadState>& heads);
    uint64_t evictions(const Geometry& geometry) const; // of all heads

private:
    std::vector<Segment> segments_of(const Geometry& geometry, Part part) const;
    void add_segments(const Geometry& geometry, Part part, std::vector<Segment>& all) const;
    void set_means(const Geometry& geometry, Segment& segment) const;
};
static_assert(sizeof(HeadState) == 16); // as StateLayout has it

} // namespace winnow::cache
