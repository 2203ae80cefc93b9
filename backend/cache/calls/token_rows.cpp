// Rows pass through single precision in the host's memory, some tokens at a time; the device converts on both sides.
#include "cache/calls/token_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "cache/calls/restored_tokens.hpp"
#include "cache/failures.hpp"
#include "cache/layer/token_ids.hpp"
#include "cache/recall/cold_rows.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t most_at_once = 256; // tokens

// Keys or values: of a host's rows and of the segments.
struct Side {
    const Tensor CacheRows::*rows;
    Tensor Segment::*stored;
    Tensor Segment::*mean;
    int64_t size;
    Norm norm;
};

class RowAccess {
public:
    RowAccess(CacheState& cache, const CacheRows& args)
        : cache_(cache), args_(args), layer_(cache.sequence(args.sequence).layers[static_cast<size_t>(args.layer)]),
          heads_(cache.geometry->shape(args.layer).kv_heads), count_((args.k ? args.k : args.v).shape[2]) {
        const LayerShape& shape = cache.geometry->shape(args.layer);
        const Config& config = cache.geometry->config();
        if (args.k) sides_.push_back({&CacheRows::k, &Segment::k, &Segment::k_mean, shape.head_size, config.k_norm()});
        if (args.v)
            sides_.push_back({&CacheRows::v, &Segment::v, &Segment::v_mean, shape.v_head_size, config.v_norm()});
    }

    void read() {
        find();
        for (const Side& side : sides_)
            for (first_ = 0; first_ < count_; first_ += most_at_once) read(side);
    }

    void write() {
        find();
        layer_.is_signed = false;
        if (!fetched_) {
            write_sides();
            return;
        }
        keeping_layer(cache_, layer_, [&] {
            fetched_->changed_rows();
            write_sides();
            fetched_->store();
        });
    }

    Resident resident() {
        Resident resident{count_, std::vector<bool>(static_cast<size_t>(heads_ * count_))};
        const Side& keys = sides_.front();
        for (first_ = 0; first_ < count_; first_ += most_at_once) {
            const std::vector<float> values = from_host(keys);
            for (int64_t head = 0; head < heads_; ++head)
                for (int64_t i = 0; i < now(); ++i)
                    resident.of[static_cast<size_t>(head * count_ + first_ + i)] =
                        !std::isnan(values[at(head, i) * static_cast<size_t>(keys.size)]);
        }
        return resident;
    }

private:
    // What heads that store alike have of a segment, of those that have slots the one of this number.
    struct Piece {
        Segment segment;
        size_t which;
        Geometry::Heads heads;
    };

    void write_sides() {
        for (const Side& side : sides_)
            for (first_ = 0; first_ < count_; first_ += most_at_once) write(side);
    }

    int64_t now() const { return std::min(most_at_once, count_ - first_); }
    size_t at(int64_t head, int64_t row) const { return static_cast<size_t>(head * now() + row); }

    void find() {
        const Geometry& geometry = *cache_.geometry;
        const int64_t limit = geometry.has_cells() ? geometry.request().cells : geometry.context();
        slots_ = find_slots(cache_, layer_, read_token_ids(args_.tokens, "tokens", limit));
        if (layer_.packed.slots > 0 && !is_none(slots_.back())) fetched_.emplace(cache_, layer_);
        const std::vector<Part> parts = layer_.parts(geometry);
        for (size_t each = 0; each < parts.size(); ++each)
            for (const Geometry::Heads& heads : geometry.alike(layer_.number))
                pieces_.push_back({layer_.segment(geometry, parts[each], heads), each, heads});
    }

    static bool is_none(const std::vector<int32_t>& slots) {
        return std::all_of(slots.begin(), slots.end(), [](int32_t slot) { return slot < 0; });
    }

    // The slots of the tokens in turn, [head of the piece][token].
    std::vector<int32_t> slots_now(const Piece& piece) const {
        std::vector<int32_t> slots;
        for (int64_t head = piece.heads.first; head < piece.heads.first + piece.heads.count; ++head) {
            const auto from = slots_[piece.which].begin() + head * count_ + first_;
            slots.insert(slots.end(), from, from + now());
        }
        return slots;
    }

    // The means of each head, [head of the piece][element]; zeros where the segment has none.
    std::vector<float> means_of(const Side& side, const Piece& piece) const {
        std::vector<float> means(static_cast<size_t>(piece.heads.count * side.size), 0);
        const Tensor& tensor = piece.segment.*side.mean;
        if (tensor) tensor.buffer->read(tensor.offset, means.data(), 4 * means.size());
        return means;
    }

    std::vector<float> rows_in_turn(const Side& side) const {
        return std::vector<float>(static_cast<size_t>(heads_ * now() * side.size),
                                  std::numeric_limits<float>::quiet_NaN());
    }

    Tensor host_rows(const Side& side) const { return rows_of(args_.*side.rows, first_, now()); }

    std::vector<float> from_host(const Side& side) {
        std::vector<float> values = rows_in_turn(side);
        KvDequantize args;
        args.src = host_rows(side);
        args.dst = tensor_over(Type::f32, values, heads_, now(), side.size);
        run(args);
        return values;
    }

