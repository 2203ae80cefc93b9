// What would do harm while the layer is built is checked before, the rest when it is whole; then it is exchanged.
#include "cache/state/rebuilt_layer.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "cache/calls/token_rows.hpp"
#include "cache/failures.hpp"
#include "cache/layer/growth.hpp"
#include "cache/layer/slot_map_edit.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"
#include "cache/state/check_loaded.hpp"

namespace winnow::cache {
namespace {

[[noreturn]] void refuse_ledger(const std::string& why) { refuse("the rows' ledger is damaged: " + why); }

void expect_within(int64_t value, int64_t most, const char* what) {
    if (value >= 0 && value <= most) return;
    refuse_ledger(std::string(what) + " is " + std::to_string(value) + ", expected 0 to " + std::to_string(most));
}

// A buffer, changed and written whole.
class Image {
public:
    explicit Image(Buffer* buffer) : buffer_(buffer) {
        if (buffer_ == nullptr) return;
        bytes_.resize(buffer_->size());
        buffer_->read(0, bytes_.data(), bytes_.size());
    }
    void put(uint64_t at, const void* from, uint64_t size) {
        if (buffer_ == nullptr) return;
        std::memcpy(&bytes_[at], from, size);
        is_changed_ = true;
    }
    void write() const {
        if (is_changed_) buffer_->write(0, bytes_.data(), bytes_.size());
    }

private:
    Buffer* buffer_;
    bool is_changed_ = false;
    std::vector<std::byte> bytes_;
};

} // namespace

void put_back(CacheState& cache, Layer& layer, const IncomingRows& rows, const std::vector<std::vector<int32_t>>& slots,
              bool has_its_means) {
    const Geometry& geometry = *cache.geometry;
    const bool has_mean = layer.has_means;
    const bool has_importance = geometry.keeps_importance() && rows.has_importance(); // appended rows have 0
    size_t which = 0;
    for (const Part part : layer.parts(geometry)) {
        Rows* const segment = &layer.rows(part);
        const std::vector<int32_t>& its = slots[which++];
        const bool has_packed_bytes = part != Part::dense && has_its_means;
        const auto in = [](const std::unique_ptr<Buffer>& buffer, bool is_needed) {
            return Image(is_needed ? buffer.get() : nullptr);
        };
        Image keys = in(segment->k, has_packed_bytes && geometry.has_packed_k(layer.number, part)),
              values = in(segment->v, has_packed_bytes && geometry.has_packed_v(layer.number, part)),
              importances = in(segment->importance, has_importance);
        const auto put = [](Image& image, const Tensor& of_head, int32_t slot, std::span<const std::byte> bytes) {
            if (is_packed(of_head.type) && !bytes.empty())
                image.put(of_head.offset + static_cast<uint64_t>(slot * of_head.stride[2]), bytes.data(), bytes.size());
        };
        for (int64_t head = 0; head < geometry.shape(layer.number).kv_heads; ++head) {
            const Segment of_head = layer.segment(geometry, part, {head, 1});
            for (int64_t token = 0; token < rows.count(); ++token) {
                const int32_t slot = its[static_cast<size_t>(head * rows.count() + token)];
                if (slot < 0) continue;
                put(keys, of_head.k, slot, rows.packed_key(head, token, of_head.k.type, has_mean));
                put(values, of_head.v, slot, rows.packed_value(head, token, of_head.v.type, has_mean));
                const float importance = rows.importance(head, token);
                importances.put(static_cast<uint64_t>(4 * (head * segment->slots + slot)), &importance, 4);
            }
        }
        for (const Image* each : {&keys, &values, &importances}) each->write();
    }
}

RebuiltLayer::RebuiltLayer(CacheState& cache, const CacheRows& args, const std::vector<int32_t>& token_ids,
                           const IncomingRows& rows)
    : cache_(cache), geometry_(*cache.geometry), args_(args), token_ids_(token_ids), rows_(rows),
      ledger_(*rows.ledger()), in_packed_(static_cast<size_t>(geometry_.shape(args.layer).kv_heads), 0) {
    for (int64_t token = 0; token_ids_.empty() && token < rows_.count(); ++token) {
        const int64_t position = ledger_.tokens[static_cast<size_t>(token)].position;
        if (position != token) is_possible_ = false;
    }
    if (token_ids_.empty() && ledger_.facts.next != rows_.count()) is_possible_ = false;
    if (!has_possible_slots()) is_possible_ = false;
    if (!is_possible_) return;
    for (int64_t token = 0; token_ids.empty() && token < rows_.count(); ++token)
        token_ids_.push_back(static_cast<int32_t>(token));
    check_facts();
    check_tokens();
    const auto tokens = static_cast<size_t>(geometry_.shape(args_.layer).kv_heads * rows_.count());
    slots_.assign(geometry_.parts().size(), std::vector<int32_t>(tokens, -1));
    for (int64_t head = 0; head < geometry_.shape(args_.layer).kv_heads && is_possible_; ++head) check_slots(head);
}

int64_t RebuiltLayer::ledger_slots(Part part) const {
    return part == Part::packed ? ledger_.facts.packed_slots : ledger_.lower_slots[part == Part::third ? 1 : 0];
}

// A budget that became smaller may have left a larger packed segment.
bool RebuiltLayer::has_possible_slots() {
    const std::span<const Part> parts = geometry_.packed_parts();
    if (ledger_.lower_slots.size() + 1 != parts.size()) refuse_ledger("it is of another number of packed segments");
    const int64_t most = geometry_.most_packed(args_.layer);
    for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t slots = ledger_slots(parts[i]);
        if (slots > most - packed_slots_) return false;
        packed_slots_ += slots;
        if (i > 0 && slots > 0 && ledger_slots(parts[i - 1]) != geometry_.capacity(args_.layer, parts[i - 1]))
            return false;
    }
    return true;
}

