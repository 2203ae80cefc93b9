// The operations on pages, on numbers that one can follow on paper: keys that are rotated back from what their
// signature is to be.
#include "device/pages.hpp"

#include <cmath>

#include "reference/element.hpp"
#include "reference/page_index.hpp"
#include "reference/rotation.hpp"
#include "reference_slots.hpp"

namespace winnow::reference {
namespace {

constexpr int64_t size = 16, slots = 32;

// The magnitude in each element whose bit is set, its negative in the others.
std::vector<double> pattern(uint32_t bits, double magnitude) {
    std::vector<double> x;
    for (int64_t e = 0; e < size; ++e) x.push_back((bits >> e & 1) != 0 ? magnitude : -magnitude);
    return x;
}

void set_rotated_back(Floats& rows, int64_t row, std::vector<double> rotated) {
    rotate_back(rotated.data(), size);
    for (int64_t e = 0; e < size; ++e) rows.at(0, row, e) = static_cast<float>(rotated[static_cast<size_t>(e)]);
}

// c of a head, and f behind it.
struct TestCenter {
    std::vector<uint16_t> halves = std::vector<uint16_t>(static_cast<size_t>(size) + 1, 0);

    TestCenter() { set(size, 1); }
    explicit operator Tensor() {
        Tensor tensor;
        tensor.type = Type::f16;
        tensor.data = reinterpret_cast<std::byte*>(halves.data());
        tensor.shape = {1, 1, 1, size + 1};
        tensor.stride = {0, 0, 0, 2};
        return tensor;
    }
    std::byte* address_of(int64_t at) { return reinterpret_cast<std::byte*>(&halves[static_cast<size_t>(at)]); }
    double at(int64_t at) { return load(Type::f16, address_of(at)); }
    void set(int64_t at, double value) { store(Type::f16, address_of(at), value); }
};

// Slot i holds token 100 + i with the value i; frames for two pages.
struct TestPages {
    Ints signatures{{1, 1, signature_block_bytes(size, SignatureKind::signs) / 4}, 0};
    Ints frames{{1, 1, 2}, -1};
    TestCenter center;
    TestSegment cold{{std::vector<int32_t>(slots, free_slot)}};
    TestSegment hot{{std::vector<int32_t>(4, free_slot)}};

    TestPages() {
        cold.k = Floats({1, slots, size}, 0);
        cold.v = Floats({1, slots, 1}, 0);
        hot.k = Floats({1, 4, size}, 0);
        hot.v = Floats({1, 4, 1}, 0);
    }
    PageIndex index() { return {2, signatures, frames, static_cast<Tensor>(center)}; }
    void set(int64_t slot, const std::vector<double>& rotated) {
        set_rotated_back(cold.k, slot, rotated);
        cold.v.at(0, slot, 0) = static_cast<float>(slot);
        cold.tokens.at(0, 0, slot) = static_cast<int32_t>(100 + slot);
    }
    PageSign sign(int64_t first, int64_t end) { return {index(), cold, hot, first, end}; }
    PagePick pick(Floats& q, Ints& counts) { // of a page for each frame
        PagePick args;
        args.index = index();
        args.cold = cold;
        args.hot = hot;
        args.q = q;
        args.scale = 1;
        args.count = 2;
        args.pinned_from = 16;
        args.visible_end = 1000;
        args.counts = counts;
        return args;
    }
    std::vector<bool> signs(int64_t page) { return signs_of(index(), 0, page, size); }
};

// A doubles the elements and swaps the two halves of 8; B is the identity. Centroid c is c / 4 in each element.
struct TestCodebooks {
    std::vector<uint16_t> halves = std::vector<uint16_t>(static_cast<size_t>(codebook_numbers(size)), 0);

