// The steps of SlotEvict in their order, one KV head after another. Selecting the victims is select's business
// (device/select.hpp).
#include "reference/operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "device/network.hpp"
#include "device/select.hpp"
#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

// A slot that holds a token.
struct Place {
    const Segment* segment;
    int64_t slot;
    bool leaves; // the residual window
};

class HeadEviction {
public:
    HeadEviction(const SlotEvict& args, int64_t head)
        : args_(args), head_(head), state_(head_state(args.head_state, head)) {
        for (int64_t i = 0; i < args.leaving_count; ++i)
            leaving_.push_back(args.residual_first + (args.leaving_offset + i) % args.residual_count);
        packed_.push_back(&args.packed);
        for (const Segment& lower : args.lower) packed_.push_back(&lower);
    }

    void run() {
        if (args_.set_means) {
            set_mean(args_.dense.k, args_.dense.k_mean, args_.packed.k_mean);
            set_mean(args_.dense.v, args_.dense.v_mean, args_.packed.v_mean);
        }
        find_places();
        const Selection selection = select_victims();
        for (const size_t victim : selection.victims) evict(*places_[victim].segment, places_[victim].slot);
        if (!args_.lower.empty()) move_down();
        const int64_t without_room = move_leaving();
        state_.shortfall = static_cast<int32_t>(std::max(
            selection.shortfall, without_room + std::max<int64_t>(args_.wanted_free - free_in(args_.packed), 0)));
        list_free_slots();
        clear_output_sum();
        find_places();
        state_.live = static_cast<int32_t>(places_.size());
        set_head_state(args_.head_state, head_, state_);
    }

private:
    bool is_free(const Segment& segment, int64_t slot) const { return !is_live(entry(segment.tokens, head_, slot)); }

    void evict(const Segment& segment, int64_t slot) {
        set_entry(segment.tokens, head_, slot, free_slot);
        ++state_.evicted;
    }

    // The mean of the residual window's live rows; 0 where there is none.
    void set_mean(const Tensor& rows, const Tensor& rows_mean, const Tensor& mean) const {
        if (!mean) return;
        std::vector<double> sum(static_cast<size_t>(mean.shape[3]), 0);
        double live = 0;
        const int64_t end = std::min(args_.residual_first + args_.residual_count, args_.dense.slots());
        for (int64_t slot = args_.residual_first; slot < end; ++slot) {
            if (is_free(args_.dense, slot)) continue;
            const std::vector<double> row = slot_row(rows, rows_mean, head_, slot);
            for (size_t d = 0; d < sum.size(); ++d) sum[d] += row[d];
            ++live;
        }
        for (size_t d = 0; d < sum.size(); ++d)
            store(mean.type, address(mean, 0, head_, 0, static_cast<int64_t>(d)), live > 0 ? sum[d] / live : 0);
    }

    void find_places() {
        places_.clear();
        std::vector<const Segment*> segments{&args_.dense};
        segments.insert(segments.end(), packed_.begin(), packed_.end());
        for (const Segment* segment : segments)
            for (int64_t slot = 0; slot < segment->slots(); ++slot) {
                const bool leaves =
                    segment == &args_.dense && std::find(leaving_.begin(), leaving_.end(), slot) != leaving_.end();
                if (!is_free(*segment, slot)) places_.push_back({segment, slot, leaves});
            }
    }

    // What an eviction pass has to know of a slot.
    Slot described(const Place& place) const {
        const int32_t token = entry(place.segment->tokens, head_, place.slot);
        Slot slot;
        slot.position = args_.positions ? entry(args_.positions, 0, token_id_of(token)) : token_id_of(token);
        slot.importance = static_cast<float>(importance_of(*place.segment, head_, place.slot));
        slot.queries_seen = args_.seen - slot.position;
        slot.anchor = (token & anchor_flag) != 0;
        double distance = 0; // squared
        const std::vector<double> value = slot_row(place.segment->v, place.segment->v_mean, head_, place.slot);
        for (size_t d = 0; d < value.size(); ++d)
            distance += std::pow(value[d] - mean_output(static_cast<int64_t>(d)), 2);
        slot.value_distance = static_cast<float>(std::sqrt(distance));
        if (args_.description.ranking == Ranking::prediction) slot.prediction = predicted(slot);
        return slot;
    }

    double predicted(const Slot& slot) const {
        std::array<HiddenUnit, network_hidden> units;
        int64_t at = 0;
        for (HiddenUnit& unit : units)
            for (float* number : {&unit.importance, &unit.age, &unit.bias, &unit.out})
                *number = static_cast<float>(load(Type::f32, address(args_.network, 0, head_, 0, at++)));
        return predict(units.data(), static_cast<double>(slot.importance), slot.queries_seen);
    }

    // o, or 0 where there was no output.
    double mean_output(int64_t d) const {
        if (!args_.output_sum || args_.outputs == 0) return 0;
        return load(args_.output_sum.type, address(args_.output_sum, 0, head_, 0, d)) /
               static_cast<double>(args_.outputs);
    }

    // How many slots of packed segments would be lacking for leaving rows, and for those that are wanted free.
    int64_t lacking_room(const std::vector<size_t>& victims) const {
        int64_t rows = args_.wanted_free, room = 0;
        for (const Segment* segment : packed_) room += segment->slots();
        for (size_t i = 0; i < places_.size(); ++i) {
            const bool stays = std::find(victims.begin(), victims.end(), i) == victims.end();
            if (stays && places_[i].leaves) ++rows;
            if (stays && places_[i].segment != &args_.dense) --room;
        }
        return std::max<int64_t>(rows - room, 0);
    }

