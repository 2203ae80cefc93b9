// When a layer has zeroing passes, over which segments, and that the calls which keep rows keep them as they are.
#include <gtest/gtest.h>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

struct ZeroedCache {
    explicit ZeroedCache(const std::string& config, int64_t layers = 1)
        : shape{layers, 2, 64, 64, 400}, cache(device, {config, shape.with_q_heads(4), 1, 0, {}}) {}

    void step(int64_t layer, int64_t tokens, bool attends = true) {
        HostRows rows(2, tokens, 64), q(4, tokens, 64), out = q;
        CacheStep args;
        args.layer = layer;
        args.scale = 1;
        args.k = args.v = rows.tensor();
        if (attends) {
            args.q = q.tensor();
            args.out = out.tensor();
        }
        device.clear();
        cache.step({&args, 1});
    }

    // After which numbers of tokens a layer has passes, as they come one by one; "p" behind those before rows are
    // packed.
    std::string passes(int64_t layer, int64_t tokens) {
        std::string text;
        for (int64_t token = 0; token < tokens; ++token) {
            step(layer, 1);
            for (size_t at = 0; at < device.zeroings.size(); ++at) {
                const bool is_before = at == 0 && !device.eviction_passes.empty();
                text +=
                    (text.empty() ? "" : " ") + std::to_string(token + (is_before ? 0 : 1)) + (is_before ? "p" : "");
            }
        }
        return text;
    }

    FakeDevice device;
    AlikeLayers shape;
    Cache cache;
};

TEST(cache_zeroing, comes_every_so_many_tokens_after_the_first) {
    ZeroedCache f("none:elastic=on");
    EXPECT_EQ(f.passes(0, 260), "128 192 256");
    ZeroedCache g("none:elastic=on,zero_every=50,zero_after=60");
    EXPECT_EQ(g.passes(0, 210), "100 150 200");
    ZeroedCache h("none");
    EXPECT_EQ(h.passes(0, 210), "");
}

TEST(cache_zeroing, layers_take_turns) {
    ZeroedCache f("none:elastic=on,zero_every=30,zero_after=0", 3);
    EXPECT_EQ(f.passes(0, 70), "30 60");
    EXPECT_EQ(f.passes(1, 70), "10 40 70");
    EXPECT_EQ(f.passes(2, 70), "20 50");
}

TEST(cache_zeroing, a_chunk_that_reaches_the_turn_has_one_whether_it_attends_or_not) {
    for (const bool attends : {true, false}) {
        ZeroedCache f("none:elastic=on,zero_every=40,zero_after=50"); // chunks of 32
        f.step(0, 200, attends);
        EXPECT_EQ(f.device.zeroings.size(), 5u); // that of 40 in a chunk which ends behind 50
    }
}

TEST(cache_zeroing, takes_all_segments_and_the_scales) {
    ZeroedCache f("none:elastic=sweet,zero_sink=7,zero_every=90,zero_after=90");
    f.step(0, 90);
    ASSERT_EQ(f.device.zeroings.size(), 1u);
    const SlotZero& args = f.device.zeroings[0];
    EXPECT_EQ(args.segments.size(), 2u); // the dense one and the packed one
    EXPECT_EQ(args.k_scale, .45);
    EXPECT_EQ(args.v_scale, .5);
    EXPECT_EQ(args.sink, 7);
}

// Keys are packed, in a window of 48 every 32 tokens; values are not.
TEST(cache_zeroing, comes_before_rows_are_packed) {
    ZeroedCache f("window:k=q8_0,elastic=on,budget=200,cadence=25,zero_after=60");
    EXPECT_EQ(f.passes(0, 130), "64 75p 100p 125p 128");
    ZeroedCache g("window:k=q8_0,elastic=on,budget=200,cadence=25,zero_after=60,zero_k=0");
    EXPECT_EQ(g.passes(0, 130), "64 128");
    f.step(0, 21);
    ASSERT_EQ(f.device.zeroings.size(), 1u);
    EXPECT_EQ(f.device.zeroings[0].k_scale, .35);
    EXPECT_EQ(f.device.zeroings[0].v_scale, 0);
}

TEST(cache_zeroing, packed_rows_need_a_residual_window) {
    const auto refusal = [](const std::string& config) -> std::string {
        try {
            ZeroedCache f(config);
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_NE(refusal("window:k=q8_0,elastic=on,budget=200,residual=0").find("residual=0 says that there is none"),
              std::string::npos);
    EXPECT_NE(refusal("window:v=q4_0,elastic=sweet,budget=40").find("elastic= zeroes rows before they are packed"),
              std::string::npos);
    EXPECT_EQ(refusal("window:v=q4_0,elastic=k_only,budget=40"), "");
    EXPECT_EQ(refusal("window:elastic=on,budget=200,residual=0"), "");
}

} // namespace
} // namespace winnow::cache
