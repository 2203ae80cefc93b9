// SlotEvict against select() and demand(), and the rows it moves against kv_append.
#include "opencl_slots_evict.hpp"

#include <array>
#include <map>

namespace winnow::opencl {
namespace {

const EvictFormats formats[] = {{Type::f16, Type::f16, Type::turbo4, Type::turbo3, 128, 128},
                                {Type::f32, Type::bf16, Type::q8_0, Type::f16, 64, 33},
                                {Type::f16, Type::f16, Type::turbo3, Type::affine8_g32, 80, 64}};

// Launches, and holds all that changed against what the contract says.
void check(Device& device, Problem problem) {
    const Problem before = problem;
    const bool has_importance = !before.packed.importance.empty();
    Problem copy = problem;
    std::vector<float> dense_k = values_of(device, copy.dense.k), dense_v = values_of(device, copy.dense.v);
    problem.launch(device);

    if (problem.set_means) {
        const auto check_mean = [&](const std::vector<float>& mean, const std::vector<float>& values, int64_t size) {
            for (size_t i = 0; i < mean.size(); ++i) {
                const int64_t head = static_cast<int64_t>(i) / size;
                double sum = 0;
                int64_t live = 0;
                for (int64_t slot = problem.residual_first; slot < problem.residual_first + problem.residual_count;
                     ++slot)
                    if (before.dense.token(head, slot) >= 0) {
                        ++live;
                        sum += values[static_cast<size_t>((head * before.dense.slots() + slot) * size) +
                                      i % static_cast<size_t>(size)];
                    }
                ASSERT_NEAR(mean[i], live > 0 ? sum / static_cast<double>(live) : 0, 1e-5);
            }
        };
        check_mean(problem.packed.k_mean, dense_k, problem.packed.k.size);
        check_mean(problem.packed.v_mean, dense_v, problem.packed.v.size);
        copy.packed.k_mean = problem.packed.k_mean;
        copy.packed.v_mean = problem.packed.v_mean;
    }
    const std::vector<float> packed_v = values_of(device, copy.packed.v);
    // What the dense rows become in the packed segment.
    const auto converted = [&](std::vector<float> values, const Rows& rows, const std::vector<float>& mean, Norm norm) {
        const auto size = static_cast<size_t>(rows.size), head_size = static_cast<size_t>(copy.dense.slots()) * size;
        for (size_t i = 0; i < values.size() && !mean.empty(); ++i) values[i] -= mean[i / head_size * size + i % size];
        Rows result(rows.type, copy.heads(), copy.dense.slots(), rows.size);
        fill(device, result, values, norm);
        return result;
    };
    const Rows k_rows = converted(dense_k, copy.packed.k, problem.packed.k_mean, Norm::unit_slope);
    const Rows v_rows = converted(dense_v, copy.packed.v, problem.packed.v_mean, Norm::plain);

    for (int64_t head = 0; head < problem.heads(); ++head) {
        SCOPED_TRACE(testing::Message() << "head " << head);
        const std::vector<Judged> all = judged_slots(copy, head, dense_v, packed_v);
        const EvictionPass wanted = judge(problem, all, head);

        // Who is still there tells who went; those without room are known from the rest.
        std::set<size_t> victims;
        std::set<int32_t> there;
        for (int64_t i = 0; i < problem.slots(); ++i) {
            const bool is_packed_segment = i >= problem.dense.slots();
            const int32_t token = is_packed_segment ? problem.packed.token(head, i - problem.dense.slots())
                                                    : problem.dense.token(head, i);
            ASSERT_TRUE(token < 0 || there.insert(token).second) << token << " is there twice";
        }
        std::map<size_t, int64_t> leaving; // slot of the dense segment: its order
        for (int64_t i = 0; i < problem.leaving_count; ++i)
            if (before.dense.token(head, problem.residual_slot(i)) >= 0)
                leaving[static_cast<size_t>(problem.residual_slot(i))] = i;
        for (size_t i = 0; i < all.size(); ++i)
            if (all[i].token >= 0 && there.count(all[i].token) == 0) victims.insert(i);
        // The last leaving rows that the contract leaves without room.
        int64_t room = 0, homeless = 0;
        for (size_t i = static_cast<size_t>(problem.dense.slots()); i < all.size(); ++i)
            room += all[i].token < 0 || wanted.victims.count(i) > 0;
        std::vector<size_t> surviving;
        for (int64_t i = 0; i < problem.leaving_count; ++i) {
            const auto slot = static_cast<size_t>(problem.residual_slot(i));
            if (leaving.count(slot) > 0 && wanted.victims.count(slot) == 0) surviving.push_back(slot);
        }
        while (static_cast<int64_t>(surviving.size()) > room) {
            ++homeless;
            ASSERT_EQ(victims.erase(surviving.back()), 1u) << "a row without room is still there";
            surviving.pop_back();
        }
        expect_same_victims(copy, all, wanted.victims, victims);
        if (testing::Test::HasFatalFailure()) return;

        // Everything else, from those victims.
        int64_t live = 0, next_free = 0;
        std::vector<int64_t> source(static_cast<size_t>(problem.packed.slots()), -1);
        const auto is_free = [&](int64_t slot) {
            const auto i = static_cast<size_t>(problem.dense.slots() + slot);
            return (all[i].token < 0 || victims.count(i) > 0) && source[static_cast<size_t>(slot)] < 0;
        };
        for (int64_t i = 0, moved = 0; i < problem.leaving_count; ++i) {
            const auto slot = static_cast<size_t>(problem.residual_slot(i));
            if (leaving.count(slot) == 0) continue;
            ASSERT_EQ(problem.dense.token(head, problem.residual_slot(i)), free_slot);
            if (victims.count(slot) > 0) continue;
            while (next_free < problem.packed.slots() && !is_free(next_free)) ++next_free;
            if (next_free == problem.packed.slots()) continue;
            source[static_cast<size_t>(next_free)] = problem.residual_slot(i);
            ++moved;
        }
        for (int64_t slot = 0; slot < problem.dense.slots(); ++slot) {
            const auto i = static_cast<size_t>(slot);
            const bool stays = victims.count(i) == 0 && leaving.count(i) == 0;
            ASSERT_EQ(problem.dense.token(head, slot), stays ? all[i].token : free_slot) << "dense slot " << slot;
            live += stays && all[i].token >= 0;
        }
        std::vector<int32_t> free_slots;
        int64_t live_in_packed = 0;
        for (int64_t slot = 0; slot < problem.packed.slots(); ++slot) {
            SCOPED_TRACE(testing::Message() << "packed segment slot " << slot);
            const auto i = static_cast<size_t>(problem.dense.slots() + slot);
            const int64_t from = source[static_cast<size_t>(slot)];
            if (from >= 0) {
                ASSERT_EQ(problem.packed.token(head, slot), before.dense.token(head, from));
                ASSERT_EQ(problem.packed.k.at(head, slot), k_rows.at(head, from));
                ASSERT_EQ(problem.packed.v.at(head, slot), v_rows.at(head, from));
                ASSERT_TRUE(!has_importance ||
                            same_bits(problem.packed.weight(head, slot), before.dense.weight(head, from)));
            } else {
                ASSERT_EQ(problem.packed.token(head, slot), is_free(slot) ? free_slot : all[i].token);
                ASSERT_EQ(problem.packed.k.at(head, slot), before.packed.k.at(head, slot));
                ASSERT_EQ(problem.packed.v.at(head, slot), before.packed.v.at(head, slot));
                ASSERT_TRUE(!has_importance ||
                            same_bits(problem.packed.weight(head, slot), before.packed.weight(head, slot)));
            }
            if (is_free(slot)) free_slots.push_back(static_cast<int32_t>(slot));
            live += !is_free(slot);
            live_in_packed += !is_free(slot);
        }
        if (!problem.free_slots.empty()) {
            free_slots.resize(problem.free_slots.size() / static_cast<size_t>(problem.heads()), free_slot);
            const auto first = problem.free_slots.begin() + head * static_cast<int64_t>(free_slots.size());
            ASSERT_EQ(std::vector<int32_t>(first, first + static_cast<int64_t>(free_slots.size())), free_slots);
        }
        const auto gone = static_cast<int64_t>(victims.size());
        const int64_t unlisted = problem.wanted_free - (problem.packed.slots() - live_in_packed);
        const int64_t shortfall = std::max({wanted.required - gone, homeless, unlisted, int64_t{0}});
        const auto state = problem.state.begin() + head * 4;
        ASSERT_EQ(std::vector<int32_t>(state, state + 4),
                  (std::vector<int32_t>{int32_t(live), int32_t(40 + gone + homeless), int32_t(shortfall), 6}));
    }
    for (const float sum : problem.output_sum) ASSERT_EQ(sum, 0.0f);
    // Nothing behind the slots was touched.
    for (int64_t head = 0; head < problem.heads(); ++head)
        for (int64_t slot = problem.packed.slots(); slot < problem.packed.capacity; ++slot) {
            ASSERT_EQ(problem.packed.token(head, slot), free_slot);
            ASSERT_EQ(problem.packed.k.at(head, slot), before.packed.k.at(head, slot));
        }
}

float hostile(Random& random) {
    const float special[] = {std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             -0.0f,
                             0.0f,
                             1e-40f,
                             -1.5f};
    return special[draw(random, 0, 6)];
}

struct Shape {
    EvictFormats formats;
    int64_t sink = 4, residual = 48, packed = 100;
    bool has_importance = true, has_means = false, has_positions = false;
};

// A head's tokens have distinct numbers below `seen`; heads keep different ones, and some slots are free.
Problem make_problem(Device& device, Random& random, const Shape& shape, double share_live) {
    const EvictFormats& each = shape.formats;
    const int64_t heads = 3;
    Problem problem{{},
                    HostSegment(each.dense_k, each.dense_v, heads, shape.sink + shape.residual, each.k_size,
                                each.v_size, shape.has_importance, false),
                    HostSegment(each.k, each.v, heads, shape.packed, each.k_size, each.v_size, shape.has_importance,
                                shape.has_means),
                    shape.sink,
                    shape.residual,
                    draw(random, 0, shape.residual - 1),
                    draw(random, 0, shape.residual),
                    0,
                    draw(random, 0, 40),
                    draw(random, 0, 40),
                    false,
                    {},
                    {},
                    {},
                    {}};
    problem.dense.fill_rows(device, random);
    problem.packed.fill_rows(device, random);
    const int64_t slots = problem.slots();
    problem.seen = slots + draw(random, 0, 300);
    if (shape.has_positions) // cells, of which several may have one position
        for (int64_t cell = 0; cell < problem.seen; ++cell)
            problem.positions.push_back(static_cast<int32_t>(draw(random, 0, problem.seen / 2)));
    problem.output_sum.resize(static_cast<size_t>(heads * each.v_size));
    for (float& value : problem.output_sum) value = 10 * normal(random);
    problem.free_slots.resize(static_cast<size_t>(heads * 9), 7);
    problem.state.resize(static_cast<size_t>(heads * 4));
    for (size_t i = 0; i < problem.state.size(); ++i) problem.state[i] = std::array{9, 40, 9, 6}[i % 4];
    for (int64_t head = 0; head < heads; ++head) {
        std::vector<int32_t> token_ids(static_cast<size_t>(problem.seen));
        for (size_t i = 0; i < token_ids.size(); ++i) token_ids[i] = static_cast<int32_t>(i);
        std::shuffle(token_ids.begin(), token_ids.end(), random);
        for (int64_t i = 0; i < slots; ++i) {
            const bool is_packed_segment = i >= problem.dense.slots();
            HostSegment& segment = is_packed_segment ? problem.packed : problem.dense;
            const int64_t slot = is_packed_segment ? i - problem.dense.slots() : i;
            const bool is_live = chance(random, share_live);
            int32_t number = token_ids[static_cast<size_t>(i)];
            if (chance(random, .05)) number |= anchor_flag;
            segment.token(head, slot) = is_live ? number : free_slot;
            if (shape.has_importance)
                segment.weight(head, slot) = chance(random, .1)   ? hostile(random)
                                             : chance(random, .2) ? .25f
                                                                  : std::abs(normal(random));
        }
    }
    return problem;
}

constexpr Ranking rankings[] = {Ranking::age,
                                Ranking::importance,
                                Ranking::importance_per_query,
                                Ranking::importance_value_distance,
                                Ranking::importance_value_norm,
                                Ranking::random};

void draw_description(Random& random, Problem& problem) {
    Description& description = problem.description;
    const int64_t slots = problem.slots();
    description.seed = static_cast<uint64_t>(draw(random, 0, 1 << 30)) << 30;
    description.sink = draw(random, 0, 8);
    description.recent = draw(random, 0, 1) * draw(random, 0, slots);
    description.grace = draw(random, 0, 1) * draw(random, 0, 20);
    description.context = chance(random, .3) ? problem.seen + draw(random, 0, 20) : problem.seen + 100000;
    description.budget = draw(random, slots / 2, slots + slots / 4);
    description.target = chance(random, .5) ? description.budget : draw(random, 0, description.budget);
    if (chance(random, .3)) description.trigger = {7, 10};
    if (chance(random, .3)) description.most = draw(random, 1, 20);
    if (chance(random, .3)) description.most_share = {1, 10};
    if (chance(random, .3)) description.eligible_from = {1, 4};
    if (chance(random, .3)) description.eligible_until = {3, 4};
    if (chance(random, .3)) description.eligible_first = draw(random, 0, slots / 2);
    if (chance(random, .5)) {
        description.threshold = std::array{0.0, .1, .15, 1.0, 3.0}[static_cast<size_t>(draw(random, 0, 4))];
        description.quantile = std::array{0.0, .5, .99, 1.0}[static_cast<size_t>(draw(random, 0, 3))];
    }
}

TEST_F(SlotsTest, EvictJudgesAsSelectDoes) {
    Random random(21);
    for (int round = 0; round < 400; ++round) {
        const bool has_dense = !chance(random, .05);
        Shape shape{formats[draw(random, 0, 2)]};
        shape.sink = has_dense ? draw(random, 0, 5) : 0;
        shape.residual = has_dense ? draw(random, 1, 60) : 0;
        shape.packed = draw(random, 1, 150);
        shape.has_importance = !chance(random, .1);
        shape.has_means = chance(random, .3);
        shape.has_positions = chance(random, .2);
        Problem problem = make_problem(*device(), random, shape, std::array{.5, .9, 1.0}[round % 3]);
        draw_description(random, problem);
        problem.description.ranking = rankings[round % 6];
        problem.set_means = has_dense && chance(random, .2);
        if (chance(random, .1)) problem.output_sum.clear();
        if (chance(random, .1)) problem.outputs = 0;
        if (chance(random, .2)) problem.free_slots.clear();
        if (chance(random, .3)) problem.wanted_free = draw(random, 0, shape.packed);
        SCOPED_TRACE(testing::Message() << "round " << round);
        check(*device(), problem);
        if (HasFatalFailure()) return;
    }
}

// A packed segment of tokens 0, 1, ... whose importances are given, where whoever is below the threshold goes.
Problem threshold_problem(Random& random, const std::vector<float>& importances, double threshold, double quantile) {
    Shape shape{formats[0]};
    shape.sink = 0;
    shape.residual = 0;
    shape.packed = static_cast<int64_t>(importances.size());
    Problem problem = make_problem(*device(), random, shape, 1);
    for (int64_t head = 0; head < problem.heads(); ++head)
        for (int64_t slot = 0; slot < shape.packed; ++slot) {
            problem.packed.token(head, slot) = static_cast<int32_t>(slot);
            problem.packed.weight(head, slot) = importances[static_cast<size_t>((slot + head) % shape.packed)];
        }
    problem.description.ranking = Ranking::importance;
    problem.description.trigger = {0, 1};
    problem.description.budget = shape.packed + problem.incoming;
    problem.description.threshold = threshold;
    problem.description.quantile = quantile;
    return problem;
}

// The quantile's rank is rounded as doubles are, and a threshold on an importance itself does not include it.
TEST_F(SlotsTest, EvictFindsTheQuantileThatDoublesFind) {
    Random random(22);
    for (int64_t slots = 1; slots <= 400; slots += slots < 130 ? 1 : 45) {
        std::vector<float> importances(static_cast<size_t>(slots));
        for (int64_t i = 0; i < slots; ++i) importances[static_cast<size_t>(i)] = static_cast<float>(i * 37 % slots);
        SCOPED_TRACE(testing::Message() << slots << " slots");
        check(*device(), threshold_problem(random, importances, 1.0,
                                           std::array{.99, .7, .01, .29}[static_cast<size_t>(slots % 4)]));
        if (HasFatalFailure()) return;
    }
}

// Floats beside a threshold that is none.
TEST_F(SlotsTest, EvictComparesWithTheThresholdAsDoublesDo) {
    Random random(26);
    for (const double threshold : {.1, .15, .3, .35, .7})
        for (int round = 0; round < 10; ++round) {
            const float largest = std::abs(normal(random)) + .01f;
            const auto near = static_cast<float>(threshold * double{largest});
            check(*device(), threshold_problem(random,
                                               {largest, near, std::nextafter(near, 0.0f), std::nextafter(near, 9.0f),
                                                near * .5f, near * 1.1f},
                                               threshold, 1));
            if (HasFatalFailure()) return;
        }
}

TEST_F(SlotsTest, EvictWithEverythingProtectedEvictsRowsWithoutRoomAlone) {
    Random random(23);
    for (const Ranking ranking : {Ranking::age, Ranking::importance_value_distance}) {
        Problem problem = make_problem(*device(), random, Shape{formats[0]}, 1);
        problem.description.ranking = ranking;
        problem.description.recent = problem.seen;
        problem.description.budget = 60;
        problem.leaving_count = 32;
        check(*device(), problem);
        problem.leaving_count = 0;
        check(*device(), problem);
    }
}

TEST_F(SlotsTest, EvictIsTheSameWhenDivided) {
    Random random(24);
    for (int round = 0; round < 12; ++round) {
        Problem problem = make_problem(*device(true), random, Shape{formats[0], 4, 48, 600}, .95);
        draw_description(random, problem);
        problem.description.ranking = rankings[round % 6];
        problem.leaving_count = 32;
        check(*device(true), problem);
        if (HasFatalFailure()) return;
    }
}

TEST_F(SlotsTest, EvictRefusesPackedDenseRows) {
    Random random(25);
    Problem problem =
        make_problem(*device(), random, Shape{{Type::q8_0, Type::f16, Type::q8_0, Type::q8_0, 64, 64}, 4, 8, 20}, 1);
    EXPECT_THROW(problem.launch(*device()), Error);
}

} // namespace
} // namespace winnow::opencl
