// Buffers of segments and the tensors over them.
#include "cache/layer/layer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace winnow::cache {
namespace {

// [1, heads, slots, size] of memory with `capacity` slots for each head.
Tensor rows_tensor(Type type, Buffer* buffer, int64_t heads, int64_t slots, int64_t capacity, int64_t size) {
    const auto row = static_cast<int64_t>(row_bytes(type, size));
    Tensor tensor;
    tensor.type = type;
    tensor.buffer = buffer;
    tensor.shape = {1, heads, slots, size};
    tensor.stride = {heads * capacity * row, capacity * row, row, static_cast<int64_t>(type_size(type))};
    return tensor;
}

// [1, heads, 1, columns] of memory with `capacity` elements of four bytes for each head.
Tensor columns_tensor(Type type, Buffer* buffer, int64_t heads, int64_t columns, int64_t capacity) {
    Tensor tensor;
    tensor.type = type;
    tensor.buffer = buffer;
    tensor.shape = {1, heads, 1, columns};
    const auto element = static_cast<int64_t>(row_bytes(type, 1)), row = capacity * element;
    tensor.stride = {heads * row, row, row, element};
    return tensor;
}

// Where the rows begin that have `its` formats, in the memory of a side with `slots` slots for each head: those of
// larger elements come first, so that all lie at multiples of their elements' size.
uint64_t first_byte(std::span<const RowFormats> all, const RowFormats& its, Type RowFormats::*side, int64_t elements,
                    int64_t slots) {
    const auto size_of = [&](const RowFormats& each) { return is_packed(each.*side) ? 0 : type_size(each.*side); };
    uint64_t bytes = 0;
    for (const RowFormats& each : all)
        if (size_of(each) > size_of(its) || (size_of(each) == size_of(its) && &each < &its))
            bytes += row_bytes(each.*side, elements) * static_cast<uint64_t>(each.count * slots);
    return bytes;
}

// Of the KV heads that have formats `its`, one of `all`.
Segment view_of(const Geometry& geometry, int64_t layer, std::span<const RowFormats> all, const RowFormats& its,
                const Rows& rows, int64_t slots) {
    const LayerShape& shape = geometry.shape(layer);
    Segment segment;
    segment.tokens = columns_tensor(Type::i32, rows.tokens.get(), shape.kv_heads, slots, rows.slots);
    if (geometry.keeps_importance())
        segment.importance = columns_tensor(Type::f32, rows.importance.get(), shape.kv_heads, slots, rows.slots);
    segment.k = rows_tensor(its.k, rows.k.get(), its.count, slots, rows.slots, shape.head_size);
    segment.v = rows_tensor(its.v, rows.v.get(), its.count, slots, rows.slots, shape.v_head_size);
    segment.k.offset = first_byte(all, its, &RowFormats::k, shape.head_size, rows.slots);
    segment.v.offset = first_byte(all, its, &RowFormats::v, shape.v_head_size, rows.slots);
    segment.heads = its.heads;
    segment.shares_slots = &its != &all.front();
    return segment;
}

// What some heads have, which store alike.
Segment of_heads(const std::vector<Segment>& segments, Geometry::Heads heads) {
    for (const Segment& segment : segments)
        if (segment.has_rows_of(heads.first)) return heads_of(segment, heads.first, heads.count);
    return {};
}

uint64_t bytes_in(const Rows& rows) {
    uint64_t sum = 0;
    for (const std::unique_ptr<Buffer>* each : {&rows.k, &rows.v, &rows.tokens, &rows.importance})
        if (*each) sum += (*each)->size();
    return sum;
}

// Bytes of the buffers of a segment.
struct RowsBytes {
    uint64_t k = 0, v = 0, tokens = 0, importance = 0;
    uint64_t total() const { return k + v + tokens + importance; }
};

RowsBytes rows_bytes(const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    const uint64_t column = geometry.column_bytes(layer, slots);
    return {geometry.k_bytes(layer, part, slots), geometry.v_bytes(layer, part, slots), column,
            geometry.keeps_importance() ? column : 0};
}

// Those that suit the packed segment of every layer.
RowsBytes most_rows_bytes(const Geometry& geometry, int64_t slots) {
    const auto most = [&](uint64_t RowsBytes::*side) {
        return geometry.most_bytes(
            [&](int64_t layer) { return rows_bytes(geometry, layer, Part::packed, slots).*side; });
    };
    return {most(&RowsBytes::k), most(&RowsBytes::v), most(&RowsBytes::tokens), most(&RowsBytes::importance)};
}

Rows make_rows(Device& device, const RowsBytes& bytes, int64_t slots, bool are_beside) {
    Rows rows;
    if (slots == 0) return rows;
    rows.slots = slots;
    const auto allocate = [&](uint64_t size) {
        return are_beside ? device.allocate_beside(size) : device.allocate(size);
    };
    rows.k = allocate(bytes.k);
    rows.v = allocate(bytes.v);
    rows.tokens = device.allocate(bytes.tokens, free_slot_byte);
    if (bytes.importance > 0) rows.importance = device.allocate(bytes.importance);
    return rows;
}

} // namespace

