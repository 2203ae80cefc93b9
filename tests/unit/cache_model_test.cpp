// The cache against a plain model: for each head the tokens it may still hold, over random schedules of every call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

const AlikeLayers shape = {3, 2, 2, 2, 260, 0, 4};
constexpr int64_t q_heads = 4, sequences = 2;

struct ModelLayer {
    int64_t next = 0;
    std::map<int32_t, float> appended;              // and not removed: token id and the first element of V
    std::vector<std::map<int32_t, float>> heads{2}; // what each head holds
    int64_t tokens() const { return static_cast<int64_t>(appended.size()); }
};

struct ModelSequence {
    std::vector<ModelLayer> layers{static_cast<size_t>(shape.layers)};
    std::set<int64_t> anchors;
    bool is_empty() const {
        return std::all_of(layers.begin(), layers.end(), [](const ModelLayer& each) { return each.appended.empty(); });
    }
};

template <typename Value>
void erase_range(std::map<int32_t, Value>& tokens, int64_t begin, int64_t end) {
    std::erase_if(tokens, [&](const auto& token) { return token.first >= begin && token.first < end; });
}

template <typename Value>
std::map<int32_t, Value> shifted(const std::map<int32_t, Value>& tokens, int64_t begin, int64_t end, int64_t delta) {
    std::map<int32_t, Value> moved;
    for (const auto& [token_id, value] : tokens) {
        const bool moves = token_id >= begin && token_id < end;
        if (!moved.emplace(moves ? token_id + static_cast<int32_t>(delta) : token_id, value).second) return {};
    }
    return moved;
}

class Schedule {
public:
    Schedule(std::string config, int64_t cells, unsigned seed)
        : config_(std::move(config)), cells_(cells), random_(seed),
          cache_(device_, {config_, shape, sequences, cells, {}}), model_(static_cast<size_t>(sequences)) {
        use_config(config_);
    }

    int64_t checks() const { return checks_; }
    int64_t reconfigured() const { return reconfigured_; }

