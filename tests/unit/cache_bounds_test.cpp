// What statistics promise after every call, over random programs of calls: the bytes of a sequence are within its
// budget, or beyond it by no more than shifts explain, and the peak is no less than what there is and what was taken.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "cache/cache.hpp"
#include "cache/layer/layer.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {2, 2, 32, 32, 120, 0, 4};
constexpr int64_t q_heads = 4, sequences = 2, exported = 40;

class Program {
public:
    Program(const std::string& config, unsigned seed)
        : config_(config), random_(seed), cache_(device_, {config, shape, sequences, 0, {}}) {
        device_.heads_differ = true; // rows that are imported
        const Meaning meaning = meaning_of({config, shape, sequences, 0, {}});
        if (meaning.budget_tokens < shape.context || parse(config).budget().unit == Amount::Unit::bytes) return;
        const auto& [tokens, k, v] = meaning.segments.back(); // in which is what no other has room for
        const uint64_t slot =
            row_bytes(k, shape.head_size) + row_bytes(v, shape.v_head_size) + 4 + (meaning.keeps_importance ? 4 : 0);
        beside_ = static_cast<uint64_t>(shape.layers * shape.kv_heads * (meaning.sink + meaning.residual)) * slot;
    }

    void run(int calls) {
        for (int i = 0; i < calls && !testing::Test::HasFatalFailure(); ++i) {
            const std::string call = one_call();
            check(config_ + ", call " + std::to_string(i) + ": " + call);
        }
    }

    // Memory that a load does not take comes with a step, also where nothing attends.
    void step_after_load(int64_t tokens) {
        const std::string path = folder_.file("cache");
        step(0, 7, true);
        step(1, tokens, true);
        cache_.save({.path = path});
        cache_.reset();
        device_.most_in_use = device_.in_use;
        cache_.load({.path = path});
        check(config_ + ", a load");
        step_layer(0, 1, 1, false);
        check(config_ + ", a step after a load");
    }

private:
    int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

    void step_layer(int64_t layer, int64_t sequence, int64_t tokens, bool asks) {
        HostRows k(shape.kv_heads, tokens, 32), v = k, q(q_heads, tokens, 32), out = q;
        for (HostRows* each : {&k, &v, &q})
            for (float& value : each->values) value = std::sin(static_cast<float>(random_() % 1000));
        CacheStep args;
        args.sequence = sequence;
        args.layer = layer;
        args.scale = 1;
        args.k = k.tensor();
        args.v = v.tensor();
        if (asks) {
            args.q = q.tensor();
            args.out = out.tensor();
        }
        cache_.step({&args, 1});
    }

    void step(int64_t sequence, int64_t tokens, bool asks) {
        for (int64_t layer = 0; layer < shape.layers; ++layer) step_layer(layer, sequence, tokens, asks);
        length(sequence) += tokens;
    }

    // Rows of 16-bit elements.
    static Tensor rows_over(std::vector<uint16_t>& values) {
        values.resize(static_cast<size_t>(shape.kv_heads * exported * 32));
        Tensor tensor = tensor_of(Type::f16, shape.kv_heads, exported, 32);
        tensor.stride = {shape.kv_heads * exported * 64, exported * 64, 64, 2};
        tensor.data = reinterpret_cast<std::byte*>(values.data());
        return tensor;
    }

