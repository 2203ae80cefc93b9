// Bytes and tokens of configurations, against figures worked out by hand, and as exact inverses of each other.
#include "cache/plan/budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "alike_layers.hpp"
#include "device/device.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers smollm = {30, 3, 64, 64, 2048}; // SmolLM2-135M

TEST(cache_budget, bytes_are_the_ones_worked_out) {
    // turbo4 34 and turbo3 26 bytes a row of 64, f16 128.
    const Bytes bytes = bytes_of({Type::turbo4, Type::turbo3, 64, 64, 52, true, true}, 512);
    EXPECT_EQ(bytes.k, 460u * 34);
    EXPECT_EQ(bytes.v, 460u * 26);
    EXPECT_EQ(bytes.dense_k, 52u * 128);
    EXPECT_EQ(bytes.dense_v, 52u * 128);
    EXPECT_EQ(bytes.slot_map, 512u * 4);
    EXPECT_EQ(bytes.importance, 512u * 4);
    EXPECT_EQ(bytes.means, 512u);
    EXPECT_EQ(bytes.total(), 460u * 60 + 52 * 256 + 512 * 8 + 512);
    // Formats that are not packed are their own dense format; sizes of K and V differ.
    EXPECT_EQ(bytes_of({Type::f32, Type::bf16, 80, 128, 10, false, false}, 30),
              (Bytes{20 * 320, 20 * 256, 10 * 320, 10 * 256, 120, 0, 0}));
    // Fewer tokens than dense rows.
    EXPECT_EQ(bytes_of({Type::q8_0, Type::q8_0, 64, 64, 52, false, false}, 3), (Bytes{0, 0, 384, 384, 12, 0, 0}));
}

// lab/policies.md: bytes of K and V for a token, layer and head of 64, and the tokens of a share of 2048 in f16, with
// 4 sinks and 32 newest dense, as the prototype counted them.
TEST(cache_budget, agrees_with_the_prototypes_arithmetic) {
    const auto per_token = [](Type k, Type v) {
        const Bytes bytes = bytes_of({k, v, 64, 64, 0, false, false}, 1);
        return bytes.k + bytes.v;
    };
    EXPECT_EQ(per_token(Type::f16, Type::f16), 256u);
    EXPECT_EQ(per_token(Type::q8_0, Type::q8_0), 136u);
    EXPECT_EQ(per_token(Type::turbo4, Type::turbo4), 68u);
    EXPECT_EQ(per_token(Type::turbo4, Type::turbo3), 60u);
    const auto rows = [](Type v, int64_t tokens) {
        const Bytes bytes = bytes_of({Type::turbo4, v, 64, 64, 36, false, false}, tokens);
        return bytes.k + bytes.v + bytes.dense_k + bytes.dense_v;
    };
    const uint64_t eighth = 2048 * 256 / 8, sixteenth = eighth / 2;
    EXPECT_LE(rows(Type::turbo3, 974), eighth);
    EXPECT_GT(rows(Type::turbo3, 975), eighth);
    EXPECT_LE(rows(Type::turbo4, 864), eighth);
    EXPECT_GT(rows(Type::turbo4, 865), eighth);
    EXPECT_LE(rows(Type::turbo3, 428), sixteenth);
    EXPECT_GT(rows(Type::turbo3, 429), sixteenth);
}

