// The steps of SlotFlush in their order, one KV head after another. Who goes is select's business (device/select.hpp).
#include "reference/slot_flush.hpp"

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
    const Store* store;
    int64_t slot;
    bool leaves; // the ring
};

class HeadFlush {
public:
    HeadFlush(const SlotFlush& args, int64_t head)
        : args_(args), head_(head), state_(head_state(args.head_state, head)) {
        for (int64_t i = 0; i < args.leaving_count; ++i)
            leaving_.push_back(args.ring_first + (args.leaving_offset + i) % args.ring_count);
    }

    void run() {
        if (args_.set_means) {
            set_mean(args_.dense.k, args_.dense.k_mean, args_.body.k_mean);
            set_mean(args_.dense.v, args_.dense.v_mean, args_.body.v_mean);
        }
        find_places();
        const Selection selection = judge();
        for (const size_t victim : selection.victims) give_up(*places_[victim].store, places_[victim].slot);
        state_.missing = int32_t(std::max({selection.missing, move_leaving(), args_.wanted_free - free_in_body()}));
        list_free_slots();
        clear_output_sum();
        find_places();
        state_.live = int32_t(places_.size());
        set_head_state(args_.head_state, head_, state_);
    }

private:
    bool is_free(const Store& store, int64_t slot) const { return !is_live(entry(store.tokens, head_, slot)); }

    void give_up(const Store& store, int64_t slot) {
        set_entry(store.tokens, head_, slot, free_slot);
        ++state_.given_up;
    }

    // The mean of the ring's live rows; 0 where there is none.
    void set_mean(const Tensor& rows, const Tensor& rows_mean, const Tensor& mean) const {
        if (!mean) return;
        std::vector<double> sum(size_t(mean.shape[3]), 0);
        double live = 0;
        const int64_t end = std::min(args_.ring_first + args_.ring_count, args_.dense.slots());
        for (int64_t slot = args_.ring_first; slot < end; ++slot) {
            if (is_free(args_.dense, slot)) continue;
            const std::vector<double> row = slot_row(rows, rows_mean, head_, slot);
            for (size_t d = 0; d < sum.size(); ++d) sum[d] += row[d];
            ++live;
        }
        for (size_t d = 0; d < sum.size(); ++d)
            store(mean.type, address(mean, 0, head_, 0, int64_t(d)), live > 0 ? sum[d] / live : 0);
    }

    void find_places() {
        places_.clear();
        for (const Store* store : {&args_.dense, &args_.body})
            for (int64_t slot = 0; slot < store->slots(); ++slot) {
                const bool leaves =
                    store == &args_.dense && std::find(leaving_.begin(), leaving_.end(), slot) != leaving_.end();
                if (!is_free(*store, slot)) places_.push_back({store, slot, leaves});
            }
    }

    // What a judgement has to know of a slot.
    Slot described(const Place& place) const {
        const int32_t token = entry(place.store->tokens, head_, place.slot);
        Slot slot;
        slot.position = args_.positions ? entry(args_.positions, 0, number_of(token)) : number_of(token);
        slot.importance = float(importance_of(*place.store, head_, place.slot));
        slot.queries_seen = args_.seen - slot.position;
        slot.anchor = (token & anchor_flag) != 0;
        double norm = 0, distance = 0; // squared
        const std::vector<double> value = slot_row(place.store->v, place.store->v_mean, head_, place.slot);
        for (size_t d = 0; d < value.size(); ++d) {
            norm += std::pow(value[d], 2);
            distance += std::pow(value[d] - mean_output(int64_t(d)), 2);
        }
        slot.value_norm = float(std::sqrt(norm));
        slot.value_distance = float(std::sqrt(distance));
        return slot;
    }

    // o, or 0 where there was no output.
    double mean_output(int64_t d) const {
        if (!args_.output_sum || args_.outputs == 0) return 0;
        return load(args_.output_sum.type, address(args_.output_sum, 0, head_, 0, d)) / double(args_.outputs);
    }

    // How many slots of the body would be lacking for leaving rows, and for those that are wanted free.
    int64_t lacking_room(const std::vector<size_t>& victims) const {
        int64_t rows = args_.wanted_free, room = args_.body.slots();
        for (size_t i = 0; i < places_.size(); ++i) {
            const bool stays = std::find(victims.begin(), victims.end(), i) == victims.end();
            if (stays && places_[i].leaves) ++rows;
            if (stays && places_[i].store == &args_.body) --room;
        }
        return std::max<int64_t>(rows - room, 0);
    }

    // More go than the budget demands while room is lacking; one victim makes room for one row at most.
    Selection judge() const {
        std::vector<Slot> slots;
        for (const Place& place : places_) slots.push_back(described(place));
        Demand wanted = demand(args_.description, int64_t(slots.size()), args_.seen, args_.incoming);
        for (;;) {
            Selection selection = select(args_.description, slots, args_.seen, head_, wanted);
            const int64_t more = lacking_room(selection.victims);
            if (more == 0 || selection.missing > 0) return selection;
            wanted.must = int64_t(selection.victims.size()) + more;
        }
    }

    // Rows for which there is no room, since all else is protected, are given up and counted.
    int64_t move_leaving() {
        int64_t without_room = 0, to = 0;
        for (const int64_t from : leaving_) {
            if (is_free(args_.dense, from)) continue;
            while (to < args_.body.slots() && !is_free(args_.body, to)) ++to;
            if (to == args_.body.slots()) {
                give_up(args_.dense, from);
                ++without_room;
                continue;
            }
            const Store &dense = args_.dense, &body = args_.body;
            set_slot_row(body.k, body.k_mean, head_, to, slot_row(dense.k, dense.k_mean, head_, from), args_.k_norm);
            set_slot_row(body.v, body.v_mean, head_, to, slot_row(dense.v, dense.v_mean, head_, from), args_.v_norm);
            set_entry(body.tokens, head_, to, entry(dense.tokens, head_, from));
            set_importance(body, head_, to, importance_of(dense, head_, from));
            set_entry(dense.tokens, head_, from, free_slot);
        }
        return without_room;
    }

    int64_t free_in_body() const {
        int64_t free = 0;
        for (int64_t slot = 0; slot < args_.body.slots(); ++slot) free += is_free(args_.body, slot);
        return free;
    }

    void list_free_slots() const {
        int64_t slot = 0;
        for (int64_t at = 0; args_.free_slots && at < args_.free_slots.shape[3]; ++at) {
            while (slot < args_.body.slots() && !is_free(args_.body, slot)) ++slot;
            set_entry(args_.free_slots, head_, at, slot < args_.body.slots() ? int32_t(slot++) : free_slot);
        }
    }

    void clear_output_sum() const {
        for (int64_t d = 0; args_.output_sum && d < args_.output_sum.shape[3]; ++d)
            store(args_.output_sum.type, address(args_.output_sum, 0, head_, 0, d), 0);
    }

    const SlotFlush& args_;
    int64_t head_;
    HeadState state_;
    std::vector<int64_t> leaving_; // slots of the ring, in the order in which they leave
    std::vector<Place> places_;    // dense, then body
};

} // namespace

void slot_flush(const SlotFlush& args) {
    for (int64_t head = 0; head < args.body.kv_heads(); ++head) HeadFlush(args, head).run();
}

} // namespace winnow::reference
