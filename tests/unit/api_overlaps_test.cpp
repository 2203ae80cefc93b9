// Outputs that overlap something, among many views: what is refused is what each pair of them says.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "api/tensor.hpp"

namespace winnow::api {
namespace {

class api_overlaps : public testing::Test {
protected:
    // Some bytes of one of two memories, or of none; now and then with gaps, of which nothing is said.
    Tensor draw() {
        Tensor tensor;
        tensor.type = Type::f32;
        const int64_t rows = 1 + below(3), gap = below(8) == 0 ? 4 : 0;
        tensor.shape = {1, 1, rows, 1 + below(6)};
        tensor.stride = {0, 0, rows > 1 ? 4 * tensor.shape[3] + gap : 0, 4};
        tensor.offset = static_cast<uint64_t>(4 * below(400));
        if (below(12) > 0) tensor.data = memory_[below(2)].data();
        return tensor;
    }
    int64_t below(int64_t end) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(end)); }

    static bool is_refused(const std::vector<NamedTensor>& outputs, const std::vector<NamedTensor>& inputs) {
        try {
            expect_apart(outputs, inputs);
            return false;
        } catch (const Error&) {
            return true;
        }
    }

private:
    std::mt19937_64 engine_{1};
    std::vector<std::byte> memory_[2] = {std::vector<std::byte>(4096), std::vector<std::byte>(4096)};
};

TEST_F(api_overlaps, what_is_refused_is_what_each_pair_says) {
    int refused = 0;
    for (int round = 0; round < 3000; ++round) {
        std::vector<Tensor> tensors(static_cast<size_t>(1 + below(16)));
        for (Tensor& each : tensors) each = draw();
        const size_t first_input = static_cast<size_t>(below(static_cast<int64_t>(tensors.size()) + 1));
        std::vector<NamedTensor> outputs, inputs;
        bool overlaps = false;
        for (size_t i = 0; i < tensors.size(); ++i) {
            (i < first_input ? outputs : inputs).push_back({tensors[i], i < first_input ? "output" : "input"});
            for (size_t other = 0; other < std::min(i, first_input); ++other)
                overlaps |= certainly_overlap(tensors[i], tensors[other]);
        }
        ASSERT_EQ(is_refused(outputs, inputs), overlaps) << "round " << round;
        refused += overlaps;
    }
    EXPECT_GT(refused, 500);
    EXPECT_LT(refused, 2500);
}

TEST_F(api_overlaps, a_refusal_names_both) {
    std::vector<std::byte> bytes(64);
    Tensor first;
    first.type = Type::f32;
    first.shape = {1, 1, 1, 4};
    first.stride = {0, 0, 0, 4};
    first.data = bytes.data();
    Tensor second = first;
    second.offset = 12;
    const auto text_of = [](const std::vector<NamedTensor>& outputs, const std::vector<NamedTensor>& inputs) {
        try {
            expect_apart(outputs, inputs);
            return std::string();
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    EXPECT_EQ(text_of({{first, "out"}}, {{second, "q"}}), "out overlaps q");
    EXPECT_EQ(text_of({{second, "out"}}, {{first, "q"}}), "out overlaps q");
    EXPECT_EQ(text_of({{first, "out"}, {second, "scores_out"}}, {}), "scores_out overlaps out");
    EXPECT_EQ(text_of({{second, "scores_out"}, {first, "scores_out"}}, {}),
              "scores_out overlaps scores_out of another entry");
    EXPECT_EQ(text_of({}, {{first, "k"}, {second, "v"}}), "");
    second.offset = 16;
    EXPECT_EQ(text_of({{first, "out"}, {second, "scores_out"}}, {}), "");
}

} // namespace
} // namespace winnow::api