std::pair<size_t, int64_t> RebuiltLayer::segment_of(int64_t slot) const {
    int64_t first = 0, end = geometry_.dense_slots();
    size_t which = 0;
    while (slot >= end) {
        first = end;
        end += ledger_slots(geometry_.parts()[++which]);
    }
    return {which, first};
}

void RebuiltLayer::check_facts() const {
    const Ledger::Facts& facts = ledger_.facts;
    expect_within(facts.most_in_packed,
                  std::max(packed_slots_, geometry_.most_packed(args_.layer)), // with removed ones
                  "what the packed segment holds");
    expect_within(facts.free_listed, geometry_.residual() > 0 ? 0 : std::min(geometry_.cadence(), facts.packed_slots),
                  "the number of free-listed slots");
    expect_within(facts.newest, geometry_.residual() > 0 ? geometry_.residual() : facts.free_listed,
                  "the number of newest tokens");
    const auto expect_size = [](const std::vector<float>& values, uint64_t bytes, const char* what) {
        if (!values.empty() && 4 * values.size() != bytes)
            refuse_ledger(std::string(what) + " has " + std::to_string(values.size()) + " numbers, expected " +
                          std::to_string(bytes / 4));
    };
    const StateLayout& layout = geometry_.state(args_.layer);
    expect_size(ledger_.output_sum, layout.output_sum.size, "the sum of outputs");
    expect_size(ledger_.k_mean, layout.k_mean.size, "the mean of keys");
    expect_size(ledger_.v_mean, layout.v_mean.size, "the mean of values");
}

// Makes the token index.
void RebuiltLayer::check_tokens() {
    const Ledger::Facts& facts = ledger_.facts;
    const int64_t sink = geometry_.sink();
    index_.next = facts.next;
    index_.moved = facts.moved;
    index_.sinks.assign(static_cast<size_t>(sink), -1);
    index_.newest.assign(static_cast<size_t>(facts.newest), -1); // removed
    if (geometry_.has_cells())
        index_.cells.assign(static_cast<size_t>(geometry_.request().cells), -1);
    else
        index_.ranges.push_back({0, facts.next});
    for (size_t i = 0; i < token_ids_.size(); ++i) {
        const Ledger::Token& token = ledger_.tokens[i];
        if (token.position < 0) continue;
        if (geometry_.has_cells())
            index_.cells[static_cast<size_t>(token_ids_[i])] = static_cast<int32_t>(token.position);
        expect_within(token.place, sink + facts.newest, "a token's place");
        if (token.place == 0) continue;
        int64_t& at = token.place <= sink ? index_.sinks[static_cast<size_t>(token.place - 1)]
                                          : index_.newest[static_cast<size_t>(token.place - 1 - sink)];
        if (at >= 0) refuse_ledger("two tokens have place " + std::to_string(token.place));
        at = token_ids_[i];
    }
    const bool has_all = std::find(index_.newest.begin(), index_.newest.end(), -1) == index_.newest.end();
    if (!geometry_.has_cells() && !has_all) is_possible_ = false;
}

