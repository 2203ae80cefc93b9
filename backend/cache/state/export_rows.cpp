// Exports rows: plain ones as read has them; in the place of packed ones, and of those that heads evicted, records. The
// ledger goes into the rooms of the keys' records, in the order of the tokens, and into those of values that are
// exported alone; where they have too little, plain rows are squeezed, from the first on. Where all of them have too
// little, each row takes its own importance. What then still has no place is refused, and the host's memory is as
// before.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "cache/calls/token_rows.hpp"
#include "cache/failures.hpp"
#include "cache/layer/token_ids.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/state/exact_rows.hpp"
#include "cache/state/ledger.hpp"
#include "cache/state/row_record.hpp"

namespace winnow::cache {
namespace {

class Export {
public:
    Export(CacheState& cache, const CacheRows& args)
        : cache_(cache), geometry_(*cache.geometry), shape_(geometry_.shape(args.layer)), args_(args),
          layer_(cache.sequence(args.sequence).layers[static_cast<size_t>(args.layer)]), index_(layer_.index.save()),
          token_ids_(read_token_ids(args.tokens, "tokens",
                                    geometry_.has_cells() ? geometry_.request().cells : geometry_.context())),
          parts_(layer_.parts(geometry_)), slots_(find_slots(cache, layer_, token_ids_)) {}

    void run() {
        const Fetched fetched(cache_, layer_);
        CacheRows rows = args_;
        std::optional<ExactRows> keys, values;
        if (args_.k) rows.k = keys.emplace(args_.k, "k").tensor();
        if (args_.v) rows.v = values.emplace(args_.v, "v").tensor();
        read(cache_, rows);
        if (layer_.state) { // else the layer holds nothing
            if (keys) expect_exact(*keys, true);
            if (values) expect_exact(*values, false);
            if (keys) write_keys(*keys);
            if (values) write_values(*values);
        }
        for (const std::optional<ExactRows>* each : {&keys, &values})
            if (*each) (*each)->store();
    }

private:
    int64_t count() const { return static_cast<int64_t>(token_ids_.size()); }
    size_t at(int64_t head, int64_t token) const { return static_cast<size_t>(head * count() + token); }
    // The segment, of those that have slots, in which a head holds a token; none where it does not.
    std::optional<size_t> segment_of(int64_t head, int64_t token) const {
        for (size_t which = 0; which < parts_.size(); ++which)
            if (slots_[which][at(head, token)] >= 0) return which;
        return std::nullopt;
    }
    bool is_resident(int64_t head, int64_t token) const { return segment_of(head, token).has_value(); }
    bool is_dense(int64_t head, int64_t token) const {
        const std::optional<size_t> which = segment_of(head, token);
        return which && parts_[*which] == Part::dense;
    }
    // A head's slots of the tokens in one segment.
    std::span<const int32_t> slots_in(size_t which, int64_t head) const {
        return std::span(slots_[which]).subspan(at(head, 0), token_ids_.size());
    }

    [[noreturn]] void refuse_row(const char* name, int64_t head, int64_t token, const std::string& why) const {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    std::string(name) + " of token " + std::to_string(token_ids_[static_cast<size_t>(token)]) +
                        " in head " + std::to_string(head) + " of layer " + std::to_string(args_.layer) + ": " + why +
                        "; no exact rows, but cache_read gives rounded ones without importance");
    }

    // Whether rows of a head in one segment become records with the bytes of packed rows.
    bool has_packed_bytes(size_t which, int64_t head, bool are_keys) const {
        const RowFormats& its = geometry_.formats_of_head(args_.layer, parts_[which], head);
        return is_packed(are_keys ? its.k : its.v) && (!are_keys || !args_.has_v_in_k || is_packed(its.v));
    }

    // The segment of a row that stays plain; none where there is no row, or packed bytes.
    std::optional<size_t> plain_segment(int64_t head, int64_t token, bool are_keys) const {
        const std::optional<size_t> which = segment_of(head, token);
        return which && !has_packed_bytes(*which, head, are_keys) ? which : std::nullopt;
    }

