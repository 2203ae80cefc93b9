// Lengths and query offsets that an earlier operation writes: they are read when the attention runs, not before.
#include <gtest/gtest.h>

#include "sdpa_problem.hpp"

namespace winnow::conformance {
namespace {

// What an append stores as F32 and an attention reads as I32: 0, far above every length, and far below.
constexpr float written[] = {0, 1, -1, 1};
constexpr int64_t read[] = {0, 0x3f800000, -0x40800000, 0x3f800000};

struct Append {
    TestTensor rows{WINNOW_TYPE_F32, {1, 1, 1, 4}}, index{WINNOW_TYPE_I32, {1, 1, 1, 1}}, numbers;

    explicit Append(Memory memory) : numbers(WINNOW_TYPE_F32, {1, 1, 1, 4}, Layout::packed, memory) {
        for (int64_t entry = 0; entry < 4; ++entry) {
            rows.set({0, 0, 0, entry}, static_cast<double>(written[entry]));
            numbers.set({0, 0, 0, entry}, 3 - static_cast<double>(written[entry]));
        }
        index.set({}, 0);
        for (TestTensor* tensor : {&rows, &index, &numbers}) tensor->bind(subject());
    }
    int32_t run() const {
        winnow_kv_append_desc desc{};
        desc.struct_size = sizeof desc;
        desc.k_src = rows.view();
        desc.k_cache = numbers.view();
        desc.k_row_indices = index.view();
        return subject().run(desc);
    }
    winnow_tensor as_integers() const {
        winnow_tensor view = *numbers.view();
        view.type = WINNOW_TYPE_I32;
        return view;
    }
};

SdpaCase shape_of(bool has_lengths) {
    SdpaCase c;
    c.batch = c.kv_batch = 4;
    c.kv_len = 70;
    c.is_causal = true;
    c.row_stats = true;
    c.scores_mode = WINNOW_SCORES_PROBS;
    (has_lengths ? c.kv_lengths : c.q_offsets).assign(std::begin(read), std::end(read));
    if (has_lengths) c.q_offset = c.kv_len - 1;
    return c;
}

void expect_what_was_written(Memory memory, bool has_lengths) {
    const SdpaCase shape = shape_of(has_lengths);
    std::string refusal;
    EXPECT_EQ(judge_sdpa(shape, 5, &refusal), "");
    if (!refusal.empty()) GTEST_SKIP() << "UNSUPPORTED: " << refusal;
    SdpaProblem given(shape, 5), got(shape, 5);
    given.bind(subject());
    got.bind(subject());
    ASSERT_EQ(subject().run(given.desc()), WINNOW_OK) << subject().message();

    const Append append(memory);
    const winnow_tensor numbers = append.as_integers();
    winnow_sdpa_desc desc = got.desc();
    (has_lengths ? desc.kv_lengths : desc.q_offsets) = &numbers;
    ASSERT_EQ(append.run(), WINNOW_OK) << subject().message();
    ASSERT_EQ(subject().run(desc), WINNOW_OK) << subject().message();
    ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    const std::pair<const TestTensor*, const TestTensor*> outputs[] = {
        {&got.out, &given.out}, {&got.scores_out, &given.scores_out}, {&got.row_stats, &given.row_stats}};
    for (const auto& [is, wanted] : outputs)
        is->each([&, is = is, wanted = wanted](const Index& at) { EXPECT_EQ(is->get(at), wanted->get(at)); });
}

class sdpa_lengths : public testing::TestWithParam<Memory> {};

TEST_P(sdpa_lengths, are_those_that_an_earlier_append_wrote) { expect_what_was_written(GetParam(), true); }

TEST_P(sdpa_lengths, offsets_are_those_that_an_earlier_append_wrote) { expect_what_was_written(GetParam(), false); }

INSTANTIATE_TEST_SUITE_P(sdpa, sdpa_lengths, testing::Values(Memory::host, Memory::allocated, Memory::imported));

} // namespace
} // namespace winnow::conformance