Rows make_rows(Device& device, const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    return make_rows(device, rows_bytes(geometry, layer, part, slots), slots, false);
}

Rows make_own_rows(Device& device, const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    const bool are_beside = part == Part::packed && geometry.recalls();
    return make_rows(device, rows_bytes(geometry, layer, part, slots), slots, are_beside);
}

Rows make_shared_rows(Device& device, const Geometry& geometry, int64_t slots) {
    return make_rows(device, most_rows_bytes(geometry, slots), slots, false);
}

uint64_t shared_rows_bytes(const Geometry& geometry, int64_t slots) { return most_rows_bytes(geometry, slots).total(); }

Rows rows_elsewhere(int64_t slots) {
    Rows rows;
    rows.slots = slots;
    return rows;
}

uint64_t bytes_of(const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    return rows_bytes(geometry, layer, part, slots).total();
}

uint64_t counted_bytes_of(const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    return part == Part::packed && geometry.recalls() ? 0 : bytes_of(geometry, layer, part, slots);
}

std::vector<Segment> views_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots) {
    std::vector<Segment> all;
    if (slots == 0) return all;
    const std::span<const RowFormats> formats = geometry.formats(layer, part);
    for (const RowFormats& each : formats) all.push_back(view_of(geometry, layer, formats, each, rows, slots));
    return all;
}

Segment view_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots) {
    const std::span<const RowFormats> formats = geometry.formats(layer, part);
    return slots == 0 ? Segment{} : view_of(geometry, layer, formats, formats.front(), rows, slots);
}

Segment view_of(const Geometry& geometry, int64_t layer, Part part, const Rows& rows, int64_t slots,
                Geometry::Heads heads) {
    return of_heads(views_of(geometry, layer, part, rows, slots), heads);
}

void copy_slots(Device& device, const Geometry& geometry, int64_t layer, Part part, const Rows& from, int64_t slots,
                const Rows& to) {
    for (const Geometry::Heads& heads : geometry.alike(layer))
        device.launch(SlotCopy{.from = view_of(geometry, layer, part, from, slots, heads),
                               .to = view_of(geometry, layer, part, to, to.slots, heads)});
}

Tensor tensor_of(Type type, int64_t heads, int64_t rows, int64_t columns, Buffer* buffer) {
    Tensor tensor;
    tensor.type = type;
    tensor.buffer = buffer;
    tensor.shape = {1, heads, rows, columns};
    tensor.stride = {4 * heads * rows * columns, 4 * rows * columns, 4 * columns, 4};
    return tensor;
}

Tensor rows_of(Tensor tensor, int64_t first, int64_t count) {
    tensor.offset += static_cast<uint64_t>(first * tensor.stride[2]);
    tensor.shape[2] = count;
    return tensor;
}

Segment slots_of(Segment segment, int64_t first, int64_t count) {
    segment.k = rows_of(segment.k, first, count);
    segment.v = rows_of(segment.v, first, count);
    for (Tensor* columns : {&segment.tokens, &segment.importance})
        if (*columns) {
            columns->offset += static_cast<uint64_t>(first * columns->stride[3]);
            columns->shape[3] = count;
        }
    return segment;
}

std::unique_ptr<Buffer> make_state(Device& device, const Geometry& geometry, int64_t layer) {
    std::unique_ptr<Buffer> state = device.allocate(geometry.state(layer).size);
    write_network(*state, geometry, layer);
    return state;
}

void write_network(Buffer& state, const Geometry& geometry, int64_t layer) {
    const std::span<const float> network = geometry.network(layer);
    if (!network.empty()) state.write(geometry.state(layer).network.offset, network.data(), network.size_bytes());
}

void clear_evictions(const StateLayout& layout, std::span<std::byte> state) {
    const std::span<std::byte> all = state.subspan(layout.head_state.offset, layout.head_state.size);
    for (size_t at = offsetof(HeadState, evicted); at < all.size(); at += sizeof(HeadState))
        std::memset(&all[at], 0, sizeof HeadState::evicted);
}

Tensor state_tensor(Type type, const StateLayout::Range& part, Buffer* buffer, int64_t heads, int64_t columns) {
    if (part.size == 0) return {};
    Tensor tensor = columns_tensor(type, buffer, heads, columns, columns);
    tensor.offset = part.offset;
    return tensor;
}

int64_t SegmentRows::packed_slots() const {
    int64_t slots = packed.slots;
    for (const Rows& each : lower) slots += each.slots;
    return slots;
}

std::vector<Part> Layer::parts(const Geometry& geometry) const {
    std::vector<Part> all;
    for (const Part part : geometry.parts())
        if (rows(part).slots > 0) all.push_back(part);
    return all;
}

std::vector<Segment> Layer::segments_of(const Geometry& geometry, Part part) const {
    std::vector<Segment> all;
    add_segments(geometry, part, all);
    return all;
}