    void expect_exact(ExactRows& rows, bool are_keys) {
        for (int64_t head = 0; are_keys && head < shape_.kv_heads; ++head)
            for (int64_t token = 0; token < count(); ++token)
                if (plain_segment(head, token, true) && rows.is_nan(head, token))
                    refuse_row("k", head, token, "it begins with NaN, as rows of tokens do that a head does not hold");
        expect_same(rows, are_keys, are_keys);
        if (!are_keys || !args_.has_v_in_k) return;
        ExactRows values = rows.part(args_.v_first, shape_.v_head_size);
        expect_same(values, true, false);
    }

    // Refuses plain rows that elements of the host's type do not hold. in_k: they are rows of the host's keys.
    void expect_same(ExactRows& rows, bool in_k, bool are_keys) {
        const auto may_lose = [&](int64_t head, int64_t token) {
            const std::optional<size_t> which = plain_segment(head, token, in_k);
            if (!which) return false;
            const RowFormats& its = geometry_.formats_of_head(args_.layer, parts_[*which], head);
            return in_k != are_keys || (are_keys ? its.k : its.v) != rows.type() ||
                   (layer_.has_means && parts_[*which] != Part::dense);
        };
        std::vector<std::pair<int64_t, int64_t>> doubtful;
        for (int64_t head = 0; head < shape_.kv_heads; ++head)
            for (int64_t token = 0; token < count(); ++token)
                if (may_lose(head, token)) doubtful.emplace_back(head, token);
        if (doubtful.empty()) return;
        std::vector<float> stored(static_cast<size_t>(shape_.kv_heads * count() * rows.size())), given = stored;
        const auto over = [&](std::vector<float>& values) {
            return tensor_over(Type::f32, values, shape_.kv_heads, count(), rows.size());
        };
        CacheRows wanted = args_;
        wanted.k = are_keys ? over(stored) : Tensor();
        wanted.v = are_keys ? Tensor() : over(stored);
        read(cache_, wanted);
        finishing(cache_.device, [&] {
            cache_.device.launch(KvDequantize{.src = rows.tensor(), .dst = over(given), .row_indices = {}}, false);
        });
        const auto size = static_cast<size_t>(rows.size());
        const auto is_same = [](float a, float b) {
            return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
        };
        for (const auto& [head, token] : doubtful) {
            const auto from = static_cast<std::ptrdiff_t>(at(head, token) * size);
            if (std::equal(stored.begin() + from, stored.begin() + from + rows.size(), given.begin() + from, is_same))
                continue;
            if (in_k != are_keys)
                refuse_row("k", head, token,
                           "the value is not the part of the key that begins at element " +
                               std::to_string(args_.v_first));
            const RowFormats& its = geometry_.formats_of_head(args_.layer, parts_[*segment_of(head, token)], head);
            refuse_row(in_k ? "k" : "v", head, token,
                       std::string(type_name(rows.type())) + " does not hold the row, which is stored in " +
                           type_name(are_keys ? its.k : its.v) + (layer_.has_means ? " and may be less a mean" : ""));
        }
    }

    // Values that are less their means are of no use without a ledger. Where they have no room for it, the keys of all
    // of these tokens have to have it.
    void expect_means_in_keys() {
        std::vector<std::byte> bytes(static_cast<size_t>(shape_.kv_heads * count() * 2 * shape_.head_size));
        CacheRows keys = args_;
        keys.v = {};
        keys.k = args_.v;
        keys.k.shape[3] = shape_.head_size;
        const int64_t row = 2 * shape_.head_size;
        keys.k.stride = {shape_.kv_heads * count() * row, count() * row, row, 2};
        keys.k.buffer = nullptr;
        keys.k.data = bytes.data();
        keys.k.offset = 0;
        read(cache_, keys);
        ExactRows rows(keys.k, "k");
        const auto of_values = std::exchange(rooms_, {});
        write_keys(rows);
        rooms_ = of_values;
    }

