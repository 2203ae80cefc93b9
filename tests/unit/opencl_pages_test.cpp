// The operations on pages: signatures and picks have to be the reference's, to the bit.
#include "device/pages.hpp"

#include "opencl_slots.hpp"

namespace winnow::opencl {
namespace {

struct PagesShape {
    Type k = Type::turbo4, v = Type::turbo3;
    int64_t heads = 2, group = 3, k_size = 64, v_size = 64, page_slots = 2, slots = 90, frames = 5;
    SignatureKind kind = SignatureKind::signs;
};

const PagesShape shapes[] = {
    {},
    {.k = Type::f16, .v = Type::f32, .heads = 1, .group = 1, .k_size = 16, .v_size = 20, .page_slots = 1},
    {.k = Type::q8_0, .v = Type::affine4_g64, .heads = 3, .group = 2, .k_size = 96, .page_slots = 4, .slots = 70},
    {.k = Type::bf16, .group = 8, .k_size = 128, .v_size = 128, .slots = 333, .frames = 30},
    {.k = Type::turbo2_5, .v = Type::turbo2, .group = 4, .k_size = 80, .v_size = 80, .slots = 3, .frames = 1},
    {.k = Type::f16, .v = Type::f16, .heads = 1, .group = 20, .k_size = 128, .v_size = 16, .slots = 40, .frames = 6},
    {.k = Type::f16, .v = Type::f16, .heads = 1, .group = 2, .k_size = 576, .v_size = 16, .slots = 40, .frames = 6},
    {.kind = SignatureKind::codes},
    {.k = Type::f16,
     .v = Type::f32,
     .heads = 1,
     .group = 1,
     .k_size = 16,
     .v_size = 20,
     .page_slots = 1,
     .kind = SignatureKind::codes},
    {.k = Type::q8_0, .heads = 3, .group = 7, .k_size = 96, .page_slots = 4, .slots = 70, .kind = SignatureKind::codes},
    {.k = Type::bf16, .heads = 1, .group = 20, .k_size = 128, .slots = 333, .frames = 30, .kind = SignatureKind::codes},
    {.k = Type::turbo2_5, .v = Type::turbo2, .group = 9, .k_size = 80, .v_size = 80, .kind = SignatureKind::codes},
};

struct PagesMemory {
    SharedMemory memory;
    PageIndex index;
    Segment cold, hot;
    int64_t pages = 0;
};

SegmentShape segment_shape(const PagesShape& shape, int64_t slots) {
    return {.k = shape.k,
            .v = shape.v,
            .heads = shape.heads,
            .slots = slots,
            .k_size = shape.k_size,
            .v_size = shape.v_size,
            .has_k_mean = true,
            .has_v_mean = true};
}

// A cold segment of which a share is live, its ids those of the slots in some order; hot slots without pages.
void set_up(PagesMemory& setup, Random& random, const PagesShape& shape, double share_live) {
    SharedMemory& memory = setup.memory;
    setup.index.page_slots = shape.page_slots;
    const int64_t block_slots = block_pages * shape.page_slots;
    const int64_t blocks = (shape.slots + block_slots - 1) / block_slots;
    setup.pages = (shape.slots + shape.page_slots - 1) / shape.page_slots;
    setup.index.signatures = memory.add("signatures", Type::i32,
                                        {1, shape.heads, blocks, signature_block_bytes(shape.k_size, shape.kind) / 4});
    std::memset(setup.index.signatures.data, 0, setup.index.signatures.extent());
    if (shape.kind == SignatureKind::codes) {
        setup.index.codebooks = memory.add("codebooks", Type::f16, {1, shape.heads, 1, codebook_numbers(shape.k_size)});
        store_rows(setup.index.codebooks, [&](int64_t, int64_t, int64_t) { return normal(random); });
    } else {
        setup.index.centers = memory.add("centers", Type::f16, {1, shape.heads, 1, shape.k_size + 1});
        store_rows(setup.index.centers, [&](int64_t, int64_t, int64_t) { return normal(random); });
    }
    setup.index.frames = memory.add("frames", Type::i32, {1, shape.heads, 1, shape.frames});
    fill<int32_t>(setup.index.frames, [] { return -1; });
    setup.cold = add_segment(memory, random, segment_shape(shape, shape.slots));
    std::vector<int32_t> ids(static_cast<size_t>(shape.slots));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    if (chance(random, .5)) std::shuffle(ids.begin(), ids.end(), random);
    // Not of short numbers, of which R x may be 0: a sign is that of rounding then.
    store_rows(setup.cold.k, [&](int64_t, int64_t, int64_t) { return normal(random); });
    set_tokens(setup.cold, random, share_live, [&](int64_t, int64_t slot) { return ids[static_cast<size_t>(slot)]; });
    setup.hot = add_segment(memory, random, segment_shape(shape, shape.frames * shape.page_slots));
}

// To the half, but for how a sum was rounded.
void expect_centers(PageSign args, int64_t center_end) {
    const Tensor& centers = args.index.centers;
    if (!centers) return;
    args.center_end = center_end;
    std::vector<int16_t> made[2];
    for (Device* device : {&reference_device(), &cpu_device()}) {
        device->launch(args);
        device->finish();
        std::vector<int16_t>& its = made[device == &cpu_device()];
        for (int64_t head = 0; head < centers.shape[1]; ++head)
            for (int64_t i = 0; i < centers.shape[3]; ++i) its.push_back(at<int16_t>(centers, head, 0, i));
    }
    for (size_t i = 0; i < made[0].size(); ++i) EXPECT_LE(std::abs(made[0][i] - made[1][i]), 1) << i;
}

TEST_F(opencl_slots, pages_are_signed_as_the_reference_signs_them) {
    Random random(11);
    for (const PagesShape& shape : shapes)
        for (const double share_live : {1.0, .6}) {
            SCOPED_TRACE(type_name(shape.k));
            PagesMemory setup;
            set_up(setup, random, shape, share_live);
            fill<int32_t>(setup.index.frames, [&] { return static_cast<int32_t>(draw(random, -1, 3)); });
            fill<int32_t>(setup.hot.tokens, [&] { return static_cast<int32_t>(draw(random, -1, 40)); });
            PageSign args{setup.index, setup.cold, setup.hot, 0, setup.pages};
            setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
            expect_centers(args, draw(random, 1, shape.slots));
            args.keeps_frames = chance(random, .5);
            setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
            args.keeps_frames = false;
            args.first = draw(random, 0, setup.pages);
            args.end = draw(random, args.first, setup.pages);
            set_tokens(setup.cold, random, .5, [](int64_t, int64_t slot) { return static_cast<int32_t>(slot); });
            setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
        }
}

// NaN, infinity, and what no half holds.
TEST_F(opencl_slots, pages_of_rows_that_are_no_numbers_are_signed) {
    Random random(12);
    for (const int64_t rows : {2, 4, 6, 8}) {
        SCOPED_TRACE(rows);
        const PagesShape shape = {.k = Type::f32, .v = Type::f16, .heads = 1, .k_size = 16, .v_size = 16, .slots = 8};
        PagesMemory setup;
        set_up(setup, random, shape, 1);
        const float hostile[] = {not_a_number, infinity, 3e6f, 0.0f};
        store_rows(setup.cold.k, [&](int64_t, int64_t row, int64_t) { return hostile[row / 2]; });
        const PageSign args{setup.index, setup.cold, setup.hot, (rows - 2) / 2, rows / 2, 0, rows};
        setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

PagePick pick_of(PagesMemory& setup, Random& random, const PagesShape& shape) {
    PagePick args;
    args.index = setup.index;
    args.cold = setup.cold;
    args.hot = setup.hot;
    const Type q_type = std::array{Type::f32, Type::f16, Type::bf16}[static_cast<size_t>(draw(random, 0, 2))];
    args.q = setup.memory.add("q", q_type, {1, shape.heads * shape.group, 1, shape.k_size});
    store_random_rows(args.q, random);
    args.scale = .125f;
    args.bonus = chance(random, .5) ? 1.5f : 0.0f;
    args.count = draw(random, 1, shape.frames);
    args.pinned_from = chance(random, .3) ? setup.pages - 2 : setup.pages;
    args.visible_end = shape.slots;
    args.counts = setup.memory.add("counts", Type::i32, {1, shape.heads, 1, 4});
    fill<int32_t>(args.counts, [] { return 3; });
    reference_device().launch(PageSign{setup.index, setup.cold, setup.hot, 0, setup.pages, 0, shape.slots});
    return args;
}

Tensor mask_of(PagesMemory& setup, Random& random, int64_t columns, int64_t heads) {
    const Type type = std::array{Type::boolean, Type::f16, Type::f32}[static_cast<size_t>(draw(random, 0, 2))];
    const Tensor mask = setup.memory.add("mask", type, {1, heads, 1, columns});
    for (int64_t head = 0; head < heads; ++head)
        for (int64_t i = 0; i < columns; ++i) {
            const bool shown = chance(random, .7);
            if (type == Type::boolean) at<uint8_t>(mask, head, 0, i) = shown;
            if (type == Type::f16) at<uint16_t>(mask, head, 0, i) = shown ? 0 : 0xfc00;
            if (type == Type::f32) at<float>(mask, head, 0, i) = shown ? .5f : -infinity;
        }
    return mask;
}

TEST_F(opencl_slots, picks_are_those_of_the_reference) {
    Random random(13);
    for (int round = 0; round < 60; ++round) {
        SCOPED_TRACE(testing::Message() << "round " << round);
        const PagesShape& shape = shapes[static_cast<size_t>(round) % std::size(shapes)];
        PagesMemory setup;
        set_up(setup, random, shape, round % 2 ? .95 : .5);
        PagePick args = pick_of(setup, random, shape);
        const int64_t slots = shape.slots;
        if (round % 3 == 1) args.mask = mask_of(setup, random, draw(random, 1, slots + 5), 1);
        if (round % 3 == 2) args.mask = mask_of(setup, random, round % 2 ? 1 : slots, shape.heads * shape.group);
        if (round % 4 == 1) {
            args.visible_from = draw(random, 0, slots / 2);
            args.visible_end = draw(random, slots / 2, slots);
        }
        for (int step = 0; step < 4; ++step) { // each from what the one before left
            setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
            store_random_rows(args.q, random);
            args.count = draw(random, 0, shape.frames);
            if (step == 2) { // tokens went, and none has signed the pages again
                SlotEdit edit{.segments = {setup.cold, setup.hot}, .begin = 0, .end = slots / 3};
                setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(edit); });
            }
        }
    }
}

// So many pages, and frames, that the search for the bound goes on among a choice of the keys.
TEST_F(opencl_slots, picks_of_many_pages_are_those_of_the_reference) {
    Random random(16);
    for (const SignatureKind kind : {SignatureKind::signs, SignatureKind::codes}) {
        const PagesShape shape = {
            .k = Type::f16, .v = Type::f16, .heads = 1, .group = 2, .slots = 3000, .frames = 400, .kind = kind};
        PagesMemory setup;
        set_up(setup, random, shape, .99);
        PagePick args = pick_of(setup, random, shape);
        for (const int64_t count : {300, 400, 250, 5, 399}) {
            SCOPED_TRACE(count);
            args.count = count;
            setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
            store_random_rows(args.q, random);
        }
    }
}

// A query head that is no number leaves the picks to the others of its group, whichever of them it is.
TEST_F(opencl_slots, heads_that_are_no_numbers_pick_nothing) {
    Random random(15);
    const PagesShape& shape = shapes[0];
    ASSERT_GT(shape.group, 1);
    for (int64_t hostile = 0; hostile < shape.group; ++hostile) {
        SCOPED_TRACE(hostile);
        PagesMemory setup;
        set_up(setup, random, shape, 1);
        PagePick args = pick_of(setup, random, shape);
        store_rows(args.q, [&](int64_t head, int64_t, int64_t) {
            return head % shape.group == hostile ? not_a_number : normal(random);
        });
        args.count = 3; // of many
        args.pinned_from = setup.pages;
        setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
    }
}

// Equal scores go by the page, and so does a query that is no number.
TEST_F(opencl_slots, ties_go_to_the_lower_page) {
    Random random(14);
    const PagesShape& shape = shapes[3];
    for (const float element : {0.0f, not_a_number}) {
        SCOPED_TRACE(element);
        PagesMemory setup;
        set_up(setup, random, shape, 1);
        for (int64_t head = 0; head < shape.heads; ++head)
            for (int32_t slot = 0; slot < shape.slots; ++slot) at<int32_t>(setup.cold.tokens, head, 0, slot) = slot;
        PagePick args = pick_of(setup, random, shape);
        store_rows(args.q, [&](int64_t, int64_t, int64_t) { return element; });
        args.count = 3;
        args.pinned_from = setup.pages;
        setup.memory.expect_same(cpu_device(), [&](Device& any) { any.launch(args); });
        for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(at<int32_t>(args.index.frames, 0, 0, i), i);
    }
}

TEST_F(opencl_slots, picks_are_the_same_when_divided) {
    Random random(15);
    PagesMemory setup;
    set_up(setup, random, shapes[3], .9);
    const PagePick args = pick_of(setup, random, shapes[3]);
    setup.memory.expect_same(divided_device(), [&](Device& any) { any.launch(args); });
}

} // namespace
} // namespace winnow::opencl
