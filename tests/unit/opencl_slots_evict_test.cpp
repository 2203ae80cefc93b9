// SlotEvict as the reference does it: which tokens are evicted, what moves where, and every byte of it. Numbers are
// such that no rank is so close to another that single and double precision could see them in another order:
// importances that a ranking computes with are powers of two, and the values of a head are multiples of one row by
// powers of two, whose distances are few and far apart. Sums and differences of rows and means are exact.
#include "device/network.hpp"
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

struct Formats {
    Type dense_k, dense_v, k, v;
    int64_t k_size, v_size;
};

const Formats formats[] = {{Type::f16, Type::f16, Type::turbo4, Type::turbo3, 128, 128},
                           {Type::f32, Type::bf16, Type::q8_0, Type::f16, 64, 33},
                           {Type::f16, Type::f16, Type::turbo3, Type::affine8_g32, 80, 64},
                           {Type::bf16, Type::f32, Type::f32, Type::q5_1, 40, 96}};

// Of the second and third packed segment beside each of those: K and V. What is read of a rotated row is rounded
// otherwise by a device, and so is what is scale * code + bias: such rows go to rotated formats, which are compared as
// what they stand for.
const Type lower_formats[][2][2] = {{{Type::turbo3, Type::turbo2}, {Type::turbo2, Type::turbo2_5}},
                                    {{Type::q4_0, Type::bf16}, {Type::turbo4, Type::f32}},
                                    {{Type::turbo4, Type::turbo2}, {Type::turbo2_5, Type::turbo4}},
                                    {{Type::f16, Type::turbo4}, {Type::bf16, Type::turbo3}}};

constexpr Ranking rankings[] = {Ranking::age, Ranking::importance, Ranking::importance_value_distance, Ranking::random,
                                Ranking::prediction};

float hostile(Random& random) {
    const float special[] = {not_a_number, infinity, -infinity, -0.0f, 0.0f, 1e-40f, -1.5f};
    return special[draw(random, 0, 6)];
}

struct Shape {
    Formats rows = formats[0];
    Ranking ranking = Ranking::age;
    int64_t sink = 4, residual = 48, packed = 100;
    std::vector<int64_t> lower = {}; // slots of each
    double share_live = 1;
    bool has_importance = true, has_k_mean = false, has_v_mean = false, has_positions = false, set_means = false;
    bool has_output_sum = true, has_free_slots = true;
};

struct Problem {
    static constexpr int64_t heads = 3;
    SharedMemory memory;
    SlotEvict args;

    // A head's tokens have distinct token ids below `seen`; heads keep different ones, and some slots are free.
    Problem(Random& random, const Shape& shape) {
        const Formats& each = shape.rows;
        const int64_t dense_slots = shape.sink + shape.residual;
        int64_t slots = dense_slots + shape.packed;
        for (const int64_t each_lower : shape.lower) slots += each_lower;
        if (dense_slots > 0)
            args.dense = add_segment(memory, random,
                                     {.k = each.dense_k,
                                      .v = each.dense_v,
                                      .heads = heads,
                                      .slots = dense_slots,
                                      .k_size = each.k_size,
                                      .v_size = each.v_size,
                                      .has_importance = shape.has_importance});
        args.packed = add_segment(memory, random,
                                  {.k = each.k,
                                   .v = each.v,
                                   .heads = heads,
                                   .slots = shape.packed,
                                   .k_size = each.k_size,
                                   .v_size = each.v_size,
                                   .has_importance = shape.has_importance,
                                   .has_k_mean = shape.has_k_mean,
                                   .has_v_mean = shape.has_v_mean});
        for (size_t i = 0; i < shape.lower.size(); ++i) {
            const auto& lower = lower_formats[format_of(each)];
            Segment segment = add_segment(memory, random,
                                          {.k = lower[i][0],
                                           .v = lower[i][1],
                                           .heads = heads,
                                           .slots = shape.lower[i],
                                           .k_size = each.k_size,
                                           .v_size = each.v_size,
                                           .has_importance = shape.has_importance});
            segment.k_mean = args.packed.k_mean;
            segment.v_mean = args.packed.v_mean;
            args.lower.push_back(segment);
        }
        args.description.ranking = shape.ranking;
        args.residual_first = shape.sink;
        args.residual_count = std::max<int64_t>(shape.residual, 1);
        args.leaving_offset = draw(random, 0, args.residual_count - 1);
        args.leaving_count = draw(random, 0, shape.residual);
        args.seen = slots + draw(random, 0, 300);
        args.incoming = draw(random, 0, 40);
        args.outputs = draw(random, 0, 1) << draw(random, 0, 6);
        args.k_norm = Norm::unit_slope;
        args.v_norm = Norm::plain;
        args.set_means = shape.set_means;
        args.head_state = memory.add("head_state", Type::i32, {1, heads, 1, 4});
        fill<int32_t>(args.head_state, [&] { return static_cast<int32_t>(draw(random, 0, 50)); });
        if (shape.has_output_sum) {
            args.output_sum = memory.add("output_sum", Type::f32, {1, heads, 1, each.v_size});
            fill<float>(args.output_sum, [&] { return 8 * short_normal(random); });
        }
        if (shape.has_free_slots) args.free_slots = memory.add("free_slots", Type::i32, {1, heads, 1, 9});
        if (shape.has_positions) { // of cells, of which several may have one position
            args.positions = memory.add("positions", Type::i32, {1, 1, 1, args.seen});
            fill<int32_t>(args.positions, [&] { return static_cast<int32_t>(draw(random, 0, args.seen / 2)); });
        }
        if (shape.ranking == Ranking::prediction) add_network(random);
        set_values(random);
        for (const Segment* segment : segments())
            fill<float>(segment->importance, [&] {
                if (chance(random, .1)) return hostile(random);
                const bool is_exact = shape.ranking == Ranking::importance || shape.ranking == Ranking::age;
                return chance(random, .2) ? .25f : is_exact ? std::abs(normal(random)) : power_of_two(random, 4);
            });
        set_numbers(random, shape.share_live);
        if (shape.set_means) thin_out_the_residual();
    }