    void write_keys(ExactRows& rows) {
        mark_packed(rows, true);
        for (int64_t token = 0; token < count(); ++token)
            for (int64_t head = 0; head < shape_.kv_heads; ++head)
                if (!is_resident(head, token) && is_known(token))
                    room(head, token) = write_evicted(rows.row(head, token));
        const bool has_ledger = !is_told_by_rows(rows) && carry_ledger(rows);
        if (!has_ledger) weigh(rows);
        seal_all(rows);
    }

    void write_values(ExactRows& rows) {
        mark_packed(rows, false);
        // Keys that were exported before, in parts of which some had too little room, may have no ledger of all tokens.
        const bool has_ledger = !args_.k && !is_told_by_rows(rows) && carry_ledger(rows);
        if (!args_.k && layer_.has_means && !has_ledger) expect_means_in_keys();
        seal_all(rows);
    }

    // Makes records of the rows of packed segments.
    void mark_packed(ExactRows& rows, bool are_keys) {
        rooms_.assign(static_cast<size_t>(shape_.kv_heads * count()), {});
        for (size_t which = 0; which < parts_.size(); ++which)
            if (parts_[which] != Part::dense) mark_packed(rows, which, are_keys);
    }

    void mark_packed(ExactRows& rows, size_t which, bool are_keys) {
        const Part part = parts_[which];
        const bool has_values = are_keys && args_.has_v_in_k;
        for (int64_t head = 0; head < shape_.kv_heads; ++head) {
            if (!has_packed_bytes(which, head, are_keys)) continue;
            const Segment segment = layer_.segment(geometry_, part, {head, 1});
            const Tensor &side = are_keys ? segment.k : segment.v, &v = segment.v;
            const Type type = side.type, v_type = v.type;
            SlotBytes bytes(side.buffer, side.offset, row_bytes(type, rows.size())),
                values(v.buffer, v.offset, row_bytes(v_type, shape_.v_head_size));
            bytes.read(slots_in(which, head));
            if (has_values) values.read(slots_in(which, head));
            for (int64_t token = 0; token < count(); ++token) {
                const int32_t slot = slots_[which][at(head, token)];
                if (slot < 0) continue;
                PackedRow record{.type = type, .has_mean = layer_.has_means, .bytes = bytes.at(slot)};
                if (has_values)
                    record.v_type = v_type, record.v_bytes = values.at(slot), record.v_first = args_.v_first;
                room(head, token) = write_packed(rows.row(head, token), record);
                if (room(head, token).data() == nullptr)
                    refuse_row(are_keys ? "k" : "v", head, token,
                               "its packed row of " + std::to_string(record.bytes.size() + record.v_bytes.size()) +
                                   " bytes has no place in the " + std::to_string(2 * rows.size()) + " of a row");
            }
        }
    }

    std::span<std::byte>& room(int64_t head, int64_t token) { return rooms_[at(head, token)]; }

    void seal_all(ExactRows& rows) {
        for (int64_t head = 0; head < shape_.kv_heads; ++head)
            for (int64_t token = 0; token < count(); ++token)
                if (room(head, token).data() != nullptr)
                    seal(rows.row(head, token));
                else
                    keep_plain(rows.row(head, token));
    }

    // Whether the layer was given the token, and it was not removed.
    bool is_known(int64_t token) const { return layer_.index.holds(token_ids_[static_cast<size_t>(token)]); }

    bool carry_ledger(ExactRows& rows) {
        Ledger ledger = make_ledger();
        if (carry(rows, ledger)) return true;
        ledger.output_sum.clear();
        ledger.facts.outputs = 0;
        return carry(rows, ledger);
    }

    // False, and nothing is done, where it finds no room.
    bool carry(ExactRows& rows, const Ledger& ledger) {
        const std::vector<std::byte> bytes = to_bytes(ledger);
        if (!make_room(rows, bytes.size())) return false;
        std::span<const std::byte> rest = bytes;
        for (int64_t token = 0; token < count(); ++token)
            for (int64_t head = 0; head < shape_.kv_heads; ++head) {
                const std::span<std::byte> to = room(head, token);
                const size_t size = std::min(to.size(), rest.size());
                std::copy_n(rest.begin(), size, to.begin());
                rest = rest.subspan(size);
            }
        return true;
    }