void Layer::add_segments(const Geometry& geometry, Part part, std::vector<Segment>& all) const {
    const Rows& its = rows(part);
    if (its.slots == 0) return;
    const std::span<const RowFormats> formats = geometry.formats(number, part);
    for (const RowFormats& each : formats) {
        all.push_back(view_of(geometry, number, formats, each, its, its.slots));
        if (part != Part::dense) set_means(geometry, all.back());
    }
}

std::vector<Segment> Layer::segments(const Geometry& geometry) const {
    std::vector<Segment> all;
    all.reserve(geometry.parts().size());
    for (const Part part : geometry.parts()) add_segments(geometry, part, all);
    return all;
}

std::vector<Segment> Layer::segments(const Geometry& geometry, Geometry::Heads heads) const {
    std::vector<Segment> all;
    for (const Part part : parts(geometry)) all.push_back(segment(geometry, part, heads));
    return all;
}

Segment Layer::dense_segment(const Geometry& geometry) const {
    return view_of(geometry, number, Part::dense, dense, dense.slots);
}

Segment Layer::segment(const Geometry& geometry, Part part, Geometry::Heads heads) const {
    return of_heads(segments_of(geometry, part), heads);
}

void Layer::set_means(const Geometry& geometry, Segment& segment) const {
    const LayerShape& shape = geometry.shape(number);
    const StateLayout& layout = geometry.state(number);
    segment.k_mean = state_tensor(Type::f32, layout.k_mean, state.get(), shape.kv_heads, shape.head_size);
    segment.v_mean = state_tensor(Type::f32, layout.v_mean, state.get(), shape.kv_heads, shape.v_head_size);
}

Segment Layer::packed_segment(const Geometry& geometry) const { return packed_segment(geometry, packed, packed.slots); }

Segment Layer::packed_segment(const Geometry& geometry, const Rows& rows, int64_t slots) const {
    Segment segment = view_of(geometry, number, Part::packed, rows, slots);
    set_means(geometry, segment);
    return segment;
}

Segment Layer::hot_segment(const Geometry& geometry) const { return packed_segment(geometry, hot, hot.slots); }

std::vector<Segment> Layer::segments_with_copies(const Geometry& geometry) const {
    std::vector<Segment> all;
    if (dense.slots > 0) all.push_back(dense_segment(geometry));
    for (const Part part : geometry.packed_parts())
        if (rows(part).tokens) add_segments(geometry, part, all);
    if (hot.slots > 0) all.push_back(hot_segment(geometry));
    return all;
}

std::vector<Segment> Layer::picked_segments(const Geometry& geometry) const {
    return {dense_segment(geometry), hot_segment(geometry)};
}

Tensor Layer::head_state(const Geometry& geometry) const {
    return state_tensor(Type::i32, geometry.state(number).head_state, state.get(), geometry.shape(number).kv_heads,
                        sizeof(HeadState) / 4);
}

uint64_t Layer::bytes() const {
    uint64_t sum = (state ? state->size() : 0) + (index_memory ? index_memory->size() : 0);
    sum += bytes_in(dense) + (index_memory ? bytes_in(hot) : bytes_in(packed));
    for (const Rows& each : lower) sum += bytes_in(each);
    return sum;
}

std::vector<int32_t> Layer::map_of(const Geometry& geometry, const Rows& segment) const {
    const int64_t heads = geometry.shape(number).kv_heads;
    if (segment.slots > 0 && !segment.tokens) return cold.map.entries(heads, segment.slots);
    std::vector<int32_t> map(static_cast<size_t>(heads * segment.slots));
    if (!map.empty()) segment.tokens->read(0, map.data(), 4 * map.size());
    return map;
}

Layer::HeadSlots Layer::read_head(const Geometry& geometry, const Rows& segment, int64_t head) const {
    if (segment.slots == 0) return {};
    const auto slots = static_cast<size_t>(segment.slots);
    const auto offset = static_cast<uint64_t>(4 * head * segment.slots);
    HeadSlots its{std::vector<int32_t>(slots), std::vector<float>(slots)};
    if (segment.tokens) {
        segment.tokens->read(offset, its.entries.data(), 4 * slots);
    } else {
        const std::vector<int32_t> map = map_of(geometry, segment);
        std::copy_n(map.begin() + head * segment.slots, slots, its.entries.begin());
    }
    if (segment.importance) segment.importance->read(offset, its.importance.data(), 4 * slots);
    return its;
}

std::vector<HeadState> Layer::read_head_state(const Geometry& geometry) const {
    std::vector<HeadState> heads(static_cast<size_t>(geometry.shape(number).kv_heads));
    const StateLayout::Range& part = geometry.state(number).head_state;
    if (state) state->read(part.offset, heads.data(), part.size);
    return heads;
}

void Layer::write_head_state(const Geometry& geometry, const std::vector<HeadState>& heads) {
    const StateLayout::Range& part = geometry.state(number).head_state;
    state->write(part.offset, heads.data(), part.size);
}

uint64_t Layer::evictions(const Geometry& geometry) const {
    uint64_t count = 0;
    for (const HeadState& head : read_head_state(geometry)) count += static_cast<uint64_t>(head.evicted);
    return count;
}

} // namespace winnow::cache
