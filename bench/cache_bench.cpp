// Decode steps of a cache at a quarter of a context, against attention over the whole context in f16: what a policy
// saves, what its importance costs, what the judgements cost (slot_flush, every 32 tokens), and what it costs that a
// layer lies in two stores (slot_attention over the dense ring and the packed body) with a slot map. A step is
// slot_append, slot_attention and slot_observe, in one launch where the device does that; slot_edit, slot_copy,
// slot_compact and slot_scores are no part of it.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t piece = 32; // tokens of a prompt that are handed over at once, and steps from flush to flush

struct Policy {
    const char* name;   // of the row
    const char* config; // without the budget
    uint32_t k_type, v_type;
    bool has_importance;
};

constexpr std::array policies = {
    Policy{"window f16", "window:k=f16,v=f16", WINNOW_TYPE_F16, WINNOW_TYPE_F16, false},
    Policy{"random f16", "random:k=f16,v=f16", WINNOW_TYPE_F16, WINNOW_TYPE_F16, false},
    Policy{"scissorhands f16", "scissorhands:k=f16,v=f16", WINNOW_TYPE_F16, WINNOW_TYPE_F16, true},
    Policy{"h2o f16", "h2o:k=f16,v=f16", WINNOW_TYPE_F16, WINNOW_TYPE_F16, true},
    Policy{"winnow f16", "winnow:k=f16,v=f16", WINNOW_TYPE_F16, WINNOW_TYPE_F16, true},
    Policy{"winnow turbo4/turbo3", "winnow:k=turbo4,v=turbo3", WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, true},
    Policy{"window turbo4/turbo3", "window:k=turbo4,v=turbo3", WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, false},
};

// One layer of one sequence, filled until its budget is full.
class CacheProblem {
public:
    CacheProblem(Backend& backend, const std::string& config, const AttentionSizes& sizes, int64_t context)
        : backend_(backend), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * piece * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * piece * sizes.head_size * random_pieces),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * piece * sizes.head_size), sizes_(sizes) {
        winnow_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.config = config.c_str();
        desc.layers = 1;
        desc.q_num_heads = sizes.q_heads();
        desc.kv_num_heads = sizes.kv_heads;
        desc.head_size = sizes.head_size;
        desc.context = context;
        cache_ = backend.make_cache(desc);
    }
    ~CacheProblem() { backend_.destroy(cache_); }
    CacheProblem(const CacheProblem&) = delete;
    CacheProblem& operator=(const CacheProblem&) = delete;

    void fill(int64_t tokens) {
        for (int64_t begin = 0; begin < tokens; begin += piece) step(std::min(piece, tokens - begin), true, false);
    }
    void append_and_attend() { step(1, true, true); }
    void attend() { step(1, false, true); }

    // As many steps as there are from flush to flush; the shortest time of each phase is kept.
    void run_cadence() {
        for (int64_t i = 0; i < piece; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            append_and_attend();
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            double& shortest = phases_[static_cast<size_t>(phase_++ % piece)];
            shortest = std::min(shortest, time.count());
        }
    }
    // Of a cadence's time, what the steps that judge take more than the others.
    double flush_share() const {
        std::array<double, piece> sorted = phases_;
        std::sort(sorted.begin(), sorted.end());
        const double usual = sorted[piece / 2];
        double all = 0;
        for (const double phase : sorted) all += phase;
        return (sorted.back() - usual) / all;
    }
    double slowest_step() const { return *std::max_element(phases_.begin(), phases_.end()); }
    winnow_cache_stats stats() { return backend_.stats(cache_); }

private:
    static constexpr int64_t random_pieces = 8;

    void step(int64_t tokens, bool appends, bool attends) {
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
        kv.offset = static_cast<uint64_t>(count_++ % random_pieces * sizes_.kv_heads * piece * sizes_.head_size) * 4;
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        if (appends) desc.k = desc.v = &kv;
        if (attends) {
            desc.q = &q;
            desc.out = &out;
        }
        backend_.run(cache_, desc);
    }

    Backend& backend_;
    Memory q_, kv_, out_;
    AttentionSizes sizes_;
    winnow_cache* cache_ = nullptr;
    int64_t count_ = 0, phase_ = 0;
    std::array<double, piece> phases_ = [] {
        std::array<double, piece> longest{};
        longest.fill(std::numeric_limits<double>::infinity());
        return longest;
    }();
};

// One policy at a quarter of `keys` tokens; its context has no end, so that it can go on for as long as is measured.
nlohmann::json measure(const Options& options, Backend& backend, const Policy& policy, int64_t group, int64_t head_size,
                       int64_t keys) {
    const int64_t budget = keys / 4;
    const int64_t context = int64_t{1} << 29;
    AttentionSizes sizes{options.kv_heads, group, 1, keys, head_size, WINNOW_TYPE_F16, WINNOW_TYPE_F16};
    Attention full(backend, sizes);
    sizes.kv_len = budget;
    sizes.k_type = policy.k_type;
    sizes.v_type = policy.v_type;
    Attention one_store(backend, sizes); // the same number of rows in the body's formats, without a slot map
    const auto budgeted = [&](const char* config) { return std::string(config) + ",budget=" + std::to_string(budget); };
    CacheProblem cache(backend, budgeted(policy.config), sizes, context);
    // The same formats and tokens without an importance, to see what it costs.
    const std::string formats = std::string(policy.config).substr(std::string(policy.config).find(':'));
    CacheProblem plain(backend, budgeted(("random" + formats).c_str()), sizes, context);
    cache.fill(keys);
    plain.fill(keys);

    const std::vector<double> seconds =
        take_turns({[&] { full.run(); }, [&] { cache.run_cadence(); }, [&] { plain.run_cadence(); },
                    [&] { cache.attend(); }, [&] { plain.attend(); }, [&] { one_store.run(); }},
                   options.seconds);
    const double step = seconds[1] / piece;
    const double importance = policy.has_importance ? seconds[3] / seconds[4] - 1 : 0;
    const winnow_cache_stats stats = cache.stats();
    print_row({std::string(policy.name) + " G=" + std::to_string(group) + " D=" + std::to_string(head_size) + " " +
                   std::to_string(budget) + "/" + std::to_string(keys),
               fixed(step * 1e6, 1), fixed(step / seconds[0], 3), fixed(seconds[3] / seconds[0], 3),
               policy.has_importance ? fixed(importance * 100, 1) : "-", fixed(cache.flush_share() * 100, 1),
               fixed((seconds[4] / seconds[5] - 1) * 100, 1), fixed(cache.slowest_step() / step, 1)});
    return {{"policy", policy.config},
            {"group", group},
            {"head_size", head_size},
            {"context", keys},
            {"budget", budget},
            {"bytes", stats.bytes},
            {"step_seconds", step},
            {"full_f16_seconds", seconds[0]},
            {"attend_seconds", seconds[3]},
            {"attend_without_importance_seconds", seconds[4]},
            {"one_store_seconds", seconds[5]},
            {"flush_share", cache.flush_share()},
            {"slowest_step_seconds", cache.slowest_step()}};
}

} // namespace

nlohmann::json bench_cache(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"cache: a decode step at 1/4 of a context", "us", "x full", "attend", "import. %", "flush %", "stores %",
               "worst step"});
    for (const int64_t head_size : options.head_sizes)
        for (const int64_t group : options.groups)
            for (const int64_t keys : options.key_counts)
                for (const Policy& policy : policies)
                    rows.push_back(measure(options, backend, policy, group, head_size, keys));
    return rows;
}

} // namespace winnow::bench