    // Whether rows and their importance tell all that matters, so that no ledger is needed. Two things are required:
    // no row has come into the packed segment so far, and the places of the rows are implied. They are where some of
    // the layer's tokens are not exported, as the places do not matter then; or where appending the rows to an empty
    // layer leads to the same places. So a sequence is exported as the same bytes beside other sequences and alone.
    bool is_told_by_rows(ExactRows& rows) const {
        if (layer_.has_means || index_.moved > 0) return false;
        if (geometry_.residual() == 0 && !index_.newest.empty()) return false;
        int64_t known = 0;
        for (int64_t token = 0; token < count(); ++token) known += is_known(token);
        return known < layer_.index.tokens() || (is_as_appended() && all_can_have_importance(rows));
    }

    bool is_as_appended() const {
        if (layer_.outputs > 0 || layer_.free_listed > 0 || index_.next != count()) return false;
        for (int64_t token = 0; token < count(); ++token) {
            const Ledger::Token its = place_of(token);
            if (its.position != token || its.place != token + 1) return false;
            for (int64_t head = 0; head < shape_.kv_heads; ++head)
                if (!is_dense(head, token)) return false;
        }
        return true;
    }

    bool all_can_have_importance(ExactRows& rows) const {
        if (!geometry_.keeps_importance()) return true;
        for (int64_t head = 0; head < shape_.kv_heads; ++head)
            for (int64_t token = 0; token < count(); ++token)
                if (room_of_squeezed(rows.row(head, token), rows.type()) < sizeof(float)) return false;
        return true;
    }

    // For rows without a ledger.
    void weigh(ExactRows& rows) {
        for (int64_t head = 0; layer_.has_means && head < shape_.kv_heads; ++head)
            for (int64_t token = 0; token < count(); ++token)
                if (is_resident(head, token) && !is_dense(head, token))
                    refuse_row("k", head, token, "it is stored less a mean, which has no place in so few rows");
        if (!geometry_.keeps_importance()) return;
        for (int64_t head = 0; head < shape_.kv_heads; ++head) {
            const std::vector<float> importance = importance_of(head);
            size_t resident = 0;
            for (int64_t token = 0; token < count(); ++token) {
                if (!is_resident(head, token)) continue;
                const float its = importance[resident++];
                const std::span<std::byte> row = rows.row(head, token);
                std::span<std::byte>& its_room = room(head, token);
                bool has_room = its == 0; // as without one
                if (!has_room && its_room.data() != nullptr) has_room = add_importance(row, its_room, its);
                if (!has_room && its_room.data() == nullptr) {
                    its_room = write_with_importance(row, rows.type(), its);
                    has_room = its_room.data() != nullptr;
                }
                if (!has_room) refuse_row("k", head, token, "its importance has no place beside the row");
            }
        }
    }

    // Squeezes no more rows than so many bytes need, and none where all are too few.
    bool make_room(ExactRows& rows, size_t needed) {
        size_t has = 0;
        for (const std::span<std::byte>& each : rooms_) has += each.size();
        std::vector<std::pair<int64_t, int64_t>> squeezed;
        for (int64_t token = 0; token < count(); ++token)
            for (int64_t head = 0; head < shape_.kv_heads && has < needed; ++head) {
                if (room(head, token).data() != nullptr || !is_resident(head, token)) continue;
                const size_t more = room_of_squeezed(rows.row(head, token), rows.type());
                if (more == 0) continue;
                has += more;
                squeezed.emplace_back(head, token);
            }
        if (has < needed) return false;
        for (const auto& [head, token] : squeezed)
            room(head, token) = write_squeezed(rows.row(head, token), rows.type());
        return true;
    }