    void expect_same(Device& device) {
        memory.expect_same(device, [&](Device& any) { any.launch(args); });
    }

private:
    static size_t format_of(const Formats& rows) {
        size_t at = 0;
        while (formats[at].k != rows.k || formats[at].v != rows.v) ++at;
        return at;
    }

    std::vector<const Segment*> segments() const {
        std::vector<const Segment*> all{&args.dense, &args.packed};
        for (const Segment& segment : args.lower) all.push_back(&segment);
        return all;
    }

    // Each head's goes by the importance or by the age, and up or down, so that no two predictions are close together.
    void add_network(Random& random) {
        args.network = memory.add("network", Type::f32, {1, heads, 1, network_numbers});
        for (int64_t head = 0; head < heads; ++head) {
            const bool by_age = chance(random, .5);
            const float sign = chance(random, .5) ? 1 : -1;
            for (int64_t i = 0; i < network_hidden; ++i) {
                const float weight = sign * power_of_two(random, 1), bias = static_cast<float>(draw(random, -8, 8));
                const float unit[] = {by_age ? 0 : weight, by_age ? weight : 0, bias, power_of_two(random, 1)};
                for (int64_t j = 0; j < 4; ++j) at<float>(args.network, head, 0, 4 * i + j) = unit[j];
            }
        }
    }

    void set_values(Random& random) {
        for (const Segment* segment : segments()) {
            std::vector<float> row(static_cast<size_t>(args.packed.v.shape[3]));
            int64_t slot = -1;
            float factor = 1;
            const auto value = [&](int64_t, int64_t at_slot, int64_t i) {
                if (at_slot == 0 && slot != 0)
                    for (float& x : row) x = short_normal(random);
                if (at_slot != slot) factor = power_of_two(random, 2);
                slot = at_slot;
                return factor * row[static_cast<size_t>(i)];
            };
            if (segment->v) store_rows(segment->v, value);
        }
    }

    void set_numbers(Random& random, double share_live) {
        std::vector<std::vector<int32_t>> left(heads);
        for (std::vector<int32_t>& token_ids : left) {
            for (int32_t token_id = 0; token_id < args.seen; ++token_id) token_ids.push_back(token_id);
            std::shuffle(token_ids.begin(), token_ids.end(), random);
        }
        for (const Segment* segment : segments())
            if (segment->k)
                set_tokens(*segment, random, share_live, [&](int64_t head, int64_t) {
                    std::vector<int32_t>& token_ids = left[static_cast<size_t>(head)];
                    const int32_t token_id = token_ids.back();
                    token_ids.pop_back();
                    return token_id;
                });
    }

    // To a power of two of live rows in each head, whose mean is exact.
    void thin_out_the_residual() {
        for (int64_t head = 0; head < heads; ++head) {
            std::vector<int32_t*> live;
            for (int64_t i = 0; i < args.residual_count; ++i) {
                int32_t& token = at<int32_t>(args.dense.tokens, head, 0, args.residual_first + i);
                if (token >= 0) live.push_back(&token);
            }
            for (; (live.size() & (live.size() - 1)) != 0; live.pop_back()) *live.back() = free_slot;
        }
    }
};

