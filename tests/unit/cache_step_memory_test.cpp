// What a step takes for several sequences beside what one of them would take alone.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t sequences = 3, kv_heads = 2, q_heads = 4, size = 32, prompt = 300, queries = 100;
const AlikeLayers sizes = {1, kv_heads, size, size, 400, 0, q_heads};

HostRows drawn(int64_t heads, int64_t tokens) {
    HostRows rows(heads, tokens, size);
    for (size_t i = 0; i < rows.values.size(); ++i) rows.values[i] = std::sin(static_cast<float>(i));
    return rows;
}

class cache_step_memory : public testing::Test {
protected:
    cache_step_memory() : cache_(device_, {"winnow:recall=host,k=q8_0,v=q8_0,budget=40000B", sizes, sequences, 0, {}}) {
        HostRows k = drawn(kv_heads, prompt);
        for (int64_t sequence = 0; sequence < sequences; ++sequence) {
            CacheStep args;
            args.sequence = sequence;
            args.k = args.v = k.tensor();
            cache_.step({&args, 1});
        }
    }

    // The most that a step of so many sequences' queries takes beside what there is before it; the outputs are kept.
    uint64_t taken(int64_t count) {
        HostRows q = drawn(q_heads, queries);
        outputs_.assign(static_cast<size_t>(count), HostRows(q_heads, queries, size));
        std::vector<CacheStep> all(static_cast<size_t>(count));
        for (size_t i = 0; i < all.size(); ++i) {
            all[i].sequence = static_cast<int64_t>(i);
            all[i].scale = 1;
            all[i].q = q.tensor();
            all[i].out = outputs_[i].tensor();
        }
        const uint64_t before = device_.most_in_use = device_.in_use;
        cache_.step(all);
        EXPECT_EQ(device_.in_use, before) << "queries leave nothing behind";
        return device_.most_in_use - before;
    }

    FakeDevice device_;
    Cache cache_;
    std::vector<HostRows> outputs_;
};

TEST_F(cache_step_memory, prompts_over_a_cold_tier_share_what_their_queries_carry) {
    taken(1); // what a cache keeps from its first query on is there
    const uint64_t alone = taken(1);
    const std::vector<float> expected = outputs_.front().values;
    EXPECT_GT(alone, static_cast<uint64_t>(q_heads * queries * size) * sizeof(float));
    EXPECT_EQ(taken(sequences), alone);
    for (const HostRows& each : outputs_) EXPECT_EQ(each.values, expected) << "all hold the same tokens";
}

} // namespace
} // namespace winnow::cache