// Whether the row can lie there. In which slot of the dense segment it has to be is judged when the layer is whole.
bool RebuiltLayer::fits_slot(int64_t head, int64_t token, int64_t slot) const {
    const int64_t place = ledger_.tokens[static_cast<size_t>(token)].place, dense = geometry_.dense_slots();
    if (slot >= dense)
        return slot < dense + packed_slots_ && (place == 0 || (place > geometry_.sink() && geometry_.residual() == 0));
    const bool has_mean = !ledger_.k_mean.empty();
    return std::all_of(geometry_.packed_parts().begin(), geometry_.packed_parts().end(), [&](Part part) {
        return rows_.packed_key(head, token, geometry_.formats_of_head(args_.layer, part, head).k, has_mean).empty();
    });
}

bool RebuiltLayer::has_bytes(Part part, int64_t head, int64_t token) const {
    const auto& [k, v, heads, count] = geometry_.formats_of_head(args_.layer, part, head);
    const bool has_mean = !ledger_.k_mean.empty();
    return (!is_packed(k) || !rows_.packed_key(head, token, k, has_mean).empty()) &&
           (!is_packed(v) || !rows_.packed_value(head, token, v, has_mean).empty());
}

void RebuiltLayer::check_slots(int64_t head) {
    const std::vector<int64_t>& slots = ledger_.slots[static_cast<size_t>(head)];
    const int64_t dense = geometry_.dense_slots();
    std::vector<bool> taken(static_cast<size_t>(dense + packed_slots_), false);
    for (int64_t token = 0; token < rows_.count(); ++token) {
        const int64_t slot = slots[static_cast<size_t>(token)];
        if ((slot >= 0) != rows_.is_resident(head, token)) {
            is_possible_ = false;
            return;
        }
        if (slot < 0) continue;
        if (ledger_.tokens[static_cast<size_t>(token)].position < 0 || !fits_slot(head, token, slot) ||
            taken[static_cast<size_t>(slot)])
            refuse_ledger("head " + std::to_string(head) + " has token " + std::to_string(token) + " in slot " +
                          std::to_string(slot) + ", where it cannot be");
        taken[static_cast<size_t>(slot)] = true;
        const bool is_in_packed = slot >= dense;
        const auto [which, first] = segment_of(slot);
        if (is_in_packed && !has_bytes(geometry_.parts()[which], head, token)) {
            is_possible_ = false; // its bytes had no place
            return;
        }
        slots_[which][static_cast<size_t>(head * rows_.count() + token)] = static_cast<int32_t>(slot - first);
        in_packed_[static_cast<size_t>(head)] += is_in_packed;
    }
}

int64_t RebuiltLayer::slots_of(Part part) const {
    const Layer& before = cache_.sequence(args_.sequence).layers[static_cast<size_t>(args_.layer)];
    return std::max(ledger_slots(part), before.rows(part).slots); // what is reserved stays
}

std::vector<std::byte> RebuiltLayer::state_bytes() {
    const StateLayout& layout = geometry_.state(args_.layer);
    std::vector<std::byte> bytes(layout.size, std::byte{0});
    const auto put = [&](const StateLayout::Range& part, const auto& values, size_t at = 0) {
        if (part.size > 0 && !values.empty())
            std::memcpy(&bytes[part.offset + 4 * at], values.data(), sizeof values[0] * values.size());
    };
    std::vector<HeadState> heads(in_packed_.size());
    for (size_t head = 0; head < heads.size(); ++head) heads[head].live = static_cast<int32_t>(in_packed_[head]);
    put(layout.head_state, heads);
    put(layout.output_sum, ledger_.output_sum);
    put(layout.k_mean, ledger_.k_mean);
    put(layout.v_mean, ledger_.v_mean);
    for (size_t head = 0; head < ledger_.free_listed.size(); ++head)
        put(layout.free_slots, ledger_.free_listed[head],
            head * static_cast<size_t>(most_free_listed(geometry_.config())));
    put(layout.positions, index_.cells);
    put(layout.network, geometry_.network(args_.layer));
    return bytes;
}