    Ledger make_ledger() {
        Ledger ledger;
        ledger.digest = digest_of(geometry_, args_.layer);
        const auto newest = static_cast<int64_t>(index_.newest.size());
        ledger.facts = {index_.next,           index_.moved,       newest,        layer_.packed.slots,
                        layer_.most_in_packed, layer_.free_listed, layer_.outputs};
        for (const Part part : geometry_.packed_parts().subspan(1))
            ledger.lower_slots.push_back(layer_.rows(part).slots);
        for (int64_t token = 0; token < count(); ++token) ledger.tokens.push_back(place_of(token));
        for (int64_t head = 0; head < shape_.kv_heads; ++head) {
            std::vector<int64_t>& slots = ledger.slots.emplace_back();
            for (int64_t token = 0; token < count(); ++token) {
                const std::optional<size_t> which = segment_of(head, token);
                int64_t slot = which ? slots_[*which][at(head, token)] : -1;
                for (size_t before = 0; which && before < *which; ++before) slot += layer_.rows(parts_[before]).slots;
                slots.push_back(slot);
            }
            if (layer_.free_listed > 0) ledger.free_listed.push_back(free_listed_of(head));
            if (geometry_.keeps_importance()) ledger.importance.push_back(importance_of(head));
        }
        const StateLayout& layout = geometry_.state(layer_.number);
        ledger.output_sum = layer_.read_state<float>(layout.output_sum);
        if (layer_.has_means) {
            ledger.k_mean = layer_.read_state<float>(layout.k_mean);
            ledger.v_mean = layer_.read_state<float>(layout.v_mean);
        }
        return ledger;
    }

    Ledger::Token place_of(int64_t token) const {
        Ledger::Token its;
        const int32_t token_id = token_ids_[static_cast<size_t>(token)];
        if (!is_known(token)) return its;
        its.position = geometry_.has_cells() ? index_.cells[static_cast<size_t>(token_id)] : token_id;
        const auto sink = std::find(index_.sinks.begin(), index_.sinks.end(), token_id);
        const auto newest = std::find(index_.newest.begin(), index_.newest.end(), token_id);
        if (sink != index_.sinks.end())
            its.place = sink - index_.sinks.begin() + 1;
        else if (newest != index_.newest.end())
            its.place = newest - index_.newest.begin() + 1 + geometry_.sink();
        return its;
    }

    std::vector<int32_t> free_listed_of(int64_t head) const {
        const std::vector<int32_t> all = layer_.read_state<int32_t>(geometry_.state(layer_.number).free_slots);
        const auto first = all.begin() + head * most_free_listed(geometry_.config());
        return {first, first + layer_.free_listed};
    }

    std::vector<float> importance_of(int64_t head) const {
        std::vector<float> values;
        std::vector<SlotBytes> of_segments;
        for (size_t which = 0; which < parts_.size(); ++which) {
            const Rows& its = layer_.rows(parts_[which]);
            of_segments.emplace_back(its.importance.get(), static_cast<uint64_t>(4 * head * its.slots), 4)
                .read(slots_in(which, head));
        }
        for (int64_t token = 0; token < count(); ++token)
            if (const std::optional<size_t> which = segment_of(head, token))
                std::memcpy(&values.emplace_back(), of_segments[*which].at(slots_[*which][at(head, token)]).data(), 4);
        return values;
    }

    CacheState& cache_;
    const Geometry& geometry_;
    const LayerShape& shape_;
    const CacheRows& args_;
    Layer& layer_;
    const TokenIndex::Saved index_;
    const std::vector<int32_t> token_ids_;
    const std::vector<Part> parts_;                 // that have slots
    const std::vector<std::vector<int32_t>> slots_; // of each of them, [head][token]
    std::vector<std::span<std::byte>> rooms_;       // of the records, [head][token]
};

} // namespace

void export_rows(CacheState& cache, const CacheRows& args) {
    if (args.k) ExactRows::check(args.k, "k");
    if (args.v) ExactRows::check(args.v, "v");
    Export(cache, args).run();
}

} // namespace winnow::cache
