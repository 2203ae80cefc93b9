// The steps of SlotEvict in their order, one KV head after another. Selecting the victims is select's business
// (device/select.hpp).
#include "reference/slot_evict.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

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
    }

    void run() {
        if (args_.set_means) {
            set_mean(args_.dense.k, args_.dense.k_mean, args_.packed.k_mean);
            set_mean(args_.dense.v, args_.dense.v_mean, args_.packed.v_mean);
        }
        find_places();
        const Selection selection = select_victims();
        for (const size_t victim : selection.victims) evict(*places_[victim].segment, places_[victim].slot);
        const int64_t without_room = move_leaving();
        state_.shortfall = static_cast<int32_t>(
            std::max(selection.shortfall, without_room + std::max<int64_t>(args_.wanted_free - free_in_packed(), 0)));
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
        for (const Segment* segment : {&args_.dense, &args_.packed})
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
        double norm = 0, distance = 0; // squared
        const std::vector<double> value = slot_row(place.segment->v, place.segment->v_mean, head_, place.slot);
        for (size_t d = 0; d < value.size(); ++d) {
            norm += std::pow(value[d], 2);
            distance += std::pow(value[d] - mean_output(static_cast<int64_t>(d)), 2);
        }
        slot.value_norm = static_cast<float>(std::sqrt(norm));
        slot.value_distance = static_cast<float>(std::sqrt(distance));
        return slot;
    }

    // o, or 0 where there was no output.
    double mean_output(int64_t d) const {
        if (!args_.output_sum || args_.outputs == 0) return 0;
        return load(args_.output_sum.type, address(args_.output_sum, 0, head_, 0, d)) /
               static_cast<double>(args_.outputs);
    }

    // How many slots of the packed segment would be lacking for leaving rows, and for those that are wanted free.
    int64_t lacking_room(const std::vector<size_t>& victims) const {
        int64_t rows = args_.wanted_free, room = args_.packed.slots();
        for (size_t i = 0; i < places_.size(); ++i) {
            const bool stays = std::find(victims.begin(), victims.end(), i) == victims.end();
            if (stays && places_[i].leaves) ++rows;
            if (stays && places_[i].segment == &args_.packed) --room;
        }
        return std::max<int64_t>(rows - room, 0);
    }

    // More are evicted than the budget requires while slots are lacking; one victim frees a slot for one row at most.
    Selection select_victims() const {
        std::vector<Slot> slots;
        for (const Place& place : places_) slots.push_back(described(place));
        Demand wanted = demand(args_.description, static_cast<int64_t>(slots.size()), args_.seen, args_.incoming);
        for (;;) {
            Selection selection = select(args_.description, slots, args_.seen, head_, wanted);
            const int64_t more = lacking_room(selection.victims);
            if (more == 0 || selection.shortfall > 0) return selection;
            wanted.required = static_cast<int64_t>(selection.victims.size()) + more;
        }
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
            const Segment &dense = args_.dense, &packed = args_.packed;
            set_slot_row(packed.k, packed.k_mean, head_, to, slot_row(dense.k, dense.k_mean, head_, from),
                         args_.k_norm);
            set_slot_row(packed.v, packed.v_mean, head_, to, slot_row(dense.v, dense.v_mean, head_, from),
                         args_.v_norm);
            set_entry(packed.tokens, head_, to, entry(dense.tokens, head_, from));
            set_importance(packed, head_, to, importance_of(dense, head_, from));
            set_entry(dense.tokens, head_, from, free_slot);
        }
        return without_room;
    }

    int64_t free_in_packed() const {
        int64_t free = 0;
        for (int64_t slot = 0; slot < args_.packed.slots(); ++slot) free += is_free(args_.packed, slot);
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
    std::vector<Place> places_;    // dense, then packed segment
};

} // namespace

void slot_evict(const SlotEvict& args) {
    for (int64_t head = 0; head < args.packed.kv_heads(); ++head) HeadEviction(args, head).run();
}

} // namespace winnow::reference
