// Records become packed bytes and values; packed rows are dequantized by the device, some formats' at a time.
#include "cache/state/incoming_rows.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "cache/calls/token_rows.hpp"
#include "cache/failures.hpp"
#include "cache/state/row_record.hpp"

namespace winnow::cache {
namespace {

std::string name_of(const char* side, int64_t head, int64_t token) {
    return std::string(side) + " of token " + std::to_string(token) + " in head " + std::to_string(head);
}

} // namespace

IncomingRows::IncomingRows(CacheState& cache, const CacheRows& args)
    : cache_(cache), heads_(cache.geometry->shape(args.layer).kv_heads), count_(args.k.shape[2]),
      has_v_in_k_(args.has_v_in_k) {
    const LayerShape& shape = cache.geometry->shape(args.layer);
    importance_.assign(static_cast<size_t>(heads_ * count_), 0);
    k_.name = "k", k_.size = shape.head_size;
    v_.name = "v", v_.size = shape.v_head_size;
    ExactRows keys(args.k, "k");
    for (Side* side : {&k_, &v_}) {
        side->is_resident.assign(static_cast<size_t>(heads_ * count_), false);
        side->place.assign(static_cast<size_t>(heads_ * count_), -1);
    }
    parse(k_, keys, args.v_first);
    ExactRows values = has_v_in_k_ ? keys.part(args.v_first, v_.size) : ExactRows(args.v, "v");
    if (!has_v_in_k_) {
        if (!ledger_) rooms_.clear(); // parts of the keys may have one each, and others none
        parse(v_, values, 0);
    }
    check_means();
    convert(k_, keys, ledger_ ? ledger_->k_mean : std::vector<float>());
    convert(v_, values, ledger_ ? ledger_->v_mean : std::vector<float>());
    if (ledger_) weigh(*ledger_);
}

void IncomingRows::parse(Side& side, ExactRows& rows, int64_t v_first) {
    const bool are_keys = &side == &k_;
    for (int64_t token = 0; token < count_; ++token)
        for (int64_t head = 0; head < heads_; ++head) {
            const size_t row = at(head, token);
            const std::span<std::byte> bytes = rows.row(head, token);
            try {
                RowRecord record = read_record(bytes, side.size, are_keys && has_v_in_k_ ? v_.size : 0, v_first);
                side.is_resident[row] = record.kind != RowRecord::Kind::evicted &&
                                        (record.kind != RowRecord::Kind::plain || !rows.is_nan(head, token));
                std::vector<std::byte> plain;
                if (is_squeezed(record.kind)) {
                    plain.resize(bytes.size());
                    record.room = unsqueeze(record, rows.type(), plain);
                }
                if (!are_keys && record.kind == RowRecord::Kind::evicted && k_.is_resident[row])
                    refuse("a record of no row, expected a value beside the key");
                if (record.kind == RowRecord::Kind::packed) {
                    if (are_keys && has_v_in_k_ && record.v_type == Type::none)
                        refuse("a packed key, expected one with its value");
                    add_packed(side, row, record.type, record.has_mean, record.payload);
                    if (record.v_type != Type::none)
                        add_packed(v_, row, record.v_type, record.has_mean, record.v_payload);
                }
                if (are_keys && record.importance) importance_[row] = *record.importance;
                if (!ledger_) collect(token, record.room);
                std::copy(plain.begin(), plain.end(), bytes.begin());
            } catch (const Error& error) {
                throw Error(error.status(), name_of(side.name, head, token) + ": " + error.what());
            }
        }
    if (!ledger_) join_ledgers();
}

void IncomingRows::add_packed(Side& side, size_t row, Type type, bool has_mean,
                              std::span<const std::byte> bytes) const {
    auto at = std::find_if(side.packed.begin(), side.packed.end(),
                           [&](const Packed& each) { return each.type == type && each.has_mean == has_mean; });
    if (at == side.packed.end()) {
        side.packed.push_back({.type = type, .has_mean = has_mean, .of = {}, .bytes = {}});
        at = std::prev(side.packed.end());
    }
    side.place[row] = static_cast<int64_t>(at->of.size());
    at->of.push_back(row);
    at->bytes.insert(at->bytes.end(), bytes.begin(), bytes.end());
}

void IncomingRows::collect(int64_t token, std::span<const std::byte> room) {
    if (room.empty()) return;
    rooms_.emplace_back(token, std::vector<std::byte>(room.begin(), room.end()));
}

// Rows that were exported by several calls have a ledger for each: one begins in the first room of its tokens.
void IncomingRows::join_ledgers() {
    std::optional<Ledger> joined;
    int64_t covered = 0;
    for (size_t next = 0; next < rooms_.size();) {
        if (rooms_[next].first < covered) { // behind the end of a ledger
            ++next;
            continue;
        }
        std::vector<std::byte> bytes;
        const auto take = [&](size_t size) {
            while (bytes.size() < size && next < rooms_.size()) {
                bytes.insert(bytes.end(), rooms_[next].second.begin(), rooms_[next].second.end());
                ++next;
            }
            return bytes.size() >= size;
        };
        if (!take(ledger_head)) return;
        const size_t size = ledger_size(bytes);
        if (size == 0 || !take(size)) return;
        std::optional<Ledger> one = to_ledger(std::span(bytes).subspan(0, size), heads_, count_ - covered);
        if (!one) return;
        covered += static_cast<int64_t>(one->tokens.size());
        if (!joined)
            joined = std::move(one);
        else if (!joined->append(*one))
            return;
    }
    if (covered == count_) ledger_ = std::move(joined);
}

void IncomingRows::weigh(const Ledger& ledger) {
    for (size_t head = 0; head < ledger.importance.size(); ++head) {
        const std::vector<int64_t>& slots = ledger.slots[head];
        size_t entry = 0;
        for (size_t token = 0; token < slots.size(); ++token)
            if (slots[token] >= 0)
                importance_[at(static_cast<int64_t>(head), static_cast<int64_t>(token))] =
                    ledger.importance[head][entry++];
    }
}

bool IncomingRows::has_importance() const {
    return std::any_of(importance_.begin(), importance_.end(), [](float weight) { return weight != 0; });
}

void IncomingRows::check_means() const {
    if (ledger_ && !ledger_->k_mean.empty() &&
        (static_cast<int64_t>(ledger_->k_mean.size()) != heads_ * k_.size ||
         static_cast<int64_t>(ledger_->v_mean.size()) != heads_ * v_.size))
        refuse("the rows' ledger has means of other sizes than the heads");
    for (const Side* side : {&k_, &v_})
        for (const Packed& packed : side->packed)
            if (packed.has_mean && (!ledger_ || ledger_->k_mean.empty()))
                refuse(std::string(side->name) + " has rows that are less a head's mean, and the mean is not there");
}

// Values of plain rows as they are, of packed ones dequantized.
void IncomingRows::convert(Side& side, ExactRows& rows, const std::vector<float>& means) {
    side.numbers.assign(static_cast<size_t>(heads_ * count_ * side.size), std::numeric_limits<float>::quiet_NaN());
    side.values = tensor_over(Type::f32, side.numbers, heads_, count_, side.size);
    const auto run = [&](const KvDequantize& args) {
        finishing(cache_.device, [&] { cache_.device.launch(args, false); });
    };
    run({.src = rows.tensor(), .dst = side.values, .row_indices = {}});
    const auto size = static_cast<size_t>(side.size);
    for (Packed& packed : side.packed) {
        const auto count = static_cast<int64_t>(packed.of.size());
        const auto row = static_cast<int64_t>(row_bytes(packed.type, side.size));
        Tensor from;
        from.type = packed.type;
        from.data = packed.bytes.data();
        from.shape = {1, 1, count, side.size};
        from.stride = {count * row, count * row, row, 0};
        std::vector<float> numbers(static_cast<size_t>(count) * size);
        run({.src = from, .dst = tensor_over(Type::f32, numbers, 1, count, side.size), .row_indices = {}});
        for (size_t i = 0; i < packed.of.size(); ++i) {
            const size_t head = packed.of[i] / static_cast<size_t>(count_);
            for (size_t d = 0; d < size; ++d)
                side.numbers[packed.of[i] * size + d] =
                    numbers[i * size + d] + (packed.has_mean ? means[head * size + d] : 0);
        }
    }
    for (size_t i = 0; i < k_.is_resident.size(); ++i)
        if (!k_.is_resident[i])
            std::fill_n(side.numbers.begin() + static_cast<int64_t>(i * size), size,
                        std::numeric_limits<float>::quiet_NaN());
}

std::span<const std::byte> IncomingRows::packed(const Side& side, size_t row, Type type, bool has_mean) {
    if (side.place[row] < 0) return {};
    const auto place = static_cast<size_t>(side.place[row]);
    const uint64_t size = row_bytes(type, side.size);
    for (const Packed& each : side.packed)
        if (each.type == type && each.has_mean == has_mean && place < each.of.size() && each.of[place] == row)
            return std::span(each.bytes).subspan(place * size, size);
    return {};
}

std::span<const std::byte> IncomingRows::packed_key(int64_t head, int64_t token, Type type, bool has_mean) const {
    return packed(k_, at(head, token), type, has_mean);
}

std::span<const std::byte> IncomingRows::packed_value(int64_t head, int64_t token, Type type, bool has_mean) const {
    return packed(v_, at(head, token), type, has_mean);
}

} // namespace winnow::cache
