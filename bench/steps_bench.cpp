// How even the decode steps of a whole model are: all layers of a cache, one after another, with nothing between them.
// Eviction passes come every 32 tokens in each layer, in other steps in one layer than in the next. So there are 32
// kinds of steps; of each the shortest of many is taken, and the longest of these is compared with the median.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t layers = 30;  // of SmolLM2-135M
constexpr int64_t cadence = 32; // steps from pass to pass, and tokens of a prompt that are handed over at once
constexpr int width = 15;       // of the table's columns

class Steps {
public:
    Steps(Backend& backend, const AttentionSizes& sizes, const std::string& config)
        : backend_(backend), sizes_(sizes), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * cadence * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * cadence * sizes.head_size),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * cadence * sizes.head_size) {
        const int64_t no_end = int64_t{1} << 29; // of the context, so that it can go on for as long as is measured
        winnow_cache_desc desc = layer_of(sizes, config, no_end);
        desc.layers = layers;
        cache_ = backend.make_cache(desc);
        shortest_.fill(std::numeric_limits<double>::infinity());
    }
    ~Steps() { backend_.destroy(cache_); }
    Steps(const Steps&) = delete;
    Steps& operator=(const Steps&) = delete;

    void fill(int64_t tokens) {
        for (int64_t begin = 0; begin < tokens; begin += cadence) append(std::min(cadence, tokens - begin), false);
    }
    // One step of each kind.
    void run() {
        for (size_t kind = 0; kind < shortest_.size(); ++kind) {
            const uint64_t before = backend_.stats(cache_).eviction_passes;
            const auto begin = std::chrono::steady_clock::now();
            append(1, true);
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            shortest_[kind] = std::min(shortest_[kind], time.count());
            passes_[kind] = backend_.stats(cache_).eviction_passes - before;
        }
    }
    const std::array<double, cadence>& shortest() const { return shortest_; } // seconds, of each kind
    uint64_t most_passes() const { return *std::max_element(passes_.begin(), passes_.end()); }

private:
    void append(int64_t tokens, bool attends) {
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.k = desc.v = &kv;
        if (attends) {
            desc.q = &q;
            desc.out = &out;
        }
        for (desc.layer = 0; desc.layer < layers; ++desc.layer) backend_.run(cache_, desc);
    }

    Backend& backend_;
    AttentionSizes sizes_;
    Memory q_, kv_, out_;
    winnow_cache* cache_ = nullptr;
    std::array<double, cadence> shortest_{};
    std::array<uint64_t, cadence> passes_{};
};

// What lies in segments by age goes down twice before it is evicted: at 1/4 of the keys, .58 and 1.08 of them.
std::string decay(int64_t keys) {
    const int64_t window = keys / 4;
    return "decay:window=" + std::to_string(window) +
           ",decay_lambda=" + std::to_string(0.6931 / static_cast<double>(window));
}

} // namespace

nlohmann::json bench_steps(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"steps: all of " + std::to_string(layers) + " layers", "median, us", "longest, us", "more, %",
               "passes at once"},
              width);
    for (const AttentionSizes& sizes : sizes_of(options)) {
        const std::string quarter = "budget=" + std::to_string(sizes.kv_len / 4);
        for (const std::string& config : {"window:" + quarter, "winnow:" + quarter, decay(sizes.kv_len)}) {
            Steps steps(backend, sizes, config);
            steps.fill(sizes.kv_len + sizes.kv_len / 4);
            take_turns({[&] { steps.run(); }}, options.seconds);
            const Quartiles kinds = quartiles({steps.shortest().begin(), steps.shortest().end()});
            const double longest = *std::max_element(steps.shortest().begin(), steps.shortest().end());
            const double more = 100 * (longest / kinds.middle - 1);
            print_row({config + " G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) + " " +
                           std::to_string(sizes.kv_len),
                       fixed(kinds.middle * 1e6, 1), fixed(longest * 1e6, 1), fixed(more, 1),
                       std::to_string(steps.most_passes())},
                      width);
            rows.push_back({{"config", config},
                            {"group", sizes.group},
                            {"head_size", sizes.head_size},
                            {"keys", sizes.kv_len},
                            {"kinds_seconds", steps.shortest()},
                            {"longest_seconds", longest},
                            {"longest_percent", more},
                            {"most_passes", steps.most_passes()}});
        }
    }
    return rows;
}

} // namespace winnow::bench
