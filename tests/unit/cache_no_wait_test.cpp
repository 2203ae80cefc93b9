// Steps that may not wait: whenever one is carried out, the cache has waited for nothing, whatever was called before;
// and where it is refused nothing has changed. Beside a twin whose steps may wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "alike_layers.hpp"
#include "cache/cache.hpp"
#include "cache/layer/layer.hpp"
#include "cache_fake_device.hpp"
#include "device/network.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {2, 2, 32, 32, 240, 0, 4};
constexpr int64_t q_heads = 4, sequences = 3, cell_count = 150;

CacheRequest request_of(const std::string& config, int64_t cells = 0) {
    CacheRequest request{config, shape, sequences, cells, {}};
    for (int64_t i = 0; i < shape.layers * shape.kv_heads * network_numbers; ++i)
        request.network.push_back(static_cast<float>(i % 7) / 4 - 1);
    return request;
}

// The rows of a step for one sequence.
struct Rows {
    Rows(std::mt19937& random, int64_t tokens) : k(shape.kv_heads, tokens, 32), v(k), q(q_heads, tokens, 32), out(q) {
        for (HostRows* rows : {&k, &v, &q})
            for (float& value : rows->values) value = static_cast<float>(random() % 1000) / 250 - 2;
    }
    HostRows k, v, q, out;
    std::vector<int32_t> cells{};
    std::vector<uint8_t> mask{};
};

// What a sequence gets: tokens, queries or both.
struct Part {
    int64_t sequence, tokens;
    bool appends, asks;
    int64_t drafts = 0;
    std::vector<int32_t> cells{};
};

CacheStep step_of(const Part& part, int64_t layer, Rows& rows, int64_t cells) {
    CacheStep args;
    args.layer = layer;
    args.sequence = part.sequence;
    args.scale = 1;
    if (part.appends) {
        args.k = rows.k.tensor();
        args.v = rows.v.tensor();
    }
    if (part.asks) {
        args.q = rows.q.tensor();
        args.out = rows.out.tensor();
        args.draft_tokens = part.drafts;
    }
    if (cells == 0) return args;
    if (part.appends) {
        rows.cells = part.cells;
        args.cells = tensor_of(Type::i32, 1, 1, part.tokens);
        args.cells.data = reinterpret_cast<std::byte*>(rows.cells.data());
    }
    if (!part.asks) return args;
    rows.mask.assign(static_cast<size_t>(part.tokens * cells), 1);
    args.mask.type = Type::boolean;
    args.mask.data = reinterpret_cast<std::byte*>(rows.mask.data());
    args.mask.shape = {1, 1, part.tokens, cells};
    args.mask.stride = {part.tokens * cells, part.tokens * cells, cells, 1};
    return args;
}

// A refusal as text; "": none.
std::string refusal_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return std::to_string(error.status()) + ": " + error.what();
    }
    return "";
}

class Twins {
public:
    Twins(const std::string& config, int64_t cells, unsigned seed)
        : cells_(cells), random_(seed), cache_(device_, request_of(config, cells)),
          twin_(of_twin_, request_of(config, cells)), lengths_(static_cast<size_t>(sequences), 0) {}

    void run(int calls) {
        for (int i = 0; i < calls && !testing::Test::HasFailure(); ++i) {
            const int64_t kind = draw(30), sequence = draw(sequences);
            if (kind < 20)
                step(kind < 4 ? 70 : kind < 7 ? 12 : 1);
            else
                edit(kind, sequence);
            expect_same();
        }
    }
    void reserve_all() {
        for (int64_t sequence = 0; sequence < sequences; ++sequence)
            both([&](Cache& it) { it.reserve(sequence, limit()); });
    }
    void step(int64_t most) {
        std::vector<Part> parts;
        for (int64_t sequence = 0; sequence < sequences; ++sequence) {
            const int64_t length = lengths_[static_cast<size_t>(sequence)];
            if (draw(2) == 0) continue;
            Part part{sequence, 1 + draw(most), draw(6) > 0, draw(6) > 0};
            if (!part.appends && !part.asks) part.appends = true;
            part.tokens = std::min(part.tokens, part.appends ? (cells_ > 0 ? cells_ : limit() - length) : length);
            if (part.tokens <= 0) continue;
            if (part.asks && part.appends) part.drafts = draw(3) == 0 ? 1 : 0;
            if (cells_ > 0 && part.appends) part.cells = draw_cells(part.tokens);
            parts.push_back(part);
        }
        // The entries of a step all have keys or none, and likewise queries.
        std::erase_if(parts, [&](const Part& part) {
            return part.appends != parts.front().appends || part.asks != parts.front().asks;
        });
        if (parts.empty()) return;
        for (int64_t layer = 0; layer < shape.layers; ++layer) step_layer(parts, layer);
        for (const Part& part : parts)
            if (part.appends) lengths_[static_cast<size_t>(part.sequence)] += part.tokens;
    }