    void run(int calls) {
        for (int i = 0; i < calls && !testing::Test::HasFatalFailure(); ++i) {
            const int64_t sequence = draw(sequences);
            const int64_t kind = draw(20);
            if (kind < 10)
                step(sequence, kind == 0 ? 1 + draw(70) : kind < 3 ? 1 + draw(9) : 1);
            else if (kind < 12)
                decode(sequence, 1 + draw(30));
            else if (kind == 12)
                truncate(sequence);
            else if (kind == 13)
                remove(sequence);
            else if (kind == 14)
                shift(sequence);
            else if (kind == 15 && draw(3) == 0)
                copy(sequence);
            else if (kind == 16)
                anchor(sequence);
            else if (kind == 17 && draw(4) == 0)
                cache_.reserve(sequence, draw(limit() + 1));
            else if (kind == 18)
                save_and_load();
            else if (kind == 19 && draw(4) == 0)
                reconfigure();
            for (int64_t each = 0; each < sequences; ++each) check(each);
            check_stats();
        }
    }

private:
    int64_t draw(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
    int64_t limit() const { return cells_ > 0 ? cells_ : shape.context; }
    ModelSequence& at(int64_t sequence) { return model_[static_cast<size_t>(sequence)]; }

    void use_config(const std::string& text) {
        const Config config = parse(text);
        plan_ = plan(config, shape);
        evicts_ = config.policy().evicts && plan_.tokens < limit();
        descriptions_.clear();
        const std::unique_ptr<Policy> policy = make_policy(config);
        for (int64_t layer = 0; layer < shape.layers; ++layer)
            descriptions_.push_back(policy->describe(context_of(plan_, shape, layer)));
        may_evict_ = evicts_ || config.policy().name == std::string("hierarchical");
    }

    std::vector<int32_t> draw_cells(int64_t count) {
        std::set<int32_t> chosen;
        while (static_cast<int64_t>(chosen.size()) < count) {
            int64_t cell = draw(cells_); // in stretches, as hosts do
            for (int64_t i = 0, length = 1 + draw(8); i < length && static_cast<int64_t>(chosen.size()) < count; ++i)
                chosen.insert(static_cast<int32_t>((cell + i) % cells_));
        }
        return {chosen.begin(), chosen.end()};
    }

    // All layers append the same number of tokens, with other values.
    void step(int64_t sequence, int64_t tokens) {
        const int64_t room = cells_ > 0 ? cells_ : shape.context - at(sequence).layers[0].next;
        tokens = std::min(tokens, room);
        if (tokens == 0) return;
        const std::vector<int32_t> cells = cells_ > 0 ? draw_cells(tokens) : std::vector<int32_t>{};
        for (int64_t layer = 0; layer < shape.layers; ++layer) step_layer(sequence, layer, tokens, cells);
    }

    void decode(int64_t sequence, int64_t tokens) {
        for (int64_t i = 0; i < tokens; ++i) step(sequence, 1);
    }

    void step_layer(int64_t sequence, int64_t layer, int64_t tokens, const std::vector<int32_t>& cells) {
        ModelLayer& model = at(sequence).layers[static_cast<size_t>(layer)];
        HostRows k(shape.kv_heads, tokens, 2), v(shape.kv_heads, tokens, 2), q(q_heads, tokens, 2), out = q;
        for (HostRows* rows : {&k, &q})
            for (float& value : rows->values) value = static_cast<float>(draw(1000)) / 250 - 2;
        for (int64_t t = 0; t < tokens; ++t) {
            const int32_t token_id = cells_ > 0 ? cells[static_cast<size_t>(t)] : static_cast<int32_t>(model.next + t);
            for (int64_t head = 0; head < shape.kv_heads; ++head) v.at(head, t, 0) = static_cast<float>(++identity_);
            model.appended[token_id] = v.at(0, t, 0);
            for (int64_t head = 0; head < shape.kv_heads; ++head)
                model.heads[static_cast<size_t>(head)][token_id] = v.at(head, t, 0);
        }
        model.next += tokens;
        CacheStep args = attention(sequence, layer, tokens);
        args.k = k.tensor();
        args.v = v.tensor();
        std::vector<int64_t> wide(cells.begin(), cells.end());
        args.cells = list(wide);
        if (draw(5) > 0) {
            args.q = q.tensor();
            args.out = out.tensor();
            args.draft_tokens = draw(tokens + 1);
        }
        cache_.step({&args, 1});
    }

    Tensor list(std::vector<int64_t>& values) const {
        Tensor tensor;
        if (values.empty()) return tensor;
        const auto count = static_cast<int64_t>(values.size());
        tensor.type = Type::i64;
        tensor.data = reinterpret_cast<std::byte*>(values.data());
        tensor.shape = {1, 1, 1, count};
        tensor.stride = {8 * count, 8 * count, 8 * count, 8};
        return tensor;
    }

    CacheStep attention(int64_t sequence, int64_t layer, int64_t tokens) {
        CacheStep args;
        args.layer = layer;
        args.sequence = sequence;
        args.scale = 1;
        if (cells_ == 0) return args;
        mask_.assign(static_cast<size_t>(tokens * cells_), 1);
        args.mask.type = Type::boolean;
        args.mask.data = reinterpret_cast<std::byte*>(mask_.data());
        args.mask.shape = {1, 1, tokens, cells_};
        args.mask.stride = {tokens * cells_, tokens * cells_, cells_, 1};
        return args;
    }

    void truncate(int64_t sequence) {
        if (cells_ > 0) {
            EXPECT_THROW(cache_.truncate(sequence, 3), Error);
            return;
        }
        const int64_t next = at(sequence).layers[0].next;
        const int64_t length = draw(3) == 0 ? draw(next + 2) : std::max<int64_t>(next - draw(12), 0);
        cache_.truncate(sequence, length);
        for (ModelLayer& layer : at(sequence).layers) {
            erase_range(layer.appended, length, limit());
            for (auto& head : layer.heads) erase_range(head, length, limit());
            layer.next = std::min(layer.next, length);
        }
        // As new, but for anchors: those of tokens still to come. To another length, that length stays.
        if (length == 0) at(sequence).layers = ModelSequence().layers;
    }

    void remove(int64_t sequence) {
        const int64_t next = cells_ > 0 ? cells_ : at(sequence).layers[0].next;
        const int64_t begin = draw(next + 1), last = draw(3) == 0 ? next : std::min(next, begin + draw(20));
        const int64_t end = draw(4) == 0 ? -1 : last;
        const bool was_empty = at(sequence).is_empty();
        cache_.remove(sequence, begin, end);
        const int64_t until = end == -1 ? limit() : end;
        for (ModelLayer& layer : at(sequence).layers) {
            erase_range(layer.appended, begin, until);
            for (auto& head : layer.heads) erase_range(head, begin, until);
        }
        std::erase_if(at(sequence).anchors,
                      [&](int64_t anchor) { return anchor >= begin && (end == -1 || anchor < end); });
        if (at(sequence).is_empty() && !(was_empty && begin > 0)) at(sequence) = {};
    }

    void shift(int64_t sequence) {
        if (cells_ > 0) return;
        ModelSequence& model = at(sequence);
        const int64_t next = model.layers[0].next;
        const int64_t begin = draw(next + 1), end = draw(2) == 0 ? -1 : begin + draw(next + 1 - begin);
        const int64_t until = end == -1 ? std::numeric_limits<int64_t>::max() : end;
        // Half of the time by the gap before the range.
        int64_t delta = draw(61) - 30;
        if (draw(2) == 0) {
            const auto after = model.layers[0].appended.lower_bound(static_cast<int32_t>(begin));
            const int64_t before = after == model.layers[0].appended.begin() ? -1 : std::prev(after)->first;
            delta = before + 1 - begin;
        }
        bool fits = delta != 0;
        for (const ModelLayer& layer : model.layers) {
            const auto moved = shifted(layer.appended, begin, until, delta);
            const int64_t then = layer.next + (layer.next >= begin && layer.next < until ? delta : 0);
            fits = fits && moved.size() == layer.appended.size() && then >= 0 && then <= shape.context;
            fits = fits && (moved.empty() || (moved.begin()->first >= 0 && moved.rbegin()->first < then));
        }
        std::set<int64_t> anchors;
        for (const int64_t anchor : model.anchors)
            anchors.insert(anchor >= begin && anchor < until ? anchor + delta : anchor);
        fits = fits && anchors.size() == model.anchors.size() && (anchors.empty() || *anchors.begin() >= 0);
        if (delta == 0) return;
        if (!fits) {
            EXPECT_THROW(cache_.shift(sequence, begin, end, delta), Error);
            return;
        }
        try {
            cache_.shift(sequence, begin, end, delta);
        } catch (const Error& error) { // too many would be protected
            EXPECT_TRUE(evicts_ &&
                        std::string(error.what()).find("of which lie in the packed segment") != std::string::npos)
                << error.what();
            return;
        }
        for (ModelLayer& layer : model.layers) {
            layer.appended = shifted(layer.appended, begin, until, delta);
            for (auto& head : layer.heads) head = shifted(head, begin, until, delta);
            if (layer.next >= begin && layer.next < until) layer.next += delta;
        }
        model.anchors = anchors;
    }

    void copy(int64_t sequence) {
        cache_.copy(sequence, 1 - sequence);
        at(1 - sequence) = at(sequence);
    }

    void anchor(int64_t sequence) {
        std::vector<int64_t> anchors;
        for (int64_t i = 0, count = 1 + draw(3); i < count; ++i) anchors.push_back(draw(limit()));
        try {
            cache_.anchor(sequence, anchors);
            at(sequence).anchors.insert(anchors.begin(), anchors.end());
        } catch (const Error& error) { // too many
            EXPECT_TRUE(evicts_) << error.what();
            EXPECT_GT(at(sequence).anchors.size() + anchors.size(), 1u);
        }
    }

    void save_and_load() {
        const std::string path = folder_.file("cache");
        winnow_cache_stats before{}, after{};
        cache_.stats(before);
        cache_.save({.path = path});
        if (draw(2) == 0) {
            cache_.reset();
            device_.most_in_use = device_.in_use;
            before.evictions = before.eviction_passes = before.steps = 0; // a stream has no counters
        }
        cache_.load({.path = path});
        cache_.stats(after);
        before.peak_bytes = after.peak_bytes;
        before.scratch_bytes = after.scratch_bytes; // may have come from what is gone
        EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
    }

    void reconfigure() {
        const std::string budget =
            ",budget=" + std::to_string(std::vector{50, 60, 80, 120, 260}[static_cast<size_t>(draw(5))]);
        std::string text = config_;
        if (const size_t begin = text.find(",budget="); begin != std::string::npos)
            text.erase(begin, text.find(',', begin + 1) - begin);
        text += budget;
        try {
            cache_.set_config(text);
        } catch (const Error& error) {
            // No policy's key, or the residual window would become another, or anchors have no room.
            EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT) << error.what();
            return;
        }
        use_config(text);
        ++reconfigured_;
    }