// Rows of some heads, of which at least a side is plain.
void RebuiltLayer::append(const Segment& segment, Geometry::Heads heads, const std::vector<int32_t>& slots) {
    SlotAppend args;
    args.k = heads_of(rows_.keys(), heads.first, heads.count);
    args.v = heads_of(rows_.values(), heads.first, heads.count);
    args.segment = segment;
    std::vector<int32_t> its = slots; // which the launch reads
    args.slots = heads_of(tensor_over(Type::i32, its, geometry_.shape(args_.layer).kv_heads, 1, rows_.count()),
                          heads.first, heads.count);
    args.token_ids = tensor_over(Type::i32, token_ids_, 1, 1, rows_.count());
    args.k_norm = geometry_.k_norm();
    args.v_norm = geometry_.v_norm();
    finishing(cache_.device, [&] { cache_.device.launch(args); });
}

// The numbers of packed rows of some heads, whose bytes are put back.
void RebuiltLayer::enter(const Rows& packed, Geometry::Heads heads, const std::vector<int32_t>& slots) const {
    Image map(packed.tokens.get());
    for (int64_t head = heads.first; head < heads.first + heads.count; ++head)
        for (int64_t token = 0; token < rows_.count(); ++token) {
            const int32_t slot = slots[static_cast<size_t>(head * rows_.count() + token)];
            if (slot < 0) continue;
            map.put(static_cast<uint64_t>(4 * (head * packed.slots + slot)), &token_ids_[static_cast<size_t>(token)],
                    4);
        }
    map.write();
}

void RebuiltLayer::run() {
    Sequence& sequence = cache_.sequence(args_.sequence);
    Layer& old = sequence.layers[static_cast<size_t>(args_.layer)];
    const PickCounts picks = pick_counts(geometry_, old);
    const uint64_t evictions = old.evictions(geometry_);
    Layer layer(geometry_, args_.layer);
    std::vector<int64_t> slots;
    for (const Part part : geometry_.packed_parts()) slots.push_back(slots_of(part));
    take_memory(cache_.device, geometry_, layer, slots);
    // Rows of a file are in memory before.
    const Passing until_moved(
        cache_, layer.bytes() + (cache_.cold_file ? bytes_of(geometry_, args_.layer, Part::packed, slots.front()) : 0));
    finishing(cache_.device, [&] { fill(layer); });
    if (const char* what = wrong_with(geometry_, sequence.anchors, layer)) refuse_ledger(what);
    move_to_file(cache_, layer);
    cache_.picks += picks;
    cache_.evictions += evictions;
    cache_.layer_bytes += layer.bytes() - old.bytes();
    old = std::move(layer);
}

void RebuiltLayer::fill(Layer& layer) {
    const int64_t limit = geometry_.has_cells() ? most_seen : geometry_.context();
    if (!layer.index.restore(index_, std::max(geometry_.residual(), geometry_.cadence()), limit))
        refuse_ledger("its numbers make no sense");
    layer.most_in_packed = ledger_.facts.most_in_packed;
    layer.free_listed = ledger_.facts.free_listed;
    layer.outputs = ledger_.facts.outputs;
    layer.has_means = !ledger_.k_mean.empty();
    const std::vector<std::byte> state = state_bytes();
    layer.state->write(0, state.data(), state.size());
    std::vector<std::vector<int32_t>> slots; // of the segments that have some
    for (size_t which = 0; which < slots_.size(); ++which) {
        const Part part = geometry_.parts()[which];
        if (layer.rows(part).slots == 0) continue;
        for (const Geometry::Heads& heads : geometry_.alike(args_.layer)) {
            const Segment segment = layer.segment(geometry_, part, heads);
            if (is_packed(segment.k.type) && is_packed(segment.v.type))
                enter(layer.rows(part), heads, slots_[which]);
            else
                append(segment, heads, slots_[which]);
        }
        slots.push_back(slots_[which]);
    }
    put_back(cache_, layer, rows_, slots, true);
    mark_anchors(cache_, layer, cache_.sequence(args_.sequence).anchors, {0, no_end});
}

} // namespace winnow::cache
