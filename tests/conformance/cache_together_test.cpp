// Several sequences in one step: each comes out as if it had been alone, bit for bit, and its cache is the same after
// it. The rows of a step lie one sequence after the other, or in batch entries of their own, with rows of nobody beside
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

constexpr double untouched = -77;

// Where a sequence's rows lie in the tensors of all.
struct Place {
    int64_t batch, first;
};

// One axis of tokens: of rows [.., .., tokens, ..] the third, of cells the last.
void copy_rows(const TestTensor& from, TestTensor& to, const Place& place, int axis) {
    from.each([&](const Index& at) {
        Index there = at;
        there[0] += place.batch;
        there[static_cast<size_t>(axis)] += place.first;
        to.set(there, from.get(at));
    });
}

class Pair {
public:
    Pair(const CacheSetup& setup, uint64_t seed)
        : setup_(setup), engine_(seed), alone_(subject(), setup), together_(subject(), setup),
          lengths_(static_cast<size_t>(setup.sequences), 0) {}

    void round(bool is_prompt) {
        const bool appends = lengths_.front() == 0 || engine_() % 5 > 0, attends = !appends || engine_() % 5 > 0;
        std::vector<int64_t> order;
        for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence)
            if (lengths_[static_cast<size_t>(sequence)] > 0 ? engine_() % 4 > 0 : appends) order.push_back(sequence);
        if (order.empty()) order.push_back(0);
        std::shuffle(order.begin(), order.end(), engine_);
        std::vector<int64_t> tokens;
        for (const int64_t sequence : order) {
            const int64_t most = appends ? (is_prompt ? 70 : 3) : std::min<int64_t>(lengths_[index(sequence)], 3);
            tokens.push_back(1 + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most)));
        }
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            std::vector<Step> steps;
            for (size_t i = 0; i < order.size(); ++i)
                steps.push_back(draw(layer, order[i], appends ? tokens[i] : 0, attends ? tokens[i] : 0));
            run(steps);
            if (testing::Test::HasFatalFailure()) return;
        }
        for (size_t i = 0; appends && i < order.size(); ++i) lengths_[index(order[i])] += tokens[i];
        EXPECT_EQ(alone_.portrait(), together_.portrait());
        for (int64_t sequence = 0; sequence < setup_.sequences; ++sequence) {
            const winnow_cache_stats a = alone_.stats_of(sequence), b = together_.stats_of(sequence);
            EXPECT_EQ(a.bytes, b.bytes) << "sequence " << sequence;
            EXPECT_EQ(a.picks, b.picks) << "sequence " << sequence;
        }
    }

