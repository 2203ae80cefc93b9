// Decode steps of a cache at a quarter of a context, against attention over the whole context in f16: what a policy
// saves, what its importance costs, what the eviction passes cost (slot_evict, every 32 tokens), and what it costs that
// a layer lies in two segments (attention over the dense residual window and the packed segment) with a slot map.
// A step appends, attends and accumulates, in one launch where the device does that. slots_bench.cpp has the kernels on
// slots one by one.
//
// Each figure is the median of ratios between neighbours in time, with half of their interquartile range in brackets:
//     x full       a step, its part of the eviction passes included, against attention over the whole context
//     attend       a step that appends nothing, against the same
//     import. %    what all steps from pass to pass take longer than as many whose queries are drafts and do not count
//     evict %      of all steps from pass to pass, what those that evict take longer than the others
//     segments %   what an attention over residual window and packed segments takes longer than over a cache that is
//                  one segment of as many bytes of K and V, in the formats of the first packed one
//     plain %      the same against attention over such rows without a cache, its slot map and its calls
//     worst step   one that evicts, against the usual one
// Where memory lies changes speed by more than some of this: caches are made anew several times for each row.
#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t chunk = 32; // tokens of a prompt that are handed over at once, and steps from pass to pass
constexpr int builds = 3;     // of the caches, for each row
constexpr int width = 15;     // of the table's columns

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
    Policy{"winnow f16 every 4", "winnow:k=f16,v=f16,every=4", WINNOW_TYPE_F16, WINNOW_TYPE_F16, true},
    Policy{"winnow turbo4/turbo3", "winnow:k=turbo4,v=turbo3", WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, true},
    Policy{"winnow turbo every 4", "winnow:k=turbo4,v=turbo3,every=4", WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, true},
    Policy{"window turbo4/turbo3", "window:k=turbo4,v=turbo3", WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3, false},
    // Tokens go down as they grow old, as under decay.
    Policy{"window three packed",
           "window:k=turbo4,v=turbo3,share2=1/3,k2=turbo3,v2=turbo3,share3=1/3,k3=turbo2,v3=turbo2", WINNOW_TYPE_TURBO4,
           WINNOW_TYPE_TURBO3, false},
    // The first KV head stores its keys otherwise than the others.
    Policy{"window two by heads", "window:k=turbo4,v=turbo3,residual=32,fine=0.0,k_fine=q8_0", WINNOW_TYPE_TURBO4,
           WINNOW_TYPE_TURBO3, false},
};

// One layer of one sequence, filled until its budget is full.
class CacheProblem {
public:
    CacheProblem(Backend& backend, const std::string& config, const AttentionSizes& sizes, int64_t context)
        : backend_(backend), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * chunk * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * chunk * sizes.head_size * random_chunks),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * chunk * sizes.head_size), sizes_(sizes) {
        cache_ = backend.make_cache(layer_of(sizes, config, context));
    }
    ~CacheProblem() { backend_.destroy(cache_); }
    CacheProblem(const CacheProblem&) = delete;
    CacheProblem& operator=(const CacheProblem&) = delete;

    void fill(int64_t tokens) {
        for (int64_t begin = 0; begin < tokens; begin += chunk) step(std::min(chunk, tokens - begin), true, false);
    }
    void append_and_attend() { step(1, true, true); }
    void attend() { step(1, false, true); }
    void attend_unobserved() { step(1, false, true, 1); }
    void run_steps(int64_t draft_tokens) {
        for (int64_t i = 0; i < chunk; ++i) step(1, true, true, draft_tokens);
    }

    // Finds out which of the steps of a cadence evict.
    void find_passes() {
        for (int64_t i = 0; i < chunk; ++i) {
            const uint64_t before = stats().eviction_passes;
            append_and_attend();
            evicts_[static_cast<size_t>(i)] = stats().eviction_passes > before;
        }
    }
    // As many steps as there are from pass to pass. The median step stands for all that do not evict: it does not
    // notice if the process has to wait in between.
    void run_cadence() {
        std::vector<double> usual, evicting_steps;
        for (const bool evicts : evicts_) {
            const auto begin = std::chrono::steady_clock::now();
            append_and_attend();
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            (evicts ? evicting_steps : usual).push_back(time.count());
        }
        Cadence& made = cadences_.emplace_back();
        const double step = quartiles(usual).middle;
        for (const double time : evicting_steps) made.evicting += time - step;
        made.steps = step * static_cast<double>(chunk) + made.evicting;
        made.worst = evicting_steps.empty() ? 1 : quartiles(evicting_steps).middle / step;
    }

    struct Cadence {
        double steps = 0;    // seconds, of all
        double evicting = 0; // of them
        double worst = 0;    // a step that evicts against the usual one
    };
    const std::vector<Cadence>& cadences() const { return cadences_; }
    winnow_cache_stats stats() { return backend_.stats(cache_); }

private:
    static constexpr int64_t random_chunks = 8;

    void step(int64_t tokens, bool appends, bool attends, int64_t draft_tokens = 0) {
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), tokens, sizes_.head_size);
        winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
        kv.offset = static_cast<uint64_t>(count_++ % random_chunks * sizes_.kv_heads * chunk * sizes_.head_size) * 4;
        winnow_cache_entry entry{};
        entry.struct_size = sizeof entry;
        entry.count = tokens;
        entry.draft_tokens = draft_tokens;
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.entries = &entry;
        desc.entry_count = 1;
        desc.entry_stride = sizeof entry;
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
    int64_t count_ = 0;
    std::array<bool, chunk> evicts_{};
    std::vector<Cadence> cadences_;
};

