// A judgement to be carried out by SlotFlush, and what select() makes of it.
#pragma once

#include <algorithm>
#include <set>

#include "device/select.hpp"
#include "opencl_slots.hpp"

namespace winnow::opencl {

struct FlushFormats {
    Type dense_k, dense_v, k, v;
    int64_t k_size, v_size;
};

struct Problem {
    Description description;
    HostStore dense, body;
    int64_t ring_first, ring_count, leaving_offset, leaving_count;
    int64_t seen, incoming, outputs;
    bool set_means = false;
    std::vector<int32_t> positions; // empty: absent
    std::vector<float> output_sum;
    std::vector<int32_t> free_slots, state;
    int64_t wanted_free = 0;

    int64_t heads() const { return body.heads(); }
    int64_t slots() const { return dense.slots() + body.slots(); }
    int64_t ring_slot(int64_t i) const { return ring_first + (leaving_offset + i) % ring_count; }

    void launch(Device& device) {
        SlotFlush args;
        args.description = description;
        if (dense.slots() > 0) args.dense = dense.store();
        args.body = body.store();
        args.seen = seen;
        args.incoming = incoming;
        args.wanted_free = wanted_free;
        args.ring_first = ring_first;
        args.ring_count = ring_count;
        args.leaving_offset = leaving_offset;
        args.leaving_count = leaving_count;
        args.k_norm = Norm::unit_slope;
        args.v_norm = Norm::plain;
        args.set_means = set_means;
        args.outputs = outputs;
        if (!output_sum.empty()) args.output_sum = dense_of(Type::f32, output_sum, {1, heads(), 1, body.v.size});
        if (!positions.empty())
            args.positions = dense_of(Type::i32, positions, {1, 1, 1, static_cast<int64_t>(positions.size())});
        if (!free_slots.empty())
            args.free_slots =
                dense_of(Type::i32, free_slots, {1, heads(), 1, static_cast<int64_t>(free_slots.size()) / heads()});
        args.head_state = dense_of(Type::i32, state, {1, heads(), 1, 4});
        device.launch(args);
        device.finish();
    }
};

// One slot of a head, dense ones first, as select sees it.
struct Judged {
    Slot slot;
    int32_t token;
    bool makes_room;
};

inline std::vector<Judged> judged_slots(const Problem& problem, int64_t head, const std::vector<float>& dense_values,
                                        const std::vector<float>& body_values) {
    std::set<int64_t> leaving;
    for (int64_t i = 0; i < problem.leaving_count; ++i) leaving.insert(problem.ring_slot(i));
    std::vector<Judged> result;
    for (int64_t i = 0; i < problem.slots(); ++i) {
        const bool is_body = i >= problem.dense.slots();
        const HostStore& store = is_body ? problem.body : problem.dense;
        const int64_t slot = is_body ? i - problem.dense.slots() : i;
        const int32_t token = store.token(head, slot);
        Judged judged{{}, token, is_body || leaving.count(slot) > 0};
        judged.slot.alive = token >= 0;
        if (token >= 0) {
            const int32_t number = token & (anchor_flag - 1);
            judged.slot.anchor = (token & anchor_flag) != 0;
            judged.slot.position = problem.positions.empty() ? number : problem.positions[static_cast<size_t>(number)];
            judged.slot.queries_seen = problem.seen - judged.slot.position;
            if (!store.importance.empty()) judged.slot.importance = store.weight(head, slot);
            const std::vector<float>& values = is_body ? body_values : dense_values;
            double square = 0, distance = 0;
            for (int64_t d = 0; d < store.v.size; ++d) {
                const auto at = static_cast<size_t>(head * store.v.size + d);
                double v = values[static_cast<size_t>((head * store.slots() + slot) * store.v.size + d)];
                if (!store.v_mean.empty()) v += store.v_mean[at];
                const double o = problem.output_sum.empty() || problem.outputs == 0
                                     ? 0
                                     : double{problem.output_sum[at]} / static_cast<double>(problem.outputs);
                square += v * v;
                distance += (v - o) * (v - o);
            }
            judged.slot.value_norm = static_cast<float>(std::sqrt(square));
            judged.slot.value_distance = static_cast<float>(std::sqrt(distance));
        }
        result.push_back(judged);
    }
    return result;
}

struct Judgement {
    std::set<size_t> victims; // of all slots, dense ones first
    int64_t must = 0;
};

inline Judgement judge(const Problem& problem, const std::vector<Judged>& all, int64_t head) {
    std::vector<Slot> alive;
    std::vector<size_t> index;
    int64_t leaving = problem.wanted_free, room = 0;
    for (size_t i = 0; i < all.size(); ++i) {
        const bool is_body = i >= static_cast<size_t>(problem.dense.slots());
        if (!all[i].slot.alive) {
            room += is_body;
            continue;
        }
        leaving += !is_body && all[i].makes_room;
        alive.push_back(all[i].slot);
        index.push_back(i);
    }
    Demand wanted = demand(problem.description, static_cast<int64_t>(alive.size()), problem.seen, problem.incoming);
    Judgement judgement;
    judgement.must = wanted.must;
    for (;; ++wanted.must) {
        const Selection selection = select(problem.description, alive, problem.seen, head, wanted);
        judgement.victims.clear();
        int64_t made = 0;
        for (const size_t victim : selection.victims) {
            judgement.victims.insert(index[victim]);
            made += all[index[victim]].makes_room;
        }
        if (leaving <= room + made || selection.missing > 0) return judgement;
    }
}

inline double rank_of(const Problem& problem, const Slot& slot) {
    switch (problem.description.ranking) {
    case Ranking::importance_per_query: return slot.importance / std::max<double>(1, double(slot.queries_seen));
    case Ranking::importance_value_distance: return double{slot.importance} * slot.value_distance;
    case Ranking::importance_value_norm: return double{slot.importance} * slot.value_norm;
    default: return 0;
    }
}

// Ranks in single precision may tell slots apart differently where double precision sees next to no difference.
inline void expect_same_victims(const Problem& problem, const std::vector<Judged>& all, const std::set<size_t>& wanted,
                                const std::set<size_t>& got) {
    std::vector<double> left_out, taken;
    for (const size_t i : wanted)
        if (got.count(i) == 0) left_out.push_back(rank_of(problem, all[i].slot));
    for (const size_t i : got)
        if (wanted.count(i) == 0) taken.push_back(rank_of(problem, all[i].slot));
    ASSERT_EQ(left_out.size(), taken.size());
    const bool is_exact = problem.description.ranking == Ranking::age ||
                          problem.description.ranking == Ranking::random ||
                          problem.description.ranking == Ranking::importance;
    ASSERT_TRUE(!is_exact || taken.empty());
    std::sort(left_out.begin(), left_out.end());
    std::sort(taken.begin(), taken.end());
    for (size_t i = 0; i < taken.size(); ++i)
        ASSERT_NEAR(left_out[i], taken[i], 2e-6 * std::abs(taken[i])) << "victims of another rank";
}

} // namespace winnow::opencl
