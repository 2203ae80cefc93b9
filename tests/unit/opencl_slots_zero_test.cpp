// Elastic zeroing on OpenCL: every byte has to be the reference's.
#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

constexpr Type types_to_zero[] = {Type::f32, Type::f16, Type::bf16};

Segment add_live(SharedMemory& memory, Random& random, const SegmentShape& shape, double share_live, int32_t first) {
    const Segment segment = add_segment(memory, random, shape);
    set_tokens(segment, random, share_live, [&](int64_t, int64_t slot) { return first + static_cast<int32_t>(slot); });
    return segment;
}

// Numbers of any magnitude between 2^-spread and 2^spread; now and then none, or an infinity.
void store_wild_rows(const Tensor& rows, Random& random, int64_t spread) {
    store_rows(rows, [&](int64_t, int64_t, int64_t) {
        if (chance(random, .01)) return chance(random, .5) ? not_a_number : infinity;
        return normal(random) * power_of_two(random, spread);
    });
}

TEST_F(opencl_slots, zero_leaves_what_the_reference_leaves) {
    Random random(11);
    for (int round = 0; round < 60; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        constexpr int64_t sizes[] = {40, 64, 80, 96, 128, 256, 33};
        const int64_t k_size = sizes[round % 7], v_size = sizes[round / 7 % 7];
        SharedMemory memory;
        SlotZero args;
        const int64_t count = 1 + round % 4;
        for (int64_t at = 0; at < count; ++at) {
            if (at == 1 && round % 3 == 0) args.segments.emplace_back(); // without slots
            if (args.segments.size() == 4) break;
            args.segments.push_back(add_live(memory, random,
                                             {.k = types_to_zero[(round + at) % 3],
                                              .v = types_to_zero[(round / 3 + at) % 3],
                                              .heads = 3,
                                              .slots = draw(random, 1, round % 5 == 0 ? 900 : 90),
                                              .k_size = k_size,
                                              .v_size = v_size,
                                              .has_importance = round % 2 == 0},
                                             .8, static_cast<int32_t>(1000 * at)));
            if (round % 2 == 0) {
                store_wild_rows(args.segments.back().k, random, round % 4 == 0 ? 4 : 1);
                store_wild_rows(args.segments.back().v, random, 2);
            }
        }
        args.k_scale = draw(random, 0, 4) * .25 + .01;
        args.v_scale = round % 6 == 1 ? 0 : .45;
        args.sink = draw(random, 0, 30);
        if (round % 4 == 3) {
            args.positions = memory.add("positions", Type::i32, {1, 1, 1, 5000});
            fill<int32_t>(args.positions, [&] { return static_cast<int32_t>(draw(random, 0, 60)); });
        }
        memory.expect_same(round % 3 == 2 ? divided_device() : cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

// Squares of these are beyond single precision, above and below.
TEST_F(opencl_slots, zero_takes_numbers_of_any_magnitude) {
    Random random(12);
    for (const int64_t magnitude : {-110, -70, 0, 70, 120})
        for (const Type type : {Type::f32, Type::bf16}) {
            SCOPED_TRACE(testing::Message() << "2^" << magnitude << " in " << type_name(type));
            SharedMemory memory;
            SlotZero args;
            args.segments = {
                add_live(memory, random, {.k = type, .v = type, .slots = 40, .k_size = 64, .v_size = 40}, .9, 0)};
            for (const Tensor* rows : {&args.segments[0].k, &args.segments[0].v})
                store_rows(*rows, [&](int64_t, int64_t, int64_t) {
                    return std::ldexp(normal(random), static_cast<int>(magnitude));
                });
            args.k_scale = .5;
            args.v_scale = .17;
            memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
        }
}

// A packed side stays as it is, and does not count in the other segments' threshold.
TEST_F(opencl_slots, zero_passes_over_packed_rows) {
    Random random(13);
    SharedMemory memory;
    SlotZero args;
    args.segments = {add_live(memory, random, {.slots = 50, .k_size = 64, .v_size = 64}, .9, 0),
                     add_live(memory, random, {.k = Type::turbo4, .slots = 70, .k_size = 64, .v_size = 64}, .9, 100),
                     add_live(memory, random, {.v = Type::q8_0, .slots = 20, .k_size = 64, .v_size = 64}, .9, 200)};
    args.k_scale = args.v_scale = .45;
    memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
}

} // namespace
} // namespace winnow::opencl