    explicit operator Tensor() {
        Tensor tensor;
        tensor.type = Type::f16;
        tensor.data = reinterpret_cast<std::byte*>(halves.data());
        tensor.shape = {1, 1, 1, codebook_numbers(size)};
        tensor.stride = {0, 0, 0, 2};
        return tensor;
    }
    void set(int64_t at, double value) {
        store(Type::f16, reinterpret_cast<std::byte*>(&halves[static_cast<size_t>(at)]), value);
    }
    TestCodebooks() {
        for (int64_t e = 0; e < size; ++e) {
            set(e * size + (e + 8) % size, 2);
            set(size * size + e * size + e, 1);
            for (int64_t c = 0; c < centroids; ++c)
                set(2 * size * size + e * centroids + c, static_cast<double>(c) / 4);
        }
    }
};

TEST_F(reference_slots, a_code_is_that_of_the_nearest_centroid) {
    static_assert(size == 16); // one codebook
    TestPages test;
    TestCodebooks codebooks;
    PageSign sign = test.sign(3, 4);
    sign.index.codebooks = static_cast<Tensor>(codebooks);
    sign.index.centers = {};
    const auto code_with = [&](float first, float second) {
        for (int64_t slot : {6, 7}) {
            test.cold.tokens.at(0, 0, slot) = static_cast<int32_t>(100 + slot);
            for (int64_t e = 0; e < size; ++e) test.cold.k.at(0, slot, e) = slot == 6 ? first : second;
        }
        device_.launch(sign);
        return codes_of(sign.index, 0, 3, size);
    };
    EXPECT_EQ(code_with(1, 2), std::vector<int>{12});      // twice the mean is 3
    EXPECT_EQ(code_with(1, 2.05f), std::vector<int>{12});  // 3.05
    EXPECT_EQ(code_with(1.125f, 2), std::vector<int>{12}); // 3.125, between two: the lower one
    EXPECT_EQ(code_with(-50, 3), std::vector<int>{0});
    EXPECT_EQ(code_with(500, 3), std::vector<int>{255});
    EXPECT_EQ(code_with(std::numeric_limits<float>::quiet_NaN(), 3), std::vector<int>{0});
    EXPECT_EQ(code_with(1e30f, 0), std::vector<int>{0}); // no float holds the distance
    test.cold.tokens.at(0, 0, 6) = free_slot;
    device_.launch(sign);
    EXPECT_EQ(codes_of(sign.index, 0, 3, size), std::vector<int>{0}); // of the other row alone
    EXPECT_EQ(code_with(-50, 3), std::vector<int>{0});
    test.cold.tokens.at(0, 0, 6) = free_slot;
    device_.launch(sign);
    EXPECT_EQ(codes_of(sign.index, 0, 3, size), std::vector<int>{24});
    test.cold.tokens.at(0, 0, 7) = free_slot;
    device_.launch(sign);
    EXPECT_EQ(codes_of(sign.index, 0, 3, size), std::vector<int>{0});
}

TEST_F(reference_slots, the_page_of_the_largest_centroid_is_picked) {
    TestPages test;
    TestCodebooks codebooks;
    Floats q({1, 1, size}, 0);
    Ints counts({1, 1, 4}, 0);
    for (int64_t slot = 0; slot < 8; ++slot) {
        test.cold.tokens.at(0, 0, slot) = static_cast<int32_t>(slot);
        for (int64_t e = 0; e < size; ++e)
            test.cold.k.at(0, slot, e) = slot / 2 == 1 ? 20.0f : slot / 2 == 3 ? 25.0f : 1.0f;
    }
    PageSign sign = test.sign(0, 4);
    PagePick pick = test.pick(q, counts);
    sign.index.codebooks = pick.index.codebooks = static_cast<Tensor>(codebooks);
    sign.index.centers = pick.index.centers = {};
    pick.scale = .01f;
    device_.launch(sign);
    for (const float element : {1.0f, -1.0f}) {
        for (int64_t e = 0; e < size; ++e) q.at(0, 0, e) = element;
        device_.launch(pick);
        EXPECT_EQ(test.frames.row(0), (element > 0 ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{0, 2}));
    }
}

TEST_F(reference_slots, a_signature_has_the_signs_of_the_mean) {
    TestPages test;
    test.set(6, pattern(0x00ff, 3));
    test.set(7, pattern(0x0ff0, 1));
    device_.launch(test.sign(3, 4));
    for (int64_t e = 0; e < size; ++e) EXPECT_EQ(test.signs(3)[static_cast<size_t>(e)], e < 8) << e;

    test.cold.tokens.at(0, 0, 6) = free_slot;
    device_.launch(test.sign(3, 4));
    for (int64_t e = 0; e < size; ++e) EXPECT_EQ(test.signs(3)[static_cast<size_t>(e)], e >= 4 && e < 12);

    test.cold.tokens.at(0, 0, 7) = free_slot;
    test.frames = Ints({1, 1, 2}, 3);
    test.frames.at(0, 0, 0) = 2;
    test.hot.tokens = Ints({1, 1, 4}, 77);
    PageSign sign = test.sign(3, 4);
    sign.keeps_frames = true;
    device_.launch(sign);
    EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{2, 3}));
    device_.launch(test.sign(3, 4)); // frees the frame of page 3 alone
    for (int64_t e = 0; e < size; ++e) EXPECT_FALSE(test.signs(3)[static_cast<size_t>(e)]);
    EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{2, -1}));
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{77, 77, free_slot, free_slot}));
}