    void check(int64_t sequence) {
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
            ModelLayer& model = at(sequence).layers[static_cast<size_t>(layer)];
            if (model.next == 0) {
                for (int64_t head = 0; head < shape.kv_heads; ++head)
                    ASSERT_TRUE(positions_of(cache_, sequence, layer, head).empty());
                continue;
            }
            HostRows q(q_heads, 1, 2), out = q;
            CacheStep args = attention(sequence, layer, 1);
            args.q = q.tensor();
            args.out = out.tensor();
            args.draft_tokens = 1;
            cache_.step({&args, 1});
            ++checks_;
            for (int64_t head = 0; head < shape.kv_heads; ++head)
                check_head(sequence, layer, head, device_.seen.at(static_cast<size_t>(head)));
        }
    }

    void check_head(int64_t sequence, int64_t layer, int64_t head, const std::map<int32_t, float>& seen) {
        ModelLayer& model = at(sequence).layers[static_cast<size_t>(layer)];
        std::map<int32_t, float>& resident = model.heads[static_cast<size_t>(head)];
        std::vector<int32_t> token_ids;
        for (const auto& [token_id, identity] : seen) {
            token_ids.push_back(token_id);
            const auto found = resident.find(token_id);
            ASSERT_TRUE(found != resident.end()) << "token " << token_id << " is back";
            ASSERT_EQ(found->second, identity) << "token " << token_id << " has another's values";
        }
        ASSERT_EQ(positions_of(cache_, sequence, layer, head), token_ids);
        const Description& description = descriptions_[static_cast<size_t>(layer)];
        for (const auto& [token_id, identity] : resident) {
            bool stays = !may_evict_ || at(sequence).anchors.contains(token_id);
            if (cells_ == 0)
                stays = stays || token_id < description.sink || token_id >= model.next - description.recent;
            ASSERT_TRUE(!stays || seen.contains(token_id)) << config_ << ": token " << token_id << " was evicted";
        }
        if (evicts_) {
            ASSERT_LE(static_cast<int64_t>(seen.size()), plan_.layer_tokens[static_cast<size_t>(layer)]);
        }
        resident = seen;
    }

    void check_stats() {
        winnow_cache_stats stats{};
        cache_.stats(stats);
        uint64_t original = 0, live = 0, tokens = 0;
        for (const ModelSequence& sequence : model_) {
            int64_t longest = 0;
            for (const ModelLayer& layer : sequence.layers) {
                original += static_cast<uint64_t>(layer.tokens() * shape.kv_heads * 4 * 2);
                longest = std::max(longest, layer.tokens());
                for (const auto& head : layer.heads) live += head.size();
            }
            tokens += static_cast<uint64_t>(longest);
        }
        ASSERT_EQ(stats.original_bytes, original);
        ASSERT_EQ(stats.resident_slots, live);
        ASSERT_EQ(stats.tokens, tokens);
        ASSERT_EQ(stats.bytes + stats.scratch_bytes, device_.in_use);
        ASSERT_EQ(device_.most_in_use, stats.peak_bytes);
        ASSERT_LE(stats.bytes, sequences * stats.budget_bytes);
        ASSERT_EQ(stats.shortfall, 0u);
    }

    std::string config_;
    int64_t cells_;
    std::mt19937 random_;
    TemporaryFolder folder_;
    FakeDevice device_;
    Cache cache_;
    std::vector<ModelSequence> model_;
    Plan plan_;
    std::vector<Description> descriptions_;
    bool evicts_ = false, may_evict_ = false;
    int64_t identity_ = 0, checks_ = 0, reconfigured_ = 0;
    std::vector<uint8_t> mask_;
};