void draw_description(Random& random, SlotEvict& args) {
    Description& description = args.description;
    int64_t slots = args.dense.slots() + args.packed.slots();
    for (const Segment& segment : args.lower) slots += segment.slots();
    description.seed = static_cast<uint64_t>(draw(random, 0, 1 << 30)) << 30;
    description.sink = draw(random, 0, 8);
    description.recent = draw(random, 0, 1) * draw(random, 0, slots);
    description.grace = draw(random, 0, 1) * draw(random, 0, 20);
    description.context = chance(random, .3) ? args.seen + draw(random, 0, 20) : args.seen + 100000;
    description.budget = draw(random, slots / 2, slots + slots / 4);
    if (chance(random, .1)) description.budget = slots + args.incoming; // which a full head is, and not beyond
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

TEST_F(opencl_slots, evict_does_what_the_reference_does) {
    Random random(21);
    for (int round = 0; round < 400; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const bool has_dense = !chance(random, .05);
        Shape shape{.rows = formats[draw(random, 0, 3)],
                    .ranking = rankings[static_cast<size_t>(round) % std::size(rankings)]};
        shape.sink = has_dense ? draw(random, 0, 5) : 0;
        shape.residual = has_dense ? draw(random, 1, 60) : 0;
        shape.packed = draw(random, 1, 150);
        shape.share_live = std::array{.5, .9, 1.0}[static_cast<size_t>(round % 3)];
        shape.has_importance = !chance(random, .1);
        shape.has_k_mean = chance(random, .3);
        shape.has_v_mean = chance(random, .3);
        shape.has_positions = chance(random, .2);
        shape.set_means = has_dense && chance(random, .2);
        shape.has_output_sum = !chance(random, .1);
        shape.has_free_slots = !chance(random, .2);
        Problem problem(random, shape);
        draw_description(random, problem.args);
        if (chance(random, .3)) problem.args.wanted_free = draw(random, 0, shape.packed);
        problem.expect_same(cpu_device());
        if (HasFailure()) return;
    }
}

// Rows go down from segments that are full, in every order of formats.
// By age alone the oldest token, at position 0, has the smallest key that there can be.
TEST_F(opencl_slots, evict_takes_the_oldest_down_where_they_are_the_first) {
    Random random(31);
    for (int round = 0; round < 200; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Shape shape{.rows = formats[1], .ranking = rankings[1]};
        shape.sink = shape.residual = 0;
        shape.packed = draw(random, 2, 5); // of many, keys have no bit in common but by chance
        shape.lower.push_back(draw(random, 1, 40));
        shape.share_live = 1.0;
        Problem problem(random, shape);
        draw_description(random, problem.args);
        problem.args.description.moves_by_age = true;
        problem.args.wanted_first = draw(random, 1, shape.packed);
        problem.expect_same(cpu_device());
        if (HasFailure()) return;
    }
}

TEST_F(opencl_slots, evict_moves_rows_down_as_the_reference_does) {
    Random random(27);
    for (int round = 0; round < 240; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Shape shape{.rows = formats[round % 4],
                    .ranking = rankings[static_cast<size_t>(round) / 4 % std::size(rankings)]};
        const bool has_dense = !chance(random, .1);
        shape.sink = has_dense ? draw(random, 0, 5) : 0;
        shape.residual = has_dense ? draw(random, 1, 40) : 0;
        shape.packed = draw(random, 1, 80);
        for (int64_t i = draw(random, 1, 2); i > 0; --i) shape.lower.push_back(draw(random, 1, 60));
        shape.share_live = std::array{.6, .95, 1.0}[static_cast<size_t>(round % 3)];
        shape.has_importance = !chance(random, .1);
        shape.has_k_mean = chance(random, .2);
        shape.has_v_mean = chance(random, .2);
        shape.has_free_slots = !chance(random, .2);
        Problem problem(random, shape);
        draw_description(random, problem.args);
        problem.args.description.moves_by_age = chance(random, .3);
        if (chance(random, .3)) problem.args.wanted_free = draw(random, 0, shape.packed);
        if (chance(random, .3)) problem.args.wanted_first = draw(random, 0, shape.packed);
        problem.expect_same(cpu_device());
        if (HasFailure()) return;
    }
}

// A packed segment of tokens 0, 1, ... whose importances are given, where those below the threshold are evicted.
void expect_below_threshold(Random& random, const std::vector<float>& importances, double threshold, double quantile) {
    const auto slots = static_cast<int64_t>(importances.size());
    Problem problem(random, {.ranking = Ranking::importance, .sink = 0, .residual = 0, .packed = slots});
    for (int64_t head = 0; head < Problem::heads; ++head)
        for (int64_t slot = 0; slot < slots; ++slot) {
            at<int32_t>(problem.args.packed.tokens, head, 0, slot) = static_cast<int32_t>(slot);
            at<float>(problem.args.packed.importance, head, 0, slot) =
                importances[static_cast<size_t>((slot + head) % slots)];
        }
    problem.args.description.trigger = {0, 1};
    problem.args.description.budget = slots + problem.args.incoming;
    problem.args.description.threshold = threshold;
    problem.args.description.quantile = quantile;
    problem.expect_same(cpu_device());
}

// The quantile's rank is rounded as doubles are, and a threshold on an importance itself does not include it.
TEST_F(opencl_slots, evict_finds_the_quantile_that_doubles_find) {
    Random random(22);
    for (int64_t slots = 1; slots <= 400; slots += slots < 130 ? 1 : 45) {
        SCOPED_TRACE(testing::Message() << slots << " slots");
        std::vector<float> importances(static_cast<size_t>(slots));
        for (int64_t i = 0; i < slots; ++i) importances[static_cast<size_t>(i)] = static_cast<float>(i * 37 % slots);
        expect_below_threshold(random, importances, 1.0, std::array{.99, .7, .01, .29}[static_cast<size_t>(slots % 4)]);
    }
}

TEST_F(opencl_slots, evict_takes_what_is_below_zero_where_the_quantile_is_infinite) {
    Random random(31);
    expect_below_threshold(random, {infinity, infinity, -1.0f, 0.0f, infinity, -2.0f}, 0.0, .99);
}

// Floats beside a threshold that is none.
TEST_F(opencl_slots, evict_compares_with_the_threshold_as_doubles_do) {
    Random random(26);
    for (const double threshold : {.1, .15, .3, .35, .7})
        for (int round = 0; round < 10; ++round) {
            const float largest = std::abs(normal(random)) + .01f;
            const auto near = static_cast<float>(threshold * static_cast<double>(largest));
            expect_below_threshold(
                random,
                {largest, near, std::nextafter(near, 0.0f), std::nextafter(near, 9.0f), near * .5f, near * 1.1f},
                threshold, 1);
        }
}

TEST_F(opencl_slots, evict_with_everything_protected_evicts_rows_without_room_alone) {
    Random random(23);
    for (const Ranking ranking : {Ranking::age, Ranking::importance_value_distance}) {
        Problem problem(random, {.ranking = ranking});
        problem.args.description.recent = problem.args.seen;
        problem.args.description.budget = 60;
        problem.args.leaving_count = 32;
        problem.expect_same(cpu_device());
        problem.args.leaving_count = 0;
        problem.expect_same(cpu_device());
    }
}

// More than the work-items of a group have at once, and several with one rank at one position.
TEST_F(opencl_slots, evict_takes_thousands_of_slots) {
    Random random(28);
    for (int round = 0; round < 14; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        Problem problem(random, {.rows = formats[3],
                                 .ranking = rankings[static_cast<size_t>(round) % std::size(rankings)],
                                 .packed = draw(random, 4000, 9000),
                                 .share_live = .97,
                                 .has_positions = round % 2 > 0});
        draw_description(random, problem.args);
        problem.args.description.budget = problem.args.packed.slots() - draw(random, 0, 1000);
        problem.args.leaving_count = 32;
        problem.args.wanted_free = draw(random, 0, 64);
        problem.expect_same(cpu_device());
        if (HasFailure()) return;
    }
}

TEST_F(opencl_slots, evict_is_the_same_when_divided) {
    Random random(24);
    for (int round = 0; round < 12; ++round) {
        Problem problem(random, {.ranking = rankings[round % 6], .packed = 600, .share_live = .95});
        draw_description(random, problem.args);
        problem.args.leaving_count = 32;
        problem.expect_same(divided_device());
    }
}

TEST_F(opencl_slots, evict_refuses_packed_dense_rows) {
    Random random(25);
    Problem problem(random, {.rows = {Type::q8_0, Type::f16, Type::q8_0, Type::q8_0, 64, 64}, .packed = 20});
    EXPECT_THROW(cpu_device().launch(problem.args), Error);
}

} // namespace
} // namespace winnow::opencl
