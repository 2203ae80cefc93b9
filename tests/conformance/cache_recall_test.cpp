// Recall: random schedules, judged by the oracle. Where the hot slots have room for all pages, a query of decoding
// attends to every token, and the cache has to be as one that keeps all tokens: a page that was not signed, or a hot
// row that is not as the packed one, shows. Where they have not, scores_out tells what was picked, and the oracle
// attends to just that. With cold= the oldest tokens go, as the oracle knows from windows. Each schedule runs with the
// cold tier in memory and in a file. What they exercise beside what all caches do:
//
//  - page_sign: eviction passes that pack rows, and all pages after whatever moves or changes them
//  - page_pick: every query of a step of up to 8
//
// Shapes from 3 on have signatures of codes, by codebooks of random numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "cache_cases.hpp"
#include "cache_codebooks.hpp"
#include "cache_host.hpp"
#include "cache_oracle.hpp"
#include "cache_registration.hpp"
#include "cache_schedule.hpp"
#include "registered_cases.hpp"
#include "session.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

// Some positions whose keys the last query is to find again by their signatures.
struct Planted {
    int64_t prompt = 260, decoded = 1; // tokens
    std::vector<int64_t> positions = {150, 151, 210, 211, 212, 213};
    // The elements of keys: at [0][KV head][token of a step][element].
    std::function<double(const Index& at, int64_t layer, bool is_planted)> key;
    std::function<double(int64_t layer, int64_t head, int64_t element)> query; // of all query heads of a KV head
};

void expect_picked(const CacheSetup& setup, const Planted& planted) {
    CacheHost host(subject(), setup);
    std::mt19937_64 engine(options().seed);
    const auto run_step = [&](int64_t layer, int64_t first, int64_t tokens, int64_t queries, bool asks_for_scores) {
        StepOptions step_options;
        step_options.scores = asks_for_scores;
        Step step = draw_step(setup, engine, layer, 0, tokens, queries, step_options, setup.context);
        step.k.each([&](const Index& at) {
            const bool is_planted = std::ranges::find(planted.positions, first + at[2]) != planted.positions.end();
            step.k.set(at, planted.key(at, layer, is_planted));
        });
        if (queries > 0)
            step.q.each([&](const Index& at) { step.q.set(at, planted.query(layer, at[1] / setup.group, at[3])); });
        EXPECT_EQ(host.run(step), WINNOW_OK) << host.message();
        return step;
    };
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
        run_step(layer, 0, planted.prompt, 0, false);
        for (int64_t at = 0; at + 1 < planted.decoded; ++at) run_step(layer, planted.prompt + at, 1, 1, false);
        const int64_t last = planted.prompt + planted.decoded - 1;
        const Step step = run_step(layer, last, 1, 1, true);
        for (int64_t head = 0; head < setup.kv_heads * setup.group; ++head) {
            for (const int64_t position : planted.positions)
                EXPECT_NE(step.scores.get({0, head, 0, position}), -INFINITY)
                    << "layer " << layer << ", head " << head << ", position " << position;
            int64_t seen = 0;
            for (int64_t position = 0; position < setup.context; ++position)
                seen += step.scores.get({0, head, 0, position}) != -INFINITY;
            EXPECT_LT(seen, 3 * last / 4) << "not a pick";
        }
    }
}

// Codebooks of which centroid 1 is far along one element of 16, another one for each layer and head, and all others are
// 0: pages along it, of keys that are small otherwise, are those that its queries pick.
void expect_picked_by_codes(CacheSetup setup) {
    const auto element_of = [&](int64_t layer, int64_t head) { return layer * setup.kv_heads + head; };
    const auto one = [](int64_t row, int64_t column) { return row == column ? 1 : 0; };
    setup.recall->has_codes = true;
    setup.center = false;
    setup.recall->codebooks = codebooks_with(setup, [&](int64_t layer, int64_t head) {
        const int64_t far = element_of(layer, head);
        return HeadCodebooks{one, one, [far](int64_t element, int64_t code) {
                                 return code == 1 && element % codebook_elements == far ? 8 : 0;
                             }};
    });
    std::mt19937_64 engine(options().seed);
    std::normal_distribution<double> noise(0, 1.0 / 64);
    Planted planted;
    planted.key = [&](const Index& at, int64_t layer, bool is_planted) {
        const bool is_far = at[3] % codebook_elements == element_of(layer, at[1]);
        return is_planted && is_far ? 8 : noise(engine);
    };
    planted.query = [&](int64_t layer, int64_t head, int64_t element) {
        return element % codebook_elements == element_of(layer, head) ? 1 : 0;
    };
    expect_picked(setup, planted);
}

// Keys have much in common, another thing for each layer and head, of which most of their signs would be.
void expect_picked_by_signs(CacheSetup setup, Planted planted) {
    setup.k_type = WINNOW_TYPE_F16;
    setup.recall->has_codes = setup.center = false;
    std::mt19937_64 engine(options().seed);
    std::normal_distribution<double> noise(0, 1);
    const auto of_elements = [&](double factor) {
        std::vector<double> all(static_cast<size_t>(setup.layers * setup.kv_heads * setup.head_size));
        for (double& each : all) each = factor * noise(engine);
        return all;
    };
    const std::vector<double> common = of_elements(64), direction = of_elements(1);
    const auto at_element = [&](int64_t layer, int64_t head, int64_t element) {
        return static_cast<size_t>((layer * setup.kv_heads + head) * setup.head_size + element);
    };
    planted.key = [&](const Index& at, int64_t layer, bool is_planted) {
        const size_t element = at_element(layer, at[1], at[3]);
        return common[element] + noise(engine) + (is_planted ? direction[element] : 0);
    };
    planted.query = [&](int64_t layer, int64_t head, int64_t element) {
        return direction[at_element(layer, head, element)];
    };
    expect_picked(setup, planted);
}

