// The operations on pages, on numbers that one can follow on paper: keys that are rotated back from what their
// signature is to be.
#include "device/pages.hpp"

#include <cmath>

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

// Slot i holds token 100 + i with the value i; frames for two pages.
struct TestPages {
    Ints signatures{{1, 1, signature_block_bytes(size, SignatureKind::signs) / 4}, 0};
    Ints frames{{1, 1, 2}, -1};
    TestSegment cold{{std::vector<int32_t>(slots, free_slot)}};
    TestSegment hot{{std::vector<int32_t>(4, free_slot)}};

    TestPages() {
        cold.k = Floats({1, slots, size}, 0);
        cold.v = Floats({1, slots, 1}, 0);
        hot.k = Floats({1, 4, size}, 0);
        hot.v = Floats({1, 4, 1}, 0);
    }
    PageIndex index() { return {2, signatures, frames}; }
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
        args.count = args.by_score = 2;
        args.pinned_from = 16;
        args.visible_end = 1000;
        args.counts = counts;
        return args;
    }
    Signature signature(int64_t page) { return signature_of(index(), 0, page, size); }
};

struct TestCenter {
    std::vector<uint16_t> halves = std::vector<uint16_t>(static_cast<size_t>(size), 7);

    explicit operator Tensor() {
        Tensor tensor;
        tensor.type = Type::f16;
        tensor.data = reinterpret_cast<std::byte*>(halves.data());
        tensor.shape = {1, 1, 1, size};
        tensor.stride = {0, 0, 0, 2};
        return tensor;
    }
    double at(int64_t e) const {
        return load(Type::f16, reinterpret_cast<const std::byte*>(&halves[static_cast<size_t>(e)]));
    }
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
    device_.launch(sign);
    for (const float element : {1.0f, -1.0f}) {
        for (int64_t e = 0; e < size; ++e) q.at(0, 0, e) = element;
        device_.launch(pick);
        EXPECT_EQ(test.frames.row(0), (element > 0 ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{0, 2}));
    }
}

TEST_F(reference_slots, a_signature_has_the_signs_of_the_mean_and_its_magnitude) {
    TestPages test;
    test.set(6, pattern(0x00ff, 3));
    test.set(7, pattern(0x0ff0, 1));
    device_.launch(test.sign(3, 4));
    for (int64_t e = 0; e < size; ++e) EXPECT_EQ(test.signature(3).signs[static_cast<size_t>(e)], e < 8) << e;
    EXPECT_NEAR(test.signature(3).factor, 1.5, 1e-3); // half of the means are +-2, half +-1

    test.cold.tokens.at(0, 0, 6) = free_slot;
    device_.launch(test.sign(3, 4));
    for (int64_t e = 0; e < size; ++e) EXPECT_EQ(test.signature(3).signs[static_cast<size_t>(e)], e >= 4 && e < 12);
    EXPECT_NEAR(test.signature(3).factor, 1, 1e-3);

    test.cold.tokens.at(0, 0, 7) = free_slot;
    test.frames = Ints({1, 1, 2}, 3);
    test.frames.at(0, 0, 0) = 2;
    test.hot.tokens = Ints({1, 1, 4}, 77);
    device_.launch(test.sign(3, 4)); // frees the frame of page 3 alone
    EXPECT_EQ(test.signature(3).factor, 0);
    EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{2, -1}));
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{77, 77, free_slot, free_slot}));
}