TEST(cache_budget, tokens_are_as_many_as_fit) {
    std::mt19937_64 random(21);
    const std::vector<std::string> formats = format_names();
    for (int round = 0; round < 5000; ++round) {
        const auto any = [&] { return format_of(formats[random() % formats.size()]); };
        const Layout layout{any(),
                            any(),
                            static_cast<int64_t>(128 * (1 + random() % 4)),
                            static_cast<int64_t>(128 * (1 + random() % 4)),
                            static_cast<int64_t>(random() % 60),
                            random() % 2 != 0,
                            random() % 2 != 0};
        const uint64_t bytes = random() % (uint64_t{1} << (10 + random() % 30));
        const int64_t limit = static_cast<int64_t>(random() % 100000);
        Layout other = layout;
        other.k = any();
        other.v = any();
        const HeadsOf heads[] = {{layout, static_cast<int64_t>(random() % 5)},
                                 {other, static_cast<int64_t>(1 + random() % 3)}};
        const auto bytes_with = [&](int64_t tokens) {
            uint64_t sum = 0;
            for (const HeadsOf& each : heads)
                sum += static_cast<uint64_t>(each.count) * bytes_of(each.layout, tokens).total();
            return sum;
        };
        const int64_t tokens = tokens_in(heads, bytes, limit);
        ASSERT_GE(tokens, 0);
        ASSERT_LE(tokens, limit);
        if (tokens > 0) {
            ASSERT_LE(bytes_with(tokens), bytes);
        }
        if (tokens < limit) {
            ASSERT_GT(bytes_with(tokens + 1), bytes);
        }
    }
}

TEST(cache_budget, a_plan_in_tokens_and_shares) {
    const Plan quarter = plan(parse("h2o:budget=1/4"), smollm);
    EXPECT_EQ(quarter.tokens, 512);
    EXPECT_EQ(quarter.layer_tokens, std::vector<int64_t>(30, 512));
    EXPECT_EQ(quarter.sink, 4);
    EXPECT_EQ(quarter.residual, 48);
    EXPECT_EQ(quarter.cadence, 32);
    EXPECT_EQ(quarter.full_bytes, 90u * 2048 * 256);
    EXPECT_EQ(quarter.bytes.total() - quarter.bytes.state, 90u * 512 * 264);
    EXPECT_EQ(quarter.bytes.state, 90u * 278); // 4 numbers and 64 sums a head, in 64 and 768 bytes a layer
    EXPECT_EQ(plan(parse("h2o:budget=512"), smollm).bytes, quarter.bytes);
    EXPECT_EQ(plan(parse("h2o:budget=9999"), smollm).tokens, 2048); // the context is enough
    EXPECT_EQ(plan(parse("none:k=q8_0,v=q8_0"), smollm).tokens, 2048);
    EXPECT_EQ(plan(parse("window:budget=1/4"), smollm).bytes.importance, 0u);
    EXPECT_EQ(plan(parse("window:center=on"), smollm).bytes.means, 90u * 512);
}

TEST(cache_budget, tokens_are_divided_among_packed_segments) {
    const Plan made = plan(parse("window:budget=512,k=q8_0,v=q8_0,share2=1/4,k2=turbo4,share3=1/8,v3=turbo2"), smollm);
    // 52 dense rows; 128 in turbo4 and q8_0, 64 in turbo4 and turbo2, the other 268 in q8_0.
    EXPECT_EQ(made.bytes.k, 90u * (268 * 68 + 128 * 34 + 64 * 34));
    EXPECT_EQ(made.bytes.v, 90u * (268 * 68 + 128 * 68 + 64 * 18));
    EXPECT_EQ(made.bytes.dense_k, 90u * 52 * 128);
    EXPECT_EQ(made.bytes.slot_map, 90u * 512 * 4);
    const std::vector<LowerTier> lower = parse("window:share2=1/2,share3=1/4").lower();
    EXPECT_EQ(divide(lower, 101, 20), (std::array<int64_t, 3>{6, 50, 25}));
    EXPECT_EQ(divide(lower, 30, 20), (std::array<int64_t, 3>{0, 3, 7})); // no more than there are
    EXPECT_EQ(divide(lower, 10, 20), (std::array<int64_t, 3>{0, 0, 0}));
    EXPECT_EQ(divide({}, 100, 20), (std::array<int64_t, 3>{80, 0, 0}));
}