// Anchors are attended to wherever they lie, also when rows before them have gone.
void run_anchored(const CacheSetup& setup) {
    CacheHost host(subject(), setup);
    CacheOracle oracle(host);
    std::mt19937_64 engine(options().seed);
    const auto append = [&](int64_t tokens) {
        StepOptions step_options;
        step_options.scores = tokens == 1;
        for (int64_t layer = 0; layer < setup.layers; ++layer) {
            Step step = draw_step(setup, engine, layer, 0, tokens, tokens, step_options, setup.context);
            ASSERT_EQ(oracle.step(step), "") << "layer " << layer << ", " << oracle.length(0, 0) << " tokens";
        }
    };
    while (oracle.length(0, setup.layers - 1) < 240)
        ASSERT_NO_FATAL_FAILURE(append(std::min(setup.chunk(), 240 - oracle.length(0, 0))));
    ASSERT_EQ(oracle.anchor(0, {30, 61, 62, 150}), "");
    for (int at = 0; at < 5; ++at) ASSERT_NO_FATAL_FAILURE(append(1));
    ASSERT_EQ(oracle.remove(0, 20, 50), "");
    for (int at = 0; at < 5; ++at) ASSERT_NO_FATAL_FAILURE(append(1));
}

void register_schedules() {
    for (const int shape : {0, 1}) {
        const CacheSetup setup = recall_setup(shape, "60000B");
        register_cache_test("recall", "codes_" + shape_name(shape), __FILE__, __LINE__,
                            [=] { expect_picked_by_codes(setup); });
    }
    CacheSetup signs = recall_setup(1, "60000B");
    signs.head_size = signs.v_head_size = 64;
    register_cache_test("recall", "signs_" + shape_name(1), __FILE__, __LINE__,
                        [=] { expect_picked_by_signs(signs, {}); });
    // Where pages of decoded tokens are signed as they come, by a center that was there before.
    const Planted late = {.prompt = 140, .decoded = 90, .positions = {170, 171, 176, 177}, .key = {}, .query = {}};
    register_cache_test("cold_file", "signs_of_decoded_tokens_" + shape_name(1), __FILE__, __LINE__, [=] {
        expect_picked_by_signs(signs, late);
        CacheSetup in_file = signs;
        const TemporaryFolder folder;
        in_file.recall->cold_tier = folder.path();
        expect_picked_by_signs(in_file, late);
    });
    for (int shape = 0; shape < cache_shapes; ++shape) {
        const uint64_t seed = static_cast<uint64_t>(7000 + shape);
        const CacheSetup everything = recall_setup(shape, "1G");
        register_cache_test("recall", "everything_" + shape_name(shape), __FILE__, __LINE__, [=] {
            run_in_both_tiers({.setup = everything, .seed = options().seed + seed, .operations = 60, .changes = false});
        });
        const CacheSetup newest = recall_setup_of_newest(shape, "1G");
        if (shape % 2 == 1)
            register_cache_test("recall", "newest_" + shape_name(shape), __FILE__, __LINE__, [=] {
                run_in_both_tiers({.setup = newest, .seed = options().seed + seed, .operations = 60, .changes = false});
            });
        CacheSetup some = recall_setup(shape, "90000B");
        some.head_size = some.v_head_size = 64; // for which that is some pages
        if (shape == 3) continue;
        register_cache_test("recall", "some_" + shape_name(shape), __FILE__, __LINE__, [=] {
            run_in_both_tiers({.setup = some,
                               .seed = options().seed + seed,
                               .operations = 60,
                               .changes = false,
                               .tells_picks = true});
        });
        if (shape % 2 == 1) continue;
        some.policy = Policy::window; // keeps the newest alone
        some.budget = 150;
        register_cache_test("recall", "some_of_the_newest_" + shape_name(shape), __FILE__, __LINE__, [=] {
            run_in_both_tiers({.setup = some,
                               .seed = options().seed + seed,
                               .operations = 60,
                               .changes = false,
                               .tells_picks = true});
        });
    }
    register_cache_test("recall", "large_rows", __FILE__, __LINE__, [=] {
        run_in_both_tiers(
            {.setup = recall_setup_of_large_rows(), .seed = options().seed + 7100, .operations = 25, .changes = false});
    });
    CacheSetup small = recall_setup(1, "1G"); // for a simulator
    small.layers = small.kv_heads = 1;
    small.context = 90;
    register_cache_test("recall", "small", __FILE__, __LINE__, [=] {
        run_in_both_tiers({.setup = small, .seed = options().seed, .operations = 3, .edits = false, .changes = false});
    });
    CacheSetup anchored = recall_setup(0, "90000B");
    anchored.head_size = anchored.v_head_size = 64;
    register_cache_test("recall", "anchored", __FILE__, __LINE__, [=] { run_anchored(anchored); });
}

} // namespace

void register_cache_recall() { register_schedules(); }

} // namespace winnow::conformance