    void import_into(int64_t from, int64_t to) {
        std::vector<int32_t> tokens(exported);
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
            std::vector<uint16_t> k, v;
            CacheRows rows;
            rows.layer = layer;
            rows.sequence = from;
            rows.k = rows_over(k);
            rows.v = rows_over(v);
            rows.tokens = tensor_of(Type::i32, 1, 1, exported);
            rows.tokens.data = reinterpret_cast<std::byte*>(tokens.data());
            if (!try_to([&] { cache_.export_rows(rows); }, WINNOW_ERROR_UNSUPPORTED)) {
                cache_.remove(to, 0, -1);
                length(to) = 0;
                return;
            }
            rows.tokens = {};
            rows.sequence = to;
            cache_.import_rows(rows);
        }
        length(to) += exported;
    }

    void load() {
        const std::string path = folder_.file("cache");
        cache_.save({.path = path});
        if (below(2) == 0) {
            cache_.reset();
            device_.most_in_use = device_.in_use;
        }
        cache_.load({.path = path});
    }

    // What is refused changes nothing.
    static bool try_to(const std::function<void()>& call, int32_t refusal = WINNOW_ERROR_INVALID_ARGUMENT) {
        try {
            call();
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), refusal) << error.what();
            return false;
        }
        return true;
    }

    std::string one_call() {
        const int64_t sequence = below(sequences), other = 1 - sequence, now = length(sequence);
        const int64_t begin = below(now + 1), end = begin + below(now - begin + 1);
        switch (below(10)) {
        case 0: cache_.remove(sequence, begin, end); return "remove";
        case 1: {
            const int64_t delta = below(2) == 0 ? below(9) : -below(9);
            if (try_to([&] { cache_.shift(sequence, begin, -1, delta); })) note_shift(sequence, delta);
            return "shift " + std::to_string(begin) + " to the end by " + std::to_string(delta);
        }
        case 2: // as a host that has no more room: the first tokens go, and the others come to their positions
            if (end == begin) return "nothing";
            cache_.remove(sequence, 0, end - begin);
            if (end - begin == now)
                length(sequence) = 0;
            else if (try_to([&] { cache_.shift(sequence, end - begin, -1, begin - end); }))
                note_shift(sequence, begin - end);
            return "remove and shift";
        case 3: cache_.reserve(sequence, shape.context); return "reserve";
        case 4:
            if (below(3) > 0) return "nothing";
            cache_.copy(sequence, other);
            length(other) = now;
            return "copy";
        case 5: load(); return "load";
        case 6:
            if (now < exported || length(other) > shape.context - exported) return "nothing";
            import_into(sequence, other);
            return "import";
        default: {
            if (now == shape.context) {
                if (below(3) > 0) return "nothing";
                cache_.truncate(sequence, begin);
                length(sequence) = begin;
                return "truncate";
            }
            const int64_t tokens = 1 + below(std::min<int64_t>(shape.context - now, below(2) == 0 ? 3 : 60));
            step(sequence, tokens, below(3) > 0);
            return "step of " + std::to_string(tokens);
        }
        }
    }

    void note_shift(int64_t sequence, int64_t delta) {
        length(sequence) += delta;
        is_shifted_down_ = is_shifted_down_ || delta < 0;
    }

    void check(const std::string& what) {
        winnow_cache_stats stats{};
        cache_.stats(stats);
        const Amount budget = parse(config_).budget();
        uint64_t most = stats.budget_bytes + (is_shifted_down_ ? beside_ : 0);
        if (budget.unit == Amount::Unit::bytes) most = std::min(most, static_cast<uint64_t>(budget.count));
        for (int64_t sequence = 0; sequence < sequences; ++sequence) {
            winnow_cache_stats own{};
            cache_.sequence_stats(sequence, own);
            ASSERT_LE(own.bytes, most) << what;
        }
        ASSERT_GE(stats.peak_bytes, stats.bytes + stats.scratch_bytes) << what;
        if (stats.cold_bytes == 0 || stats.disk_bytes > 0) { // the rows of a cold tier are not in `bytes`
            ASSERT_GE(stats.peak_bytes, device_.most_in_use) << what;
        }
    }

    int64_t& length(int64_t sequence) { return lengths_[static_cast<size_t>(sequence)]; }

    std::string config_;
    std::mt19937 random_;
    TemporaryFolder folder_;
    FakeDevice device_;
    Cache cache_;
    bool is_shifted_down_ = false;
    // Bytes beyond the budget, where that holds a whole context: of as many packed rows as there are sinks' slots and
    // residual rows, in all of which removed tokens may still be when others are shifted down to their positions.
    uint64_t beside_ = 0;
    std::array<int64_t, sequences> lengths_{};
};

class cache_bounds : public testing::TestWithParam<const char*> {};

TEST_P(cache_bounds, hold_after_every_call) {
    const TemporaryFolder cold;
    std::string config = GetParam();
    if (config.ends_with("recall=")) config += cold.path();
    for (int64_t tokens = 60; tokens < 68; ++tokens) // an eviction pass comes next, or none
        Program(config, 1).step_after_load(tokens);
    for (unsigned seed = 1; seed <= 8 && !HasFatalFailure(); ++seed) Program(config, seed).run(60);
}

INSTANTIATE_TEST_SUITE_P(configs, cache_bounds,
                         testing::Values("none:k=f16,v=f16,residual=16,sink=16", "none:residual=0,sink=6,cadence=8",
                                         "none:k=q8_0,v=q8_0,sink=4,residual=48", "none:residual=0,sink=0",
                                         "winnow:budget=80000B", "winnow:budget=120",
                                         "h2o:budget=40,sink=4,residual=8,cadence=4",
                                         "h2o:residual=16,cadence=16,sink=8,budget=120",
                                         "window:budget=30,sink=4,residual=0,cadence=4",
                                         "window:residual=0,sink=8,cadence=5,budget=120",
                                         "h2o:budget=120,share2=1/2,k2=q4_0,v2=q4_0,k=q8_0,v=q8_0,residual=16",
                                         "none:center=on,residual=12,sink=2,k=q8_0,v=q8_0",
                                         "winnow:budget=1/2,residual=8,cadence=4,recall=host",
                                         "winnow:budget=1/2,residual=8,cadence=4,recall="));

} // namespace
} // namespace winnow::cache