    Cache& cache() { return cache_; }
    int carried_out = 0, refused = 0;

private:
    int64_t draw(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
    int64_t limit() const { return cells_ > 0 ? cells_ : shape.context; }

    std::vector<int32_t> draw_cells(int64_t count) { // neighbours, beginning anywhere
        std::vector<int32_t> cells(static_cast<size_t>(count));
        const int64_t first = draw(cells_);
        for (int64_t i = 0; i < count; ++i) cells[static_cast<size_t>(i)] = static_cast<int32_t>((first + i) % cells_);
        return cells;
    }

    void step_layer(const std::vector<Part>& parts, int64_t layer) {
        std::vector<Rows> rows;
        for (const Part& part : parts) rows.emplace_back(random_, part.tokens);
        std::vector<Rows> of_twin = rows;
        const auto steps_of = [&](std::vector<Rows>& all) {
            std::vector<CacheStep> steps;
            for (size_t i = 0; i < parts.size(); ++i) steps.push_back(step_of(parts[i], layer, all[i], cells_));
            return steps;
        };
        std::vector<CacheStep> steps = steps_of(rows);
        try_without_waiting(steps);
        twin_.step(steps_of(of_twin));
        for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(rows[i].out.values, of_twin[i].out.values);
    }

    void try_without_waiting(std::vector<CacheStep>& steps) {
        for (CacheStep& each : steps) each.may_wait = false;
        device_.most_in_use = device_.in_use;
        const std::vector before = {device_.waits, device_.in_use, device_.most_in_use};
        const uint64_t launches = device_.launches;
        const std::string refusal = refusal_of([&] { cache_.step(steps); });
        EXPECT_EQ((std::vector{device_.waits, device_.in_use, device_.most_in_use}), before) << refusal;
        if (refusal.empty()) {
            ++carried_out;
            return;
        }
        ++refused;
        EXPECT_TRUE(refusal.starts_with(std::to_string(WINNOW_ERROR_WOULD_WAIT))) << refusal;
        EXPECT_EQ(device_.launches, launches) << refusal;
        for (CacheStep& each : steps) each.may_wait = true;
        cache_.step(steps);
    }

    // A refusal is the same for both.
    void both(const std::function<void(Cache&)>& call) {
        const std::string refusal = refusal_of([&] { call(cache_); });
        EXPECT_EQ(refusal_of([&] { call(twin_); }), refusal);
    }

    void edit(int64_t kind, int64_t sequence) {
        int64_t& length = lengths_[static_cast<size_t>(sequence)];
        const int64_t end = cells_ > 0 ? cells_ : length, begin = draw(end + 1), until = begin + draw(20);
        if (kind < 22) {
            both([&](Cache& it) { it.remove(sequence, begin, until); });
        } else if (kind < 23) {
            both([&](Cache& it) { it.remove(sequence, 0, -1); });
        } else if (kind < 24) {
            const int64_t tokens = draw(limit() + 1);
            both([&](Cache& it) { it.reserve(sequence, tokens); });
        } else if (kind < 26) {
            both([&](Cache& it) { it.anchor(sequence, std::vector{std::min(begin, limit() - 1)}); });
        } else if (kind < 27) {
            both([&](Cache& it) { it.copy(sequence, (sequence + 1) % sequences); });
            lengths_[static_cast<size_t>((sequence + 1) % sequences)] = length;
        } else if (cells_ == 0 && kind < 28) {
            both([&](Cache& it) { it.truncate(sequence, begin); });
        } else if (cells_ == 0) {
            const int64_t delta = draw(41) - 20;
            both([&](Cache& it) { it.shift(sequence, begin, -1, delta); });
        }
        length = cache_.next_position(sequence, 0);
    }

    void expect_same() {
        for (int64_t sequence = 0; sequence < sequences; ++sequence)
            for (int64_t layer = 0; layer < shape.layers; ++layer)
                for (int64_t head = 0; head < shape.kv_heads; ++head)
                    EXPECT_EQ(positions_of(cache_, sequence, layer, head), positions_of(twin_, sequence, layer, head));
        winnow_cache_stats stats{}, of_twin{};
        cache_.stats(stats);
        twin_.stats(of_twin);
        EXPECT_EQ(stats.bytes, of_twin.bytes);
        EXPECT_EQ(stats.steps, of_twin.steps);
        EXPECT_EQ(stats.peak_bytes, of_twin.peak_bytes);
        EXPECT_EQ(stats.picks, of_twin.picks);
    }

    int64_t cells_;
    std::mt19937 random_;
    FakeDevice device_, of_twin_;
    Cache cache_, twin_;
    std::vector<int64_t> lengths_; // positions that have come
};

constexpr const char* configs[] = {"winnow:budget=1/4,residual=16",
                                   "winnow:budget=72,residual=0,k=q8_0,v=q4_0",
                                   "h2o:budget=60,residual=20,cadence=12,center=on",
                                   "h2o:budget=64,residual=0,cadence=7",
                                   "window:budget=64,sink=0,residual=24,cadence=24",
                                   "window:budget=50,sink=0,residual=0",
                                   "scissorhands:budget=80,residual=8",
                                   "hierarchical:budget=1/2,residual=16,cadence=6",
                                   "random:budget=40,residual=3",
                                   "tova:budget=60",
                                   "external:budget=60,residual=16",
                                   "learned:budget=80,residual=16",
                                   "winnow:budget=96,residual=16,share2=1/2,k2=turbo2,v2=turbo2",
                                   "none:residual=16,k=q8_0,v=q8_0",
                                   "none:residual=0,sink=2",
                                   "none:residual=1,sink=0",
                                   "winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8",
                                   "winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8,cold=80"};

class cache_no_wait : public testing::TestWithParam<const char*> {};

TEST_P(cache_no_wait, a_step_waits_for_nothing_or_is_refused_and_leaves_all_as_it_was) {
    for (const int64_t cells : {int64_t{0}, cell_count}) {
        int carried_out = 0, refused = 0;
        for (unsigned seed = 1; seed <= 3; ++seed) {
            SCOPED_TRACE(std::string(GetParam()) + ", cells " + std::to_string(cells) + ", seed " +
                         std::to_string(seed));
            Twins twins(GetParam(), cells, seed);
            twins.run(60);
            carried_out += twins.carried_out;
            refused += twins.refused;
            if (HasFailure()) return;
        }
        EXPECT_GT(carried_out, 40);
        EXPECT_GT(refused, 0);
    }
}

// Unless the oldest tokens of a cold tier have to go.
TEST_P(cache_no_wait, where_memory_is_reserved_no_step_is_refused) {
    if (std::string(GetParam()).find("cold=") != std::string::npos) GTEST_SKIP() << "its steps have to wait at times";
    Twins twins(GetParam(), 0, 7);
    twins.reserve_all();
    for (const int64_t most : {1, 60, 1, 1, 9, 33, 1, 1, 1, 20, 1, 3}) twins.step(most);
    EXPECT_GT(twins.carried_out, 10);
    EXPECT_EQ(twins.refused, 0);
}

INSTANTIATE_TEST_SUITE_P(any, cache_no_wait, testing::ValuesIn(configs),
                         [](const auto& each) { return std::to_string(each.index); });

// A device with a reason of its own.
class SlowDevice : public FakeDevice {
public:
    const char* why_waits(bool in_host_memory, bool marks_event) const override {
        return in_host_memory ? "host memory" : marks_event ? "an event" : nullptr;
    }
};

class cache_no_wait_reasons : public testing::Test {
protected:
    static std::string why(Cache& cache, CacheStep step, bool marks_event = false) {
        step.may_wait = false;
        return refusal_of([&] { cache.step({&step, 1}, marks_event); });
    }
    static std::string would_wait(const std::string& reason) {
        return std::to_string(WINNOW_ERROR_WOULD_WAIT) + ": the step would wait: " + reason;
    }
    std::mt19937 random_{1};
    FakeDevice device_;
    Rows rows_{random_, 1}, many_{random_, 9};
    const Part one_{0, 1, true, true}, several_{0, 9, true, true};
};

TEST_F(cache_no_wait_reasons, a_file_is_always_read) {
    const TemporaryFolder folder;
    Cache cache(device_, request_of("winnow:recall=" + folder.path() + ",k=q8_0,v=q8_0,budget=40000B"));
    cache.reserve(0, 100);
    EXPECT_EQ(why(cache, step_of(one_, 0, rows_, 0)),
              would_wait("with recall=FOLDER each step reads a file; call the step without NO_WAIT"));
}

TEST_F(cache_no_wait_reasons, cells_in_a_buffer_have_to_be_read) {
    Cache cache(device_, request_of("winnow", cell_count));
    cache.reserve(0, 100);
    Part part = one_;
    part.cells = {5};
    CacheStep step = step_of(part, 0, rows_, cell_count);
    EXPECT_EQ(why(cache, step), "");
    const std::unique_ptr<Buffer> cells = device_.allocate(4);
    step.cells.buffer = cells.get();
    EXPECT_EQ(why(cache, step),
              would_wait("cells are in a buffer, which has to be read first; give them in host memory"));
}

TEST_F(cache_no_wait_reasons, memory_comes_by_a_reservation_or_by_a_step_without_the_flag) {
    Cache cache(device_, request_of("none"));
    const std::string memory =
        would_wait("the layer needs more memory; call cache_reserve before, or the step without NO_WAIT");
    CacheStep step = step_of(one_, 0, rows_, 0);
    EXPECT_EQ(why(cache, step), memory);
    cache.reserve(0, 100);
    EXPECT_EQ(why(cache, step), "");
    HostRows scores(q_heads, 1, shape.context);
    step.scores_out = scores.tensor();
    EXPECT_EQ(why(cache, step),
              would_wait("scores_out needs memory that only a step takes; call the step without NO_WAIT"));
    cache.step({&step, 1});
    EXPECT_EQ(why(cache, step), "");
}

TEST_F(cache_no_wait_reasons, what_a_prompt_carries_over_a_cold_tier_needs_memory) {
    Cache cache(device_, request_of("winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8"));
    Rows prompt(random_, 100);
    cache.step(std::vector{step_of({0, 100, true, true}, 0, prompt, 0)});
    cache.step(std::vector{step_of(several_, 0, many_, 0)}); // which takes what the next one needs, too, for itself
    EXPECT_EQ(why(cache, step_of(several_, 0, many_, 0)),
              would_wait("the layer needs more memory; call cache_reserve before, or the step without NO_WAIT"));
    cache.reserve(0, 150);
    EXPECT_EQ(why(cache, step_of(several_, 0, many_, 0)), "");
}

TEST_F(cache_no_wait_reasons, rows_that_were_moved_are_signed_by_a_step_that_may_wait) {
    Cache cache(device_, request_of("winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8"));
    cache.reserve(0, shape.context);
    Rows prompt(random_, 100);
    EXPECT_EQ(why(cache, step_of({0, 100, true, true}, 0, prompt, 0)), "");
    cache.remove(0, 20, 30);
    EXPECT_EQ(why(cache, step_of(one_, 0, rows_, 0)),
              would_wait("rows of the cold tier have to be signed anew; call the step without NO_WAIT"));
    cache.step(std::vector{step_of(one_, 0, rows_, 0)});
    EXPECT_EQ(why(cache, step_of(one_, 0, rows_, 0)), "");
}

// An eviction pass packs rows on both sides of the gap.
TEST_F(cache_no_wait_reasons, rows_beside_a_gap_are_signed_by_a_step_that_may_wait) {
    Cache cache(device_, request_of("winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8,cold=200"));
    cache.reserve(0, shape.context);
    Rows prompt(random_, 40);
    cache.step(std::vector{step_of({0, 40, true, true}, 0, prompt, 0)});
    cache.shift(0, 36, -1, 5);
    EXPECT_EQ(why(cache, step_of(several_, 0, many_, 0)),
              would_wait("rows of the cold tier have to be signed anew; call the step without NO_WAIT"));
}

TEST_F(cache_no_wait_reasons, the_device_may_have_one) {
    SlowDevice slow;
    Cache cache(slow, request_of("none"));
    cache.reserve(0, 100);
    CacheStep step = step_of(one_, 0, rows_, 0);
    EXPECT_EQ(why(cache, step), would_wait("host memory"));
    const std::unique_ptr<Buffer> buffer = slow.allocate(1 << 14);
    for (Tensor* each : {&step.k, &step.v, &step.q, &step.out}) each->buffer = buffer.get();
    EXPECT_EQ(why(cache, step, true), would_wait("an event"));
    EXPECT_EQ(why(cache, step), "");
}

TEST_F(cache_no_wait_reasons, one_entry_of_several_refuses_all_of_them) {
    Cache cache(device_, request_of("none"));
    cache.reserve(0, 100);
    Rows other = rows_;
    std::vector steps = {step_of(one_, 0, rows_, 0), step_of({1, 1, true, true}, 0, other, 0)};
    for (CacheStep& each : steps) each.may_wait = false;
    EXPECT_EQ(refusal_of([&] { cache.step(steps); }),
              std::to_string(WINNOW_ERROR_WOULD_WAIT) +
                  ": entries[1]: the step would wait: the layer needs more memory; call cache_reserve before, or the "
                  "step without NO_WAIT");
    EXPECT_EQ(cache.next_position(0, 0), 0);
}

TEST_F(cache_no_wait_reasons, a_wrong_argument_of_any_entry_is_told_before) {
    SlowDevice slow;
    const auto invalid = [](const std::string& text) {
        return std::to_string(WINNOW_ERROR_INVALID_ARGUMENT) + ": " + text;
    };
    Cache cache(slow, request_of("none"));
    Rows too_many(random_, shape.context + 1);
    const CacheStep long_step = step_of({0, shape.context + 1, true, true}, 0, too_many, 0),
                    early = step_of({1, 9, false, true}, 0, many_, 0);
    EXPECT_EQ(why(cache, long_step), invalid("layer 0 of sequence 0 has 0 tokens, and k has 241 more, expected at most "
                                             "240 together, the cache's context"));
    EXPECT_EQ(why(cache, early), invalid("q has 9 tokens, but only 0 were appended to layer 0 of sequence 1"));
    HostRows scores(q_heads, 9, 8);
    CacheStep narrow = step_of(several_, 0, many_, 0);
    narrow.scores_out = scores.tensor();
    EXPECT_EQ(why(cache, narrow), invalid("scores_out has 8 columns, expected at least 9"));
    std::vector steps = {step_of({2, 1, true, true}, 0, rows_, 0), early};
    for (CacheStep& each : steps) each.may_wait = false;
    EXPECT_EQ(refusal_of([&] { cache.step(steps); }),
              invalid("entries[1]: q has 9 tokens, but only 0 were appended to layer 0 of sequence 1"));

    Cache of_cells(slow, request_of("none", cell_count));
    Rows two(random_, 2);
    EXPECT_EQ(why(of_cells, step_of({0, 1, true, true, 0, {150}}, 0, rows_, cell_count)),
              invalid("cells[0] is 150, expected 0 to 149"));
    EXPECT_EQ(why(of_cells, step_of({0, 2, true, true, 0, {5, 5}}, 0, two, cell_count)),
              invalid("cells has 5 twice, expected each once"));
    CacheStep in_buffer = step_of({0, 1, true, true, 0, {150}}, 0, rows_, cell_count);
    const std::unique_ptr<Buffer> cells = slow.allocate(4);
    cells->write(0, rows_.cells.data(), 4);
    in_buffer.cells.buffer = cells.get();
    EXPECT_EQ(why(of_cells, in_buffer),
              would_wait("cells are in a buffer, which has to be read first; give them in host memory"));
}

// There are more than cells, where these were used again.
TEST_F(cache_no_wait_reasons, a_reservation_is_enough_for_any_number_of_queries_over_cells) {
    Cache cache(device_,
                request_of("winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8", cell_count));
    cache.reserve(0, cell_count);
    Part part{0, cell_count, true, false};
    for (int32_t cell = 0; cell < cell_count; ++cell) part.cells.push_back(cell);
    Rows all(random_, cell_count), queries(random_, 2 * cell_count);
    for (int i = 0; i < 2; ++i) {
        const CacheStep step = step_of(part, 0, all, cell_count);
        cache.step({&step, 1});
    }
    const CacheStep signs = step_of({0, 9, false, true}, 0, many_, cell_count);
    cache.step({&signs, 1});
    EXPECT_EQ(why(cache, step_of({0, 2 * cell_count, false, true}, 0, queries, cell_count)), "");
}

} // namespace
} // namespace winnow::cache