TEST(cache_budget, layers_of_other_formats_take_other_bytes) {
    const char* const text = "none:k=turbo4,v=turbo3,fine=0-1,k_fine=q8_0,v_fine=f16,coarse=29,k_coarse=turbo2";
    const Plan made = plan(parse(text), smollm), usual = plan(parse("none:k=turbo4,v=turbo3"), smollm);
    const uint64_t packed = 2048 - 52, heads = 3;
    EXPECT_EQ(made.bytes.k, heads * packed * (27 * 34 + 2 * 68 + 18));
    EXPECT_EQ(made.bytes.v, heads * packed * (28 * 26 + 2 * 128));
    EXPECT_EQ(made.bytes.dense_k, usual.bytes.dense_k);
    using Formats = std::vector<RowFormats>;
    EXPECT_EQ(made.formats[1], (Formats{{Type::q8_0, Type::f16, 0, 3}}));
    EXPECT_EQ(made.formats[2], (Formats{{Type::turbo4, Type::turbo3, 0, 3}}));
    EXPECT_EQ(made.formats[29], (Formats{{Type::turbo2, Type::turbo3, 0, 3}}));
    // A budget in bytes holds as many tokens in each layer, and no more bytes in all.
    const Plan few = plan(parse("window:budget=3M,k=turbo4,v=turbo3,fine=0-9,k_fine=f32"), smollm);
    EXPECT_EQ(few.layer_tokens, std::vector<int64_t>(30, few.tokens));
    EXPECT_LE(few.bytes.total(), 3u << 20);
    EXPECT_GT(few.bytes.total(), (3u << 20) - 90 * 400);
    EXPECT_LT(few.tokens, plan(parse("window:budget=3M,k=turbo4,v=turbo3"), smollm).tokens);
}

TEST(cache_budget, heads_of_other_formats_take_other_bytes) {
    const char* const text = "none:k=turbo4,v=turbo3,fine=0.0+2+29.0-2,k_fine=f32,coarse=0.2,v_coarse=turbo2";
    const Plan made = plan(parse(text), smollm), usual = plan(parse("none:k=turbo4,v=turbo3"), smollm);
    const uint64_t packed = 2048 - 52;
    EXPECT_EQ(made.bytes.k, packed * (83 * 34 + 7 * 256));
    EXPECT_EQ(made.bytes.v, packed * (89 * 26 + 18));
    // Dense rows are F32 where all heads of a layer are, named one by one or not; else as all would have them.
    EXPECT_EQ(made.bytes.dense_k, usual.bytes.dense_k + 52 * 6 * 128);
    using Formats = std::vector<RowFormats>;
    EXPECT_EQ(made.formats[0], (Formats{{Type::turbo4, Type::turbo3, 2, 1},
                                        {Type::f32, Type::turbo3, 1, 1},
                                        {Type::turbo4, Type::turbo2, 4, 1}}));
    EXPECT_EQ(made.formats[1], (Formats{{Type::turbo4, Type::turbo3, 0, 3}}));
    EXPECT_EQ(made.formats[2], (Formats{{Type::f32, Type::turbo3, 0, 3}}));
    EXPECT_EQ(made.formats[29], (Formats{{Type::f32, Type::turbo3, 0, 3}}));
    const Plan few = plan(parse("window:budget=3M,k=turbo4,v=turbo3,fine=0-9.1-2,k_fine=f32"), smollm);
    EXPECT_EQ(few.layer_tokens, std::vector<int64_t>(30, few.tokens));
    EXPECT_LE(few.bytes.total(), 3u << 20);
    EXPECT_GT(few.bytes.total(), (3u << 20) - 90 * 400);
    // Heads whose own formats are the usual ones are as the others.
    EXPECT_EQ(plan(parse("none:k=turbo4,fine=3.1,k_fine=turbo4"), smollm).formats[3].size(), 1u);
}

