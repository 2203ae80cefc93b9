// An eviction pass to be carried out by SlotEvict, and what select() makes of it.
#pragma once

#include <algorithm>
#include <set>

#include "device/select.hpp"
#include "opencl_slots.hpp"

namespace winnow::opencl {

struct EvictFormats {
    Type dense_k, dense_v, k, v;
    int64_t k_size, v_size;
};

struct Problem {
    Description description;
    HostSegment dense, packed;
    int64_t residual_first, residual_count, leaving_offset, leaving_count;
    int64_t seen, incoming, outputs;
    bool set_means = false;
    std::vector<int32_t> positions; // empty: absent
    std::vector<float> output_sum;
    std::vector<int32_t> free_slots, state;
    int64_t wanted_free = 0;

    int64_t heads() const { return packed.heads(); }
    int64_t slots() const { return dense.slots() + packed.slots(); }
    int64_t residual_slot(int64_t i) const { return residual_first + (leaving_offset + i) % residual_count; }

    void launch(Device& device) {
        SlotEvict args;
        args.description = description;
        if (dense.slots() > 0) args.dense = dense.store();
        args.packed = packed.store();
        args.seen = seen;
        args.incoming = incoming;
        args.wanted_free = wanted_free;
        args.residual_first = residual_first;
        args.residual_count = residual_count;
        args.leaving_offset = leaving_offset;
        args.leaving_count = leaving_count;
        args.k_norm = Norm::unit_slope;
        args.v_norm = Norm::plain;
        args.set_means = set_means;
        args.outputs = outputs;
        if (!output_sum.empty()) args.output_sum = dense_of(Type::f32, output_sum, {1, heads(), 1, packed.v.size});
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
                                        const std::vector<float>& packed_values) {
    std::set<int64_t> leaving;
    for (int64_t i = 0; i < problem.leaving_count; ++i) leaving.insert(problem.residual_slot(i));
    std::vector<Judged> result;
    for (int64_t i = 0; i < problem.slots(); ++i) {
        const bool is_packed_segment = i >= problem.dense.slots();
        const HostSegment& segment = is_packed_segment ? problem.packed : problem.dense;
        const int64_t slot = is_packed_segment ? i - problem.dense.slots() : i;
        const int32_t token = segment.token(head, slot);
        Judged judged{{}, token, is_packed_segment || leaving.count(slot) > 0};
        if (token >= 0) {
            const int32_t number = token & (anchor_flag - 1);
            judged.slot.anchor = (token & anchor_flag) != 0;
            judged.slot.position = problem.positions.empty() ? number : problem.positions[static_cast<size_t>(number)];
            judged.slot.queries_seen = problem.seen - judged.slot.position;
            if (!segment.importance.empty()) judged.slot.importance = segment.weight(head, slot);
            const std::vector<float>& values = is_packed_segment ? packed_values : dense_values;
            double square = 0, distance = 0;
            for (int64_t d = 0; d < segment.v.size; ++d) {
                const auto at = static_cast<size_t>(head * segment.v.size + d);
                double v = values[static_cast<size_t>((head * segment.slots() + slot) * segment.v.size + d)];
                if (!segment.v_mean.empty()) v += segment.v_mean[at];
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

struct EvictionPass {
    std::set<size_t> victims; // of all slots, dense ones first
    int64_t required = 0;
};

inline EvictionPass judge(const Problem& problem, const std::vector<Judged>& all, int64_t head) {
    std::vector<Slot> alive;
    std::vector<size_t> index;
    int64_t leaving = problem.wanted_free, room = 0;
    for (size_t i = 0; i < all.size(); ++i) {
        const bool is_packed_segment = i >= static_cast<size_t>(problem.dense.slots());
        if (all[i].token < 0) {
            room += is_packed_segment;
            continue;
        }
        leaving += !is_packed_segment && all[i].makes_room;
        alive.push_back(all[i].slot);
        index.push_back(i);
    }
    Demand wanted = demand(problem.description, static_cast<int64_t>(alive.size()), problem.seen, problem.incoming);
    EvictionPass pass;
    pass.required = wanted.required;
    for (;; ++wanted.required) {
        const Selection selection = select(problem.description, alive, problem.seen, head, wanted);
        pass.victims.clear();
        int64_t made = 0;
        for (const size_t victim : selection.victims) {
            pass.victims.insert(index[victim]);
            made += all[index[victim]].makes_room;
        }
        if (leaving <= room + made || selection.shortfall > 0) return pass;
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