    void to_host(const Side& side, std::vector<float>& values) {
        std::vector<int32_t> in_order(static_cast<size_t>(now()));
        std::iota(in_order.begin(), in_order.end(), 0);
        AppendRows rows;
        rows.src = tensor_over(Type::f32, values, heads_, now(), side.size);
        rows.cache = host_rows(side);
        rows.row_indices = tensor_over(Type::i32, in_order, 1, 1, now());
        run(KvAppend{.k = rows, .v = {}});
    }

    void read(const Side& side) {
        std::vector<float> values = rows_in_turn(side);
        for (const Piece& piece : pieces_) {
            std::vector<int32_t> slots = slots_now(piece);
            if (is_none(slots)) continue;
            std::vector<float> stored(slots.size() * static_cast<size_t>(side.size));
            KvDequantize args;
            args.src = piece.segment.*side.stored;
            args.dst = tensor_over(Type::f32, stored, piece.heads.count, now(), side.size);
            args.row_indices = tensor_over(Type::i32, slots, piece.heads.count, 1, now());
            run(args);
            float* const its = &values[at(piece.heads.first, 0) * static_cast<size_t>(side.size)];
            if (piece.segment.*side.mean) {
                const std::vector<float> means = means_of(side, piece);
                each_element(side, slots, [&](size_t mean, size_t at) { its[at] = stored[at] + means[mean]; });
            } else { // nothing is added, not even to a -0
                each_element(side, slots, [&](size_t, size_t at) { its[at] = stored[at]; });
            }
        }
        to_host(side, values);
    }

    void write(const Side& side) {
        const std::vector<float> values = from_host(side);
        for (const Piece& piece : pieces_) {
            std::vector<int32_t> slots = slots_now(piece);
            const auto first = values.begin() + static_cast<int64_t>(at(piece.heads.first, 0)) * side.size;
            std::vector<float> less(first, first + static_cast<int64_t>(slots.size()) * side.size);
            for (size_t row = 0; row < slots.size(); ++row)
                if (std::isnan(less[row * static_cast<size_t>(side.size)])) slots[row] = -1;
            if (is_none(slots)) continue;
            const std::vector<float> means = means_of(side, piece);
            each_element(side, slots, [&](size_t mean, size_t at) { less[at] -= means[mean]; });
            AppendRows rows;
            rows.src = tensor_over(Type::f32, less, piece.heads.count, now(), side.size);
            rows.cache = piece.segment.*side.stored;
            rows.row_indices = tensor_over(Type::i32, slots, piece.heads.count, 1, now());
            rows.norm = side.norm;
            run(KvAppend{.k = rows, .v = {}});
        }
    }

    // action(index into the means, index into the rows) for the elements of a piece's rows that have a slot.
    template <class Action>
    void each_element(const Side& side, const std::vector<int32_t>& slots, Action&& action) const {
        const auto size = static_cast<size_t>(side.size);
        for (size_t row = 0; row < slots.size(); ++row) {
            if (slots[row] < 0) continue;
            const size_t head = row / static_cast<size_t>(now());
            for (size_t element = 0; element < size; ++element) action(head * size + element, row * size + element);
        }
    }

    template <class Args>
    void run(const Args& args) {
        finishing(cache_.device,
                  [&] { cache_.device.launch(args, false); }); // what it reads and writes is on the stack
    }

    CacheState& cache_;
    const CacheRows& args_;
    Layer& layer_;
    std::optional<Fetched> fetched_;
    int64_t heads_, count_;
    int64_t first_ = 0; // of the tokens in turn
    std::vector<Side> sides_;
    std::vector<Piece> pieces_;
    std::vector<std::vector<int32_t>> slots_; // of each segment, [head][token]; -1: not there
};

} // namespace

std::vector<std::vector<int32_t>> find_slots(const CacheState& cache, const Layer& layer,
                                             const std::vector<int32_t>& token_ids) {
    const int64_t heads = cache.geometry->shape(layer.number).kv_heads;
    const size_t count = token_ids.size();
    std::vector<std::vector<int32_t>> found;
    for (const Part part : layer.parts(*cache.geometry)) {
        const Rows* const segment = &layer.rows(part);
        const std::vector<int32_t> map = layer.map_of(*cache.geometry, *segment);
        std::vector<int32_t>& slots = found.emplace_back(static_cast<size_t>(heads) * count, -1);
        for (int64_t head = 0; head < heads; ++head) {
            std::unordered_map<int32_t, int32_t> slot_of;
            for (int64_t slot = 0; slot < segment->slots; ++slot) {
                const int32_t entry = map[static_cast<size_t>(head * segment->slots + slot)];
                if (entry >= 0) slot_of[entry & ~anchor_flag] = static_cast<int32_t>(slot);
            }
            for (size_t i = 0; i < count; ++i) {
                const auto at = slot_of.find(token_ids[i]);
                if (at != slot_of.end()) slots[static_cast<size_t>(head) * count + i] = at->second;
            }
        }
    }
    return found;
}

void read(CacheState& cache, const CacheRows& rows) { RowAccess(cache, rows).read(); }

void write(CacheState& cache, const CacheRows& rows) { RowAccess(cache, rows).write(); }

void append_rows(CacheState& cache, const CacheRows& rows) {
    CacheStep step;
    step.layer = rows.layer;
    step.sequence = rows.sequence;
    step.k = rows.k;
    step.v = rows.v;
    step.cells = rows.tokens;
    const Resident resident = RowAccess(cache, rows).resident();
    changing(cache.device, [&] { restore_tokens(cache, step, resident); });
}

} // namespace winnow::cache