nlohmann::json to_json(const Quartiles& values) { return {values.low, values.middle, values.high}; }

// What was measured of a policy, an entry for each round.
struct Figures {
    std::vector<double> step, of_full, attend_of_full, importance, eviction, segments, plain, worst;
    uint64_t bytes = 0;
};

// Makes the caches, fills them, and measures for a time.
void measure(Backend& backend, const Policy& policy, const AttentionSizes& sizes, Attention& full, double seconds,
             Figures& figures) {
    const int64_t budget = sizes.kv_len / 4;
    const int64_t no_end = int64_t{1} << 29; // of the context, so that it can go on for as long as is measured
    const std::string config(policy.config);
    CacheProblem cache(backend, config + ",budget=" + std::to_string(budget), sizes, no_end);
    cache.fill(sizes.kv_len);
    cache.find_passes();
    const winnow_cache_stats stats = cache.stats();
    figures.bytes = stats.bytes;

    AttentionSizes one = sizes;
    one.k_type = policy.k_type;
    one.v_type = policy.v_type;
    const uint64_t row = backend.row_bytes(one.k_type, one.head_size) + backend.row_bytes(one.v_type, one.head_size);
    const uint64_t rows = stats.k_bytes + stats.v_bytes + stats.dense_k_bytes + stats.dense_v_bytes;
    one.kv_len = static_cast<int64_t>(rows / (row * static_cast<uint64_t>(one.kv_heads)));
    const size_t formats = config.find(':'), v = config.find(",v=");
    const std::string of_one = config.substr(formats, config.find(',', v + 1) - formats); // k and v, which begin it
    CacheProblem one_store(backend, "none" + of_one + ",sink=0,residual=0", one, one.kv_len);
    one_store.fill(one.kv_len);
    Attention plain(backend, one);

    // Neighbours are compared.
    const std::vector<std::vector<double>> rounds = take_rounds({{[&] { cache.run_cadence(); }, true},
                                                                 {[&] { full.run(); }},
                                                                 {[&] { cache.attend(); }},
                                                                 {[&] { cache.attend_unobserved(); }},
                                                                 {[&] { cache.run_steps(0); }},
                                                                 {[&] { cache.run_steps(1); }},
                                                                 {[&] { one_store.attend(); }},
                                                                 {[&] { plain.run(); }}},
                                                                seconds);
    for (size_t i = 0; i < rounds.size(); ++i) {
        const std::vector<double>& times = rounds[i];
        const CacheProblem::Cadence& cadence = cache.cadences().at(i + 1); // the first was run before the rounds
        figures.step.push_back(cadence.steps / static_cast<double>(chunk));
        figures.of_full.push_back(figures.step.back() / times[1]);
        figures.attend_of_full.push_back(times[2] / times[1]);
        figures.importance.push_back(100 * (times[4] / times[5] - 1));
        figures.eviction.push_back(100 * cadence.evicting / cadence.steps);
        figures.segments.push_back(100 * (times[3] / times[6] - 1));
        figures.plain.push_back(100 * (times[3] / times[7] - 1));
        figures.worst.push_back(cadence.worst);
    }
}

nlohmann::json measure(const Options& options, Backend& backend, const Policy& policy, const AttentionSizes& sizes,
                       Attention& full) {
    Figures figures;
    for (int i = 0; i < builds; ++i) measure(backend, policy, sizes, full, options.seconds / builds, figures);
    const Quartiles step = quartiles(figures.step), worst = quartiles(figures.worst);
    const Quartiles of_full = quartiles(figures.of_full), attend = quartiles(figures.attend_of_full);
    const Quartiles importance = quartiles(figures.importance), eviction = quartiles(figures.eviction);
    const Quartiles segments = quartiles(figures.segments), plain = quartiles(figures.plain);
    print_row(
        {std::string(policy.name) + " G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) +
             " " + std::to_string(sizes.kv_len / 4) + "/" + std::to_string(sizes.kv_len),
         fixed(step.middle * 1e6, 1), with_spread(of_full, 3), with_spread(attend, 3),
         policy.has_importance ? with_spread(importance, 1) : "-", with_spread(eviction, 1), with_spread(segments, 1),
         with_spread(plain, 1), fixed(worst.middle, 1), std::to_string(figures.step.size())},
        width);
    return {{"policy", policy.config},
            {"group", sizes.group},
            {"head_size", sizes.head_size},
            {"context", sizes.kv_len},
            {"budget", sizes.kv_len / 4},
            {"bytes", figures.bytes},
            {"rounds", figures.step.size()},
            {"step_seconds", to_json(step)},
            {"step_of_full", to_json(of_full)},
            {"attend_of_full", to_json(attend)},
            {"importance_percent", to_json(importance)},
            {"eviction_percent", to_json(eviction)},
            {"segments_percent", to_json(segments)},
            {"plain_percent", to_json(plain)},
            {"worst_step", to_json(worst)}};
}

} // namespace

nlohmann::json bench_cache(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"cache: a decode step at 1/4 of a context", "us", "x full", "attend", "import. %", "evict %",
               "segments %", "plain %", "worst step", "rounds"},
              width);
    for (const AttentionSizes& sizes : sizes_of(options)) {
        Attention full(backend, sizes);
        for (const Policy& policy : policies) rows.push_back(measure(options, backend, policy, sizes, full));
    }
    return rows;
}

} // namespace winnow::bench