    // More are evicted than the budget requires while slots are lacking; one victim frees a slot for one row at most.
    Selection select_victims() const {
        std::vector<Slot> slots;
        for (const Place& place : places_) slots.push_back(described(place));
        Demand wanted = demand(args_.description, static_cast<int64_t>(slots.size()), args_.seen, args_.incoming);
        for (;;) {
            Selection selection = select(args_.description, slots, args_.seen, args_.first_head + head_, wanted);
            const int64_t more = lacking_room(selection.victims);
            if (more == 0 || selection.shortfall > 0) return selection;
            wanted.required = static_cast<int64_t>(selection.victims.size()) + more;
        }
    }

    // How many rows of each packed segment go down: as many as slots are lacking there, as far as there is room below.
    std::vector<int64_t> rows_to_move() const {
        int64_t needed = std::max(args_.wanted_free, args_.wanted_first);
        for (const int64_t slot : leaving_) needed += !is_free(args_.dense, slot);
        std::vector<int64_t> free, moved;
        int64_t candidates = needed - std::max(args_.wanted_free, args_.wanted_first);
        for (const Segment* segment : packed_) {
            free.push_back(free_in(*segment));
            candidates += segment->slots() - free.back();
            moved.push_back(std::min(std::max<int64_t>(needed - free.back(), 0), candidates));
            needed = moved.back();
            candidates = 0;
        }
        moved.back() = 0;
        for (size_t i = moved.size() - 1; i-- > 0;) moved[i] = std::min(moved[i], free[i + 1] + moved[i + 1]);
        return moved;
    }

    void move_down() {
        const std::vector<int64_t> rows = rows_to_move();
        for (size_t from = packed_.size() - 1; from-- > 0;)
            if (rows[from] > 0) move_down(*packed_[from], *packed_[from + 1], rows[from]);
    }

    // Of the first packed segment, the rows that leave the residual window are among those that may go down.
    void move_down(const Segment& from, const Segment& to, int64_t count) {
        find_places();
        const bool is_first = &from == &args_.packed;
        std::vector<Place> candidates;
        std::vector<Slot> slots;
        for (const Place& place : places_) {
            if (place.segment != &from && !(is_first && place.leaves)) continue;
            candidates.push_back(place);
            slots.push_back(described(place));
        }
        std::vector<Place> moved;
        const bool by_age = is_first && args_.description.moves_by_age;
        for (const size_t each :
             select_to_move(args_.description, slots, args_.seen, args_.first_head + head_, count, by_age))
            moved.push_back(candidates[each]);
        const auto order = [&](const Place& place) {
            const auto leaving = std::find(leaving_.begin(), leaving_.end(), place.slot);
            return place.leaves ? leaving - leaving_.begin() : args_.leaving_count + place.slot;
        };
        std::sort(moved.begin(), moved.end(), [&](const Place& a, const Place& b) { return order(a) < order(b); });
        int64_t free = 0;
        for (const Place& place : moved) {
            while (!is_free(to, free)) ++free;
            move_row(*place.segment, place.slot, to, free);
        }
    }

    // Packed segments have the same means, which are then neither added nor subtracted.
    void move_row(const Segment& from, int64_t from_slot, const Segment& to, int64_t to_slot) {
        const bool is_dense = &from == &args_.dense;
        const auto move = [&](const auto& rows, const auto& mean, Norm norm) {
            const Tensor none;
            const Tensor &plus = is_dense ? from.*mean : none, &less = is_dense ? to.*mean : none;
            set_slot_row(to.*rows, less, head_, to_slot, slot_row(from.*rows, plus, head_, from_slot), norm);
        };
        move(&Segment::k, &Segment::k_mean, args_.k_norm);
        move(&Segment::v, &Segment::v_mean, args_.v_norm);
        set_entry(to.tokens, head_, to_slot, entry(from.tokens, head_, from_slot));
        set_importance(to, head_, to_slot, importance_of(from, head_, from_slot));
        set_entry(from.tokens, head_, from_slot, free_slot);
    }

    // Rows for which there is no room, since all else is protected, are evicted and counted.
    int64_t move_leaving() {
        int64_t without_room = 0, to = 0;
        for (const int64_t from : leaving_) {
            if (is_free(args_.dense, from)) continue;
            while (to < args_.packed.slots() && !is_free(args_.packed, to)) ++to;
            if (to == args_.packed.slots()) {
                evict(args_.dense, from);
                ++without_room;
                continue;
            }
            move_row(args_.dense, from, args_.packed, to);
        }
        return without_room;
    }

    int64_t free_in(const Segment& segment) const {
        int64_t free = 0;
        for (int64_t slot = 0; slot < segment.slots(); ++slot) free += is_free(segment, slot);
        return free;
    }

    void list_free_slots() const {
        int64_t slot = 0;
        for (int64_t at = 0; args_.free_slots && at < args_.free_slots.shape[3]; ++at) {
            while (slot < args_.packed.slots() && !is_free(args_.packed, slot)) ++slot;
            set_entry(args_.free_slots, head_, at,
                      slot < args_.packed.slots() ? static_cast<int32_t>(slot++) : free_slot);
        }
    }

    void clear_output_sum() const {
        for (int64_t d = 0; args_.output_sum && d < args_.output_sum.shape[3]; ++d)
            store(args_.output_sum.type, address(args_.output_sum, 0, head_, 0, d), 0);
    }

    const SlotEvict& args_;
    int64_t head_;
    HeadState state_;
    std::vector<int64_t> leaving_; // slots of the residual window, in the order in which they leave
    std::vector<const Segment*> packed_;
    std::vector<Place> places_; // dense, then packed segments
};

} // namespace

void slot_evict(const SlotEvict& args) {
    for (int64_t head = 0; head < args.packed.kv_heads(); ++head) HeadEviction(args, head).run();
}

} // namespace winnow::reference