// Keys that have much in common differ in their signatures by what they have not.
TEST_F(reference_slots, signatures_and_scores_are_beside_the_center) {
    TestPages test;
    TestCenter center;
    const auto sum_of = [](const std::vector<double>& a, std::vector<double> b) {
        for (size_t e = 0; e < b.size(); ++e) b[e] += a[e];
        return b;
    };
    const std::vector<double> common = pattern(0x0f0f, 100);
    for (int64_t slot = 0; slot < 8; ++slot)
        if (slot != 3) test.set(slot, sum_of(common, pattern(0x5a5a, slot < 4 ? 2 : slot < 6 ? -1 : -3)));
    PageSign sign = test.sign(0, 4);
    sign.index.centers = static_cast<Tensor>(center);
    sign.center_end = 6; // slots 0 to 5 without 3: common and 4/5 of the pattern
    device_.launch(sign);
    for (int64_t e = 0; e < size; ++e) {
        const bool is_in_pattern = (0x5a5a >> e & 1) != 0, is_common = (0x0f0f >> e & 1) != 0;
        EXPECT_NEAR(center.at(e), (is_common ? 100 : -100) + (is_in_pattern ? .8 : -.8), .05) << e;
        EXPECT_EQ(test.signature(1).signs[static_cast<size_t>(e)], is_in_pattern) << e;
        EXPECT_EQ(test.signature(2).signs[static_cast<size_t>(e)], !is_in_pattern) << e;
    }
    EXPECT_NEAR(test.signature(1).factor, 1.2, .05);
    EXPECT_NEAR(test.signature(3).factor, 3.8, .05);

    // One query head finds in the center what the other is far from: its pages win.
    Floats q({1, 2, size}, 0);
    const auto set_query = [&](int64_t head, const std::vector<double>& rotated) {
        Floats row({1, 1, size}, 0);
        set_rotated_back(row, 0, rotated);
        q.set_row(0, head, row.row(0));
    };
    set_query(0, sum_of(pattern(0x0f0f, -1), pattern(0x5a5a, 1)));
    set_query(1, sum_of(pattern(0x0f0f, 1), pattern(0x5a5a, -1)));
    Ints counts({1, 1, 4}, 0);
    PagePick pick = test.pick(q, counts);
    pick.index.centers = static_cast<Tensor>(center);
    std::swap(pick.q.shape[1], pick.q.shape[2]); // heads of one token each
    std::swap(pick.q.stride[1], pick.q.stride[2]);
    device_.launch(pick);
    EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{2, 3}));

    sign.center_end = 0; // stays as it is
    sign.end = 1;
    test.set(0, pattern(0x0f0f, 200));
    device_.launch(sign);
    EXPECT_NEAR(center.at(0), 100, 1);
    for (int64_t e = 0; e < size; ++e)
        EXPECT_EQ(test.signature(0).signs[static_cast<size_t>(e)], (0x0f0f >> e & 1) != 0);
}

TEST_F(reference_slots, a_center_of_rows_that_are_no_numbers_is_finite) {
    TestPages test;
    TestCenter center;
    for (const float element :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
        test.set(0, pattern(0, 1));
        for (int64_t e = 0; e < size; ++e) test.cold.k.at(0, 0, e) = element;
        PageSign sign = test.sign(0, 1);
        sign.index.centers = static_cast<Tensor>(center);
        sign.center_end = 1;
        device_.launch(sign);
        for (int64_t e = 0; e < size; ++e) EXPECT_LE(std::abs(center.at(e)), 65504) << element << ", " << e;
    }
}

TEST_F(reference_slots, a_pick_brings_the_pages_of_the_largest_scores_and_keeps_what_it_has) {
    TestPages test;
    const double along[] = {1, 4, 2, 8, 3}; // pages 0 to 4, along one pattern
    for (int64_t slot = 0; slot < 10; ++slot)
        if (slot != 7) test.set(slot, pattern(0x5a5a, along[slot / 2]));
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
    args.bonus = 8 * size; // what is there outweighs page 3
    device_.launch(args);
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 104, 105}));
    test.cold.tokens.at(0, 0, 1) |= anchor_flag; // page 0 comes before all others; 1 has more than 2
    device_.launch(args);
    EXPECT_EQ(test.hot.map(0), (std::vector<int32_t>{102, 103, 100, 101 | anchor_flag}));
}

TEST_F(reference_slots, a_pick_leaves_to_what_it_has_all_but_the_pages_by_score) {
    const std::vector<std::pair<int64_t, std::vector<int32_t>>> frames_of_count = {
        {2, {0, 2}}, // the largest two, of which none was there
        {1, {1, 0}}, // the largest, and the larger one of what was there
        {0, {1, 3}}, // what was there
    };
    for (const auto& [by_score, frames] : frames_of_count) {
        TestPages test;
        const double along[] = {1, 4, 2, 8, 3}; // pages 0 to 4, along one pattern
        for (int64_t slot = 0; slot < 10; ++slot) test.set(slot, pattern(0x5a5a, along[slot / 2]));
        device_.launch(test.sign(0, 5));
        Floats q({1, 1, size}, 0);
        set_rotated_back(q, 0, pattern(0x5a5a, 1));
        Ints counts({1, 1, 4}, 0);
        PagePick args = test.pick(q, counts);
        args.by_score = by_score;
        device_.launch(args); // nothing is there yet: the largest two
        EXPECT_EQ(test.frames.row(0), (std::vector<int32_t>{1, 3}));
        set_rotated_back(q, 0, pattern(0x5a5a, -1)); // now the order is 0, 2, 4, 1, 3
        device_.launch(args);
        EXPECT_EQ(test.frames.row(0), frames) << by_score << " by score";

        test.cold.tokens.at(0, 0, 8) |= anchor_flag; // page 4 is pinned, and so are as many by score
        test.frames.at(0, 0, 0) = 1;
        test.frames.at(0, 0, 1) = 3;
        device_.launch(args);
        EXPECT_EQ(test.frames.row(0), by_score == 2 ? (std::vector<int32_t>{0, 4}) : (std::vector<int32_t>{1, 4}));
    }
}

} // namespace
} // namespace winnow::reference