TEST(cache_budget, ages_say_how_many_tokens_each_packed_segment_has) {
    AlikeLayers shape = smollm;
    shape.context = 32768;
    const auto divided = [&](const char* text) {
        const Plan made = plan(parse(text), shape);
        return std::pair(made.tokens, divide(made.lower, made.tokens, made.sink + made.residual));
    };
    using Parts = std::array<int64_t, 3>;
    // 52 dense rows are among the newest. The figures of the description that decay follows: 4096 stay, all of them of
    // the window, and 28672 go.
    EXPECT_EQ(divided("decay"), std::pair(int64_t{4096}, Parts{4044, 0, 0}));
    EXPECT_EQ(divided("decay:mode=eviction"), divided("decay"));
    EXPECT_EQ(divided("decay:mode=bit_reduction"), std::pair(int64_t{32768}, Parts{4044, 28672, 0}));
    // ln 2, ln 5 and ln 20 of an age of 10000: 6932, 16095 and 29958 ages are younger.
    EXPECT_EQ(divided("decay:decay_lambda=0.0001"), std::pair(int64_t{29958}, Parts{6880, 9163, 13863}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,mode=eviction"), std::pair(int64_t{29958}, Parts{29906, 0, 0}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,mode=bit_reduction"),
              std::pair(int64_t{32768}, Parts{6880, 9163, 16673}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,weight3=0"), std::pair(int64_t{29958}, Parts{6880, 23026, 0}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,weight2=0,weight3=0"), std::pair(int64_t{29958}, Parts{29906, 0, 0}));
    EXPECT_EQ(divided("decay:decay_lambda=0"), std::pair(int64_t{32768}, Parts{32716, 0, 0}));
    // Where experts rank, the ages say as much.
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,experts=64"), divided("decay:decay_lambda=0.0001"));
    EXPECT_EQ(plan(parse("decay:decay_lambda=0.0001,experts=64"), shape).bytes.importance, uint64_t{90} * 29958 * 4);
    // A window that is longer than the first ages, and budgets that end before the last.
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,window=1/4"), std::pair(int64_t{29958}, Parts{8140, 7903, 13863}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,budget=10000"), std::pair(int64_t{10000}, Parts{6880, 3068, 0}));
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,budget=6932"), std::pair(int64_t{6932}, Parts{6880, 0, 0}));
    const Plan bytes = plan(parse("decay:decay_lambda=0.0001,budget=64M"), shape);
    EXPECT_LE(bytes.bytes.total(), uint64_t{64} << 20);
    EXPECT_GT(bytes.bytes.total() + 90 * (18 + 18 + 4), uint64_t{64} << 20) << "a token more would fit";
    shape.context = 2048;
    EXPECT_EQ(divided("decay"), std::pair(int64_t{2048}, Parts{1996, 0, 0}));
    // A budget that is less than the window is the window.
    EXPECT_EQ(divided("decay:budget=1/4"), std::pair(int64_t{512}, Parts{460, 0, 0}));
    EXPECT_EQ(divided("decay:window=1/8,budget=100"), std::pair(int64_t{100}, Parts{96, 0, 0}));
    // Without a second segment the third one comes next.
    shape.context = 32768;
    EXPECT_EQ(divided("decay:decay_lambda=0.0001,weight2=0"), std::pair(int64_t{29958}, Parts{16043, 13863, 0}));
    try {
        plan(parse("decay:mode=bit_reduction,k3=affine4_g128"), shape);
        ADD_FAILURE() << "a format that does not fit the head is taken";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("k3=affine4_g128"), std::string::npos) << error.what();
    }
}