constexpr const char* configs[] = {"window:k=f32,v=f32,budget=40,residual=16",
                                   "window:k=f32,v=f32,sink=0,residual=0,budget=40",
                                   "window:k=f32,v=f32,residual=24,cadence=24,budget=64",
                                   "h2o:k=f32,v=f32,budget=60,residual=20,cadence=12",
                                   "h2o:k=f32,v=f32,budget=1/4,residual=0",
                                   "winnow:k=f32,v=f32,budget=1/4,residual=16",
                                   "winnow:k=f32,v=f32,residual=16",
                                   "scissorhands:k=f32,v=f32,budget=80,residual=8",
                                   "hierarchical:k=f32,v=f32,budget=1/2,residual=16,cadence=6",
                                   "random:k=f32,v=f32,budget=40,residual=3",
                                   "h2o:k=f32,v=f32,residual=12,cadence=8",
                                   "window:k=f32,v=f32,residual=0,cadence=7",
                                   "none:k=f32,v=f32,residual=16",
                                   "none:k=f32,v=f32,residual=0,sink=2",
                                   "none:k=f32,v=f32,residual=1,sink=0"};

class cache_model : public testing::TestWithParam<const char*> {};

TEST_P(cache_model, holds_over_any_schedule_of_calls) {
    int64_t reconfigured = 0;
    for (unsigned seed = 1; seed <= 4 && !HasFatalFailure(); ++seed) {
        Schedule schedule(GetParam(), 0, seed);
        schedule.run(100);
        EXPECT_GT(schedule.checks(), 0);
        reconfigured += schedule.reconfigured();
    }
    EXPECT_EQ(reconfigured > 0, !std::string(GetParam()).starts_with("none")) << "`none` has no budget";
}

TEST_P(cache_model, holds_over_any_schedule_with_cells) {
    for (unsigned seed = 1; seed <= 2 && !HasFatalFailure(); ++seed)
        for (const int64_t cells : {72, 260, 300})
            if (!HasFatalFailure()) Schedule(GetParam(), cells, seed).run(40);
}

INSTANTIATE_TEST_SUITE_P(policies, cache_model, testing::ValuesIn(configs));

} // namespace
} // namespace winnow::cache