// Keys that have much in common differ in their signatures by what they have not.
TEST_F(reference_slots, signatures_are_beside_the_center) {
    TestPages test;
    const auto sum_of = [](const std::vector<double>& a, std::vector<double> b) {
        for (size_t e = 0; e < b.size(); ++e) b[e] += a[e];
        return b;
    };
    const std::vector<double> common = pattern(0x0f0f, 100);
    for (int64_t slot = 0; slot < 8; ++slot)
        if (slot != 3) test.set(slot, sum_of(common, pattern(0x5a5a, slot < 4 ? 2 : slot < 6 ? -1 : -3)));
    PageSign sign = test.sign(0, 4);
    sign.center_end = 6; // slots 0 to 5 without 3: common and 4/5 of the pattern
    device_.launch(sign);
    for (int64_t e = 0; e < size; ++e) {
        const bool is_in_pattern = (0x5a5a >> e & 1) != 0, is_common = (0x0f0f >> e & 1) != 0;
        EXPECT_NEAR(test.center.at(e), (is_common ? 100 : -100) + (is_in_pattern ? .8 : -.8), .05) << e;
        EXPECT_EQ(test.signs(1)[static_cast<size_t>(e)], is_in_pattern) << e;
        EXPECT_EQ(test.signs(2)[static_cast<size_t>(e)], !is_in_pattern) << e;
    }
    EXPECT_NEAR(test.center.at(size), (1.2 + 1.2 + 1.8) / 3, .05); // of pages 0, 1 and 2

    sign.center_end = 0; // stays as it is
    sign.end = 1;
    for (const int64_t slot : {0, 1}) test.set(slot, pattern(0x0f0f, 200));
    device_.launch(sign);
    EXPECT_NEAR(test.center.at(0), 100, 1);
    EXPECT_NEAR(test.center.at(size), 1.4, .05);
    for (int64_t e = 0; e < size; ++e) EXPECT_EQ(test.signs(0)[static_cast<size_t>(e)], (0x0f0f >> e & 1) != 0);
}

TEST_F(reference_slots, a_center_of_rows_that_are_no_numbers_is_finite) {
    for (const float element :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
        TestPages test;
        test.set(0, pattern(0, 1));
        for (int64_t e = 0; e < size; ++e) test.cold.k.at(0, 0, e) = element;
        PageSign sign = test.sign(0, 1);
        sign.center_end = 1;
        device_.launch(sign);
        for (int64_t at = 0; at <= size; ++at) EXPECT_LE(std::abs(test.center.at(at)), 65504) << element << ", " << at;
    }
}

// Pages 0 to 4, of one pattern but for some elements: pages with fewer of these score higher.
void set_pages(TestPages& test) {
    const uint32_t others[] = {0xff, 0x3, 0x3f, 0, 0xf};
    for (int64_t slot = 0; slot < 10; ++slot) test.set(slot, pattern(0x5a5a ^ others[slot / 2], 1));
}

TEST_F(reference_slots, a_pick_brings_the_pages_of_the_largest_scores_and_keeps_what_it_has) {
    TestPages test;
    set_pages(test);
    test.cold.tokens.at(0, 0, 7) = free_slot;
    device_.launch(test.sign(0, 5));
    Floats q({1, 1, size}, 0);
    set_rotated_back(q, 0, pattern(0x5a5a, 1));
    Ints counts({1, 1, 4}, 0);
    PagePick args = test.pick(q, counts);
    device_.launch(args);
    EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{1, 3}));
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 106, free_slot}));
    EXPECT_EQ(test.hot.v.at(0, 1, 0), 3);
    EXPECT_EQ(test.hot.v.at(0, 2, 0), 6);
    EXPECT_EQ(test.hot.k.row(0, 2), test.cold.k.row(0, 6));
    EXPECT_EQ(counts.row(0), (std::vector<int32_t>{2, 0, 2, 0}));

    args.visible_end = 106; // without pages 3 and 4: 2 takes the frame that 3 had
    device_.launch(args);
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 104, 105}));
    EXPECT_EQ(counts.row(0), (std::vector<int32_t>{4, 0, 3, 0}));

    args.visible_end = 1000;
    args.bonus = 80; // what is there outweighs page 3
    device_.launch(args);
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 104, 105}));
    test.cold.tokens.at(0, 0, 1) |= anchor_flag; // page 0 comes before all others; 1 has more than 2
    device_.launch(args);
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 100, 101 | anchor_flag}));
}

// Two query heads that look for opposite things: one of them is far surer, whatever its numbers are.
TEST_F(reference_slots, a_score_is_the_sum_of_the_heads_softmax) {
    TestPages test;
    const uint32_t others[] = {0, 0xf, 0xfff, 0xffff};
    for (int64_t slot = 0; slot < 8; ++slot) test.set(slot, pattern(0x5a5a ^ others[slot / 2], 1));
    device_.launch(test.sign(0, 4));
    const auto frames_of = [&](double first, double second) {
        Floats q({2, 1, size}, 0);
        Floats row({1, 1, size}, 0);
        for (const int64_t head : {0, 1}) {
            set_rotated_back(row, 0, pattern(0x5a5a, head == 0 ? first : second));
            q.set_row(head, 0, row.row(0));
        }
        Ints counts({1, 1, 4}, 0);
        PagePick args = test.pick(q, counts);
        args.count = 2;
        device_.launch(args);
        return test.frames.row(0);
    };
    // Softmax of 16, 8, -8, -16 times a magnitude. Alone:
    EXPECT_EQ(frames_of(.01, .01), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(frames_of(-1, -1), (std::vector<int32_t>{2, 3}));
    // Both are sure of one page. By the larger one of z times 2, page 1 would come before page 3.
    EXPECT_EQ(frames_of(2, -.5), (std::vector<int32_t>{0, 3}));
    // A head that is no number is left out.
    EXPECT_EQ(frames_of(std::numeric_limits<double>::quiet_NaN(), -.5), (std::vector<int32_t>{2, 3}));
}

} // namespace
} // namespace winnow::reference