TEST(cache_budget, packed_segments_too_small_for_a_cadence_are_refused) {
    const auto refusal = [](const char* text) -> std::string {
        try {
            plan(parse(text), smollm);
            return {};
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_EQ(refusal("window:budget=128,share2=1/4"), "");
    EXPECT_NE(refusal("window:budget=128,share2=1/2")
                  .find("the packed segments have 12, 64; the first packed segment is too small"),
              std::string::npos)
        << refusal("window:budget=128,share2=1/2");
    EXPECT_NE(refusal("window:budget=128,share2=1/10,share3=1/4").find("the second packed segment is too small"),
              std::string::npos);
    EXPECT_NE(refusal("window:budget=128,share2=1/200")
                  .find("the second packed segment is too small: expected at least a cadence, 16 tokens"),
              std::string::npos);
    EXPECT_NE(refusal("window:share2=1/4,k2=affine8_g128").find("k2=affine8_g128 with head_size 64"),
              std::string::npos);
}

TEST(cache_budget, a_plan_in_bytes_is_as_large_as_fits) {
    for (const char* options : {"winnow:", "window:k=q8_0,v=q4_0,", "h2o:residual=0,", "hierarchical:center=on,",
                                "scissorhands:k=turbo2,v=turbo2,residual=20,"})
        for (const uint64_t bytes : {3u << 20, 5000000u, 12345678u, 40u << 20}) {
            const Config config = parse(std::string(options) + "budget=" + std::to_string(bytes) + "B");
            const Plan made = plan(config, smollm);
            const Layout layout{
                config.k(),      config.v(),           64, 64, made.sink + made.residual, made.bytes.importance > 0,
                config.center(), made.bytes.state / 90};
            EXPECT_EQ(made.bytes.total(), 90 * bytes_of(layout, made.tokens).total());
            EXPECT_LE(made.bytes.total(), bytes) << options;
            if (made.tokens < smollm.context) {
                EXPECT_GT(90 * bytes_of(layout, made.tokens + 1).total(), bytes) << options;
            }
        }
}

// Importance is paid for where a layer keeps one.
TEST(cache_budget, importance_costs_where_it_is_kept) {
    const std::vector<LayerProfile> flat(30);
    std::vector<LayerProfile> steep(30);
    for (size_t i = 0; i < steep.size(); ++i) steep[i].entropy = static_cast<double>(i);
    const auto importance = [&](const std::string& config, const std::vector<LayerProfile>& profile) {
        const Plan made = plan(parse(config), smollm, profile);
        bool kept = false;
        for (int64_t layer = 0; layer < smollm.layers; ++layer)
            kept |= make_policy(parse(config))->describe(context_of(made, smollm, layer)).importance != Importance{};
        EXPECT_EQ(made.bytes.importance > 0, kept) << config;
        return made.bytes.importance;
    };
    EXPECT_EQ(importance("winnow", {}), 0u); // the default, a plain window
    EXPECT_EQ(importance("winnow:budget=1/2", {}), 0u);
    EXPECT_EQ(importance("winnow:budget=1/4", {}), 90u * 512 * 4);
    EXPECT_EQ(importance("winnow:window_from=1/1", {}), 0u);
    EXPECT_EQ(importance("window:budget=1/4", {}), 0u);
    EXPECT_EQ(importance("hierarchical:budget=1/4", {}), 90u * 512 * 4); // two tiers of three
    EXPECT_EQ(importance("hierarchical:budget=1/4,middle_from=1/1,deep_from=1/1", {}), 0u);
    EXPECT_EQ(importance("adaptive_budget:budget=1/4,policy=window", steep), 0u);
    EXPECT_EQ(importance("adaptive_budget:budget=3/4,policy=winnow", flat), 0u);
    EXPECT_EQ(importance("adaptive_budget:budget=3/4,policy=winnow,concentration=0,variance=0", steep),
              90u * 1536 * 4); // the first layers
    for (uint64_t kib = 1000; kib < 16000; kib += 37) importance("winnow:budget=" + std::to_string(kib) + "K", {});
}

// The bytes of the packed context hold the packed context.
TEST(cache_budget, importance_that_nobody_keeps_takes_no_room) {
    const uint64_t state = 22; // 4 numbers a head, in 64 bytes a layer of three heads
    const uint64_t enough = 90 * bytes_of({Type::turbo4, Type::turbo3, 64, 64, 52, false, false, state}, 2048).total();
    const auto tokens_of_bytes = [](uint64_t bytes) {
        return plan(parse("winnow:budget=" + std::to_string(bytes) + "B"), smollm).tokens;
    };
    EXPECT_EQ(tokens_of_bytes(enough), 2048);
    EXPECT_EQ(tokens_of_bytes(enough - 1), 2047);
}

TEST(cache_budget, unlike_layers_have_the_same_tokens_and_bytes_of_their_own) {
    const LayerShape small{4, 2, 64, 64}, large{4, 4, 128, 64};
    const Shape both{{small, large}, 2048};
    const Bytes of_small = plan(parse("winnow:budget=512"), {{small}, 2048}).bytes,
                of_large = plan(parse("winnow:budget=512"), {{large}, 2048}).bytes;
    Bytes sum = of_small;
    sum += of_large;
    EXPECT_EQ(plan(parse("winnow:budget=512"), both).bytes, sum);
    EXPECT_EQ(plan(parse("none"), both).full_bytes, 2u * 2048 * (2 * 128 + 4 * 192));

    const Plan made = plan(parse("winnow:budget=512K,residual=48"), both);
    EXPECT_EQ(made.layer_tokens, std::vector<int64_t>(2, made.tokens));
    EXPECT_LE(made.bytes.total(), 512u << 10);
    const std::string one_more = "winnow:residual=48,budget=" + std::to_string(made.tokens + 1);
    EXPECT_GT(plan(parse(one_more), both).bytes.total(), 512u << 10);

    const Config recall = parse("winnow:recall=host,budget=900000B");
    EXPECT_EQ(recall_budget(recall, both, small), 225000u);
    EXPECT_EQ(recall_budget(recall, both, large), 675000u);
    const Shape alike{{small, small, small}, 2048};
    EXPECT_EQ(recall_budget(recall, alike, small), 300000u);
}

// A layer's small state lies one after another in one buffer, each part from a multiple of 64 bytes on.
TEST(cache_budget, the_state_of_a_layer_is_counted_whole) {
    AlikeLayers shape = smollm;
    const StateLayout all = state_layout(parse("h2o:center=on,residual=0,cadence=7"), shape.layer(), 0, 0, true);
    EXPECT_EQ(all.head_state.size, 3u * 16);
    EXPECT_EQ(all.output_sum.offset, 64u);
    EXPECT_EQ(all.k_mean.offset, 64u + 768);
    EXPECT_EQ(all.v_mean.offset, 64u + 2 * 768);
    EXPECT_EQ(all.free_slots.offset, 64u + 3 * 768);
    EXPECT_EQ(all.free_slots.size, 3u * 7 * 4);
    EXPECT_EQ(all.size, 64u + 3 * 768 + 128);
    EXPECT_EQ(state_layout(parse("window"), shape.layer(), 0, 48, false).size, 64u);
    shape.cells = 1000;
    EXPECT_EQ(state_layout(parse("window"), shape.layer(), 1000, 48, false).size, 64u + 4032);
    EXPECT_EQ(plan(parse("window"), shape).bytes.state, 90u * 1366);
}

TEST(cache_budget, no_layer_gets_more_than_the_context) {
    std::vector<LayerProfile> profile(30);
    for (size_t i = 0; i < profile.size(); ++i) profile[i].entropy = static_cast<double>(i * i);
    for (const char* budget : {"1/8", "3/4", "2000", "1/1", "9999", "1G"}) {
        const Plan made = plan(parse(std::string("adaptive_budget:budget=") + budget), smollm, profile);
        EXPECT_LE(*std::max_element(made.layer_tokens.begin(), made.layer_tokens.end()), 2048) << budget;
        EXPECT_EQ(std::accumulate(made.layer_tokens.begin(), made.layer_tokens.end(), int64_t{0}), 30 * made.tokens);
    }
    EXPECT_EQ(plan(parse("adaptive_budget:budget=1/1"), smollm, profile).layer_tokens, std::vector<int64_t>(30, 2048));
}

TEST(cache_budget, the_residual_shrinks_where_it_would_take_half) {
    const auto residual_and_cadence = [](const std::string& config) {
        const Plan made = plan(parse(config), smollm);
        return std::pair(made.residual, made.cadence);
    };
    using Pair = std::pair<int64_t, int64_t>;
    // A sixteenth and a thirty-second of the f16 cache's bytes, as in the prototype: the latter without a residual
    // window.
    EXPECT_EQ(residual_and_cadence("winnow:budget=2880K"), Pair(48, 32));
    EXPECT_EQ(residual_and_cadence("winnow:budget=1440K").first, 0);
    EXPECT_EQ(residual_and_cadence("window:budget=512"), Pair(48, 32));
    EXPECT_EQ(residual_and_cadence("window:budget=104"), Pair(48, 13));
    EXPECT_EQ(residual_and_cadence("window:budget=80"), Pair(32, 10));
    EXPECT_EQ(residual_and_cadence("window:budget=64"), Pair(0, 8));
    EXPECT_EQ(residual_and_cadence("window:budget=6"), Pair(0, 1));
    EXPECT_EQ(residual_and_cadence("window:budget=64,residual=48,cadence=12"), Pair(48, 12)); // what is said is done
    EXPECT_EQ(residual_and_cadence("window:budget=512,residual=30"), Pair(30, 20));
    EXPECT_EQ(residual_and_cadence("window:budget=512,residual=0,cadence=100"), Pair(0, 100));
}

TEST(cache_budget, the_residual_under_recall_leaves_room_for_pages) {
    const auto residual = [](const std::string& rest, int64_t context, int64_t head_size = 64) {
        return plan(parse("winnow:recall=host," + rest), AlikeLayers{.layers = 30,
                                                                     .kv_heads = 3,
                                                                     .head_size = head_size,
                                                                     .v_head_size = head_size,
                                                                     .context = context})
            .residual;
    };
    // A sixteenth of 2048 tokens is 32,768 bytes of a head, of which signs take 10,240 and codes 4,096.
    EXPECT_EQ(residual("budget=1/16", 2048), 16);
    EXPECT_EQ(residual("budget=1/16,signature=codes", 2048), 32);
    EXPECT_EQ(residual("budget=2880K", 2048), 16);
    EXPECT_EQ(residual("budget=1/8", 2048), 48);
    EXPECT_EQ(residual("budget=1/16", 8192), 48);
    EXPECT_EQ(residual("budget=1/64", 2048), 16); // more than a third of it
    EXPECT_EQ(residual("budget=1/16,residual=24", 8192), 24);
    EXPECT_EQ(residual("budget=1/8,cold=292", 2048), 16); // 256 packed ones, of which 64 would go at once
    EXPECT_EQ(residual("budget=1/8,cold=293", 2048), 32);
    EXPECT_EQ(residual("budget=1/8,cold=437", 2048), 48);
    EXPECT_EQ(residual("budget=1/16", 2048, 256), 16);
}

TEST(cache_budget, layers_of_a_plan_add_up) {
    std::vector<LayerProfile> profile(30);
    for (size_t i = 0; i < profile.size(); ++i) profile[i].entropy = static_cast<double>(i * i);
    for (const char* text : {"adaptive_budget:budget=1/4", "adaptive_budget:budget=6M,k=turbo4,v=turbo3"}) {
        const Config config = parse(text);
        const Plan made = plan(config, smollm, profile);
        EXPECT_EQ(std::accumulate(made.layer_tokens.begin(), made.layer_tokens.end(), int64_t{0}), 30 * made.tokens);
        EXPECT_LT(made.layer_tokens.front(), made.layer_tokens.back());
        // Rows cost the same in every layer, so that the whole costs as much as a flat one.
        const std::vector<LayerProfile> flat(30);
        EXPECT_EQ(made.bytes, plan(config, smollm, flat).bytes);
        EXPECT_EQ(context_of(made, smollm, 29, .5).budget, made.layer_tokens[29]);
        EXPECT_EQ(context_of(made, smollm, 29, .5).pressure, .5);
    }
}

TEST(cache_budget, refuses_what_does_not_fit) {
    const auto refusal = [](const std::string& config, const AlikeLayers& shape) -> std::string {
        try {
            plan(parse(config), shape);
            return {};
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
            return error.what();
        }
    };
    const struct {
        const char* config;
        AlikeLayers shape;
        const char* part;
    } rows[] = {
        {"none:k=q8_0", {1, 1, 80, 64, 100}, "k=q8_0 with head_size 80: expected a multiple of 32"},
        {"none:v=affine4_g128", {1, 1, 64, 64, 100}, "v=affine4_g128 with v_head_size 64: expected a multiple of 128"},
        {"none:k=turbo4", {1, 1, 592, 64, 100}, "k=turbo4 with head_size 592: expected at most 576"},
        {"none:fine=29-30,k_fine=q8_0", smollm, "fine=29-30: the cache has 30 layers, expected numbers from 0 to 29"},
        {"none:fine=2.0+2.3,k_fine=q8_0", smollm,
         "fine=2.0+2.3: layer 2 has 3 KV heads, expected numbers from 0 to 2 behind a point"},
        {"none:fine=0.63,k_fine=q8_0", {1, 65, 64, 64, 100}, "layer 0 has 65 KV heads, expected at most 64 where"},
        {"none:fine=2,k_fine=affine8_g128", smollm, "k_fine=affine8_g128 with head_size 64: expected a multiple"},
        {"adaptive_budget:budget=3M,fine=0,k_fine=q8_0", smollm,
         "fine=0 with adaptive_budget and budget=3M: bytes cannot be divided among layers that differ"},
        {"none", {65536, 65536, 65536, 65536, 2147483647}, "more than 2^64 bytes"},
        {"none", {1, 65536, 65536, 65536, 4096, 1 << 30}, "more than 2^64 bytes"},
        {"window:budget=1/4,residual=48",
         {1, 1, 64, 64, 100},
         "budget=1/4 is 25 tokens of a KV head, expected more than"},
        {"window:budget=1K", {30, 3, 64, 64, 100}, "window: budget=1K is 0 tokens of a KV head"},
        {"none", {1, 1, 64, 64, 4}, "none: the context is 4 tokens of a KV head, expected more than sink=4"},
        {"winnow:budget=1/4,recent=1/1",
         {1, 1, 64, 64, 2048},
         "winnow: budget=1/4 is 512 tokens of a KV head in layer 0"},
        {"hierarchical:budget=256,recent_deep=250",
         {30, 3, 64, 64, 2048},
         "is 256 tokens of a KV head in layer 20, expected at least 286: 4 sinks, 250 newest that stay, and "
         "32 that come before the next eviction pass"},
        {"h2o:budget=64,grace=60", smollm, "expected at least 72: 4 sinks, 60 newest that stay, and 8 that come"},
        {"window:budget=1/4,cadence=49", smollm, "cadence=49 is more than the residual window of 48"},
        {"decay:experts=8", smollm,
         "decay: window=4096 covers all 2048 tokens of a KV head, so experts= has no tokens to rank: expected a "
         "smaller"},
        {"adaptive_budget", smollm, "the profile has 0 layers, expected 30"},
    };
    for (const auto& [config, shape, part] : rows)
        EXPECT_NE(refusal(config, shape).find(part), std::string::npos) << config << "\n" << refusal(config, shape);
}

// In much less than the test's time limit.
TEST(cache_budget, layers_may_all_be_unlike) {
    Shape shape{{}, 2048, 0};
    for (int64_t k_size = 1; k_size <= 256; ++k_size)
        for (int64_t v_size = 1; v_size <= 256; ++v_size) shape.layers.push_back({1, 1, k_size, v_size});
    const Plan made = plan(parse("window:k=f16,v=f16,budget=8G"), shape);
    EXPECT_EQ(made.layer_tokens.size(), shape.layers.size());
    EXPECT_LE(made.bytes.total(), uint64_t{8} << 30);
}

} // namespace
} // namespace winnow::cache