private:
    static size_t index(int64_t sequence) { return static_cast<size_t>(sequence); }

    Step draw(int64_t layer, int64_t sequence, int64_t tokens, int64_t queries) {
        StepOptions options;
        options.scores = engine_() % 4 == 0;
        options.draft_tokens = engine_() % 4 == 0 && tokens > 0 ? 1 : 0;
        const int64_t next = lengths_[index(sequence)] + tokens;
        Step step = draw_step(setup_, engine_, layer, sequence, tokens, queries, options,
                              setup_.cells > 0 ? setup_.cells : next);
        if (setup_.cells == 0) return step;
        if (tokens > 0) {
            step.cells = TestTensor(WINNOW_TYPE_I32, {1, 1, 1, tokens});
            step.cells.each([&](const Index& at) { step.cells.set(at, static_cast<double>(next - tokens + at[3])); });
        }
        if (queries == 0) return step;
        step.mask = TestTensor(WINNOW_TYPE_BOOL, {1, 1, queries, setup_.cells});
        step.mask.each([&](const Index& at) { step.mask.set(at, at[3] <= next - queries + at[2]); });
        return step;
    }

    // The tensor of all steps that has a part in each of them, or an absent one.
    TestTensor all_of(const std::vector<Step>& steps, TestTensor Step::*part, int axis) const {
        const TestTensor& one = steps.front().*part;
        if (!one) return {};
        Shape shape = one.shape();
        shape[0] = batches_;
        shape[static_cast<size_t>(axis)] = rows_;
        TestTensor all(one.type(), shape);
        all.each([&](const Index& at) { all.set(at, untouched); });
        if (part != &Step::out)
            for (size_t i = 0; i < steps.size(); ++i) copy_rows(steps[i].*part, all, places_[i], axis);
        return all;
    }

    void place(const std::vector<Step>& steps) {
        const bool is_padded = engine_() % 2 == 0;
        places_.clear();
        batches_ = is_padded ? static_cast<int64_t>(steps.size()) + 1 : 1;
        rows_ = 0;
        for (const Step& step : steps) {
            const int64_t gap = static_cast<int64_t>(engine_() % 3), tokens = std::max(step.tokens, step.queries);
            if (is_padded) {
                places_.push_back({static_cast<int64_t>(places_.size()), gap});
                rows_ = std::max(rows_, gap + tokens);
            } else {
                places_.push_back({0, rows_ + gap});
                rows_ += gap + tokens;
            }
        }
    }

    void run(std::vector<Step>& steps) {
        place(steps);
        Step all; // its tensors
        all.k = all_of(steps, &Step::k, 2);
        all.v = all_of(steps, &Step::v, 2);
        all.q = all_of(steps, &Step::q, 2);
        all.out = all_of(steps, &Step::out, 2);
        all.cells = all_of(steps, &Step::cells, 3);
        std::vector<TestTensor> scores, masks;
        for (const Step& step : steps) {
            scores.push_back(step.scores ? TestTensor(WINNOW_TYPE_F32, step.scores.shape()) : TestTensor());
            masks.push_back(step.mask ? step.mask.packed_copy() : TestTensor());
        }
        for (Step& step : steps) ASSERT_EQ(alone_.run(step), WINNOW_OK) << alone_.message();

        for (TestTensor* each : {&all.k, &all.v, &all.q, &all.out, &all.cells})
            if (*each) each->bind(subject());
        std::vector<winnow_cache_entry> entries;
        for (size_t i = 0; i < steps.size(); ++i) {
            for (TestTensor* each : {&scores[i], &masks[i]})
                if (*each) each->bind(subject());
            winnow_cache_entry entry{};
            entry.struct_size = sizeof entry;
            entry.sequence = steps[i].sequence;
            entry.batch = places_[i].batch;
            entry.first = places_[i].first;
            entry.count = std::max(steps[i].tokens, steps[i].queries);
            entry.draft_tokens = steps[i].options.draft_tokens;
            entry.attn_mask = masks[i].view();
            entry.scores_out = scores[i].view();
            entries.push_back(entry);
        }
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = steps.front().layer;
        desc.entries = entries.data();
        desc.entry_count = entries.size();
        desc.entry_stride = sizeof entries.front();
        desc.k = all.k.view();
        desc.v = all.v.view();
        desc.q = all.q.view();
        desc.out = all.out.view();
        desc.cells = all.cells.view();
        const winnow_cache_stats before = together_.stats();
        ASSERT_EQ(together_.caches().step(together_.get(), &desc, nullptr), WINNOW_OK) << together_.message();
        subject().note_cache_step();
        ASSERT_EQ(together_.api().finish(subject().context()), WINNOW_OK) << together_.message();
        EXPECT_EQ(together_.stats().steps, before.steps + 1);

        if (all.out) all.out.fetch();
        for (size_t i = 0; i < steps.size(); ++i) {
            if (all.out) expect_same(steps[i], all.out, places_[i]);
            if (!scores[i]) continue;
            scores[i].fetch();
            EXPECT_EQ(scores[i].damage(), "");
            expect_equal_rows(steps[i].scores, scores[i], {0, 0}, "scores_out");
        }
        if (all.out) expect_no_others(steps, all.out);
    }

    static void expect_equal_rows(const TestTensor& one, const TestTensor& all, const Place& place, const char* name) {
        int64_t differences = 0;
        one.each([&](const Index& at) {
            differences += one.get(at) != all.get({at[0] + place.batch, at[1], at[2] + place.first, at[3]});
        });
        EXPECT_EQ(differences, 0) << "elements of " << name;
    }

    void expect_same(const Step& step, const TestTensor& out, const Place& place) const {
        SCOPED_TRACE("layer " + std::to_string(step.layer) + ", sequence " + std::to_string(step.sequence));
        expect_equal_rows(step.out, out, place, "out");
        EXPECT_EQ(out.damage(), "");
    }

    // Rows of no sequence are as they were.
    void expect_no_others(const std::vector<Step>& steps, const TestTensor& out) const {
        int64_t touched = 0;
        out.each([&](const Index& at) {
            for (size_t i = 0; i < steps.size(); ++i)
                if (at[0] == places_[i].batch && at[2] >= places_[i].first &&
                    at[2] < places_[i].first + steps[i].queries)
                    return;
            touched += out.get(at) != untouched;
        });
        EXPECT_EQ(touched, 0) << "elements of rows that are nobody's";
    }

    CacheSetup setup_;
    std::mt19937_64 engine_;
    CacheHost alone_, together_;
    std::vector<int64_t> lengths_;
    std::vector<Place> places_;
    int64_t batches_ = 1, rows_ = 0;
};

void run_pair(CacheSetup setup, uint64_t seed) {
    setup.sequences = 4;
    Pair pair(setup, seed);
    for (int at = 0; at < 8 && !testing::Test::HasFailure(); ++at) pair.round(at % 3 == 0);
}

} // namespace

void register_cache_together() {
    const auto add = [](const std::string& name, const CacheSetup& setup) {
        register_cache_test("together", name, __FILE__, __LINE__, [=] { run_pair(setup, options().seed); });
    };
    // Of the policies' table every eighth; what differs between them beside ranking is in the others below.
    int at = 0;
    for (const NamedSetup& each : policy_setups())
        if (at++; options().pairs == Pairs::all || at % 8 == 1)
            add(each.name, with_shape(each.setup, at % cache_shapes));
    for (const auto& [name, policy] : {std::pair("none_by_cells", Policy::none), {"winnow_by_cells", Policy::winnow}})
        add(name,
            with_shape({.policy = policy, .layers = 1, .cells = 700, .budget = policy == Policy::none ? 0 : 96}, 1));
    add("unlike_layers", with_unlike_layers(with_shape({.policy = Policy::winnow}, 1)));
    add("recall", recall_setup(0, "1G"));
    add("recall_of_codes_and_newest", recall_setup_of_newest(4, "1G"));
    register_cache_test("together", "recall_in_a_folder", __FILE__, __LINE__, [] {
        const TemporaryFolder folder;
        CacheSetup setup = recall_setup(0, "1G");
        setup.recall->cold_tier = folder.path();
        run_pair(setup, options().seed);
    });
}

} // namespace winnow::conformance
