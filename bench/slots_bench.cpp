// The kernels on slots (slot_append, slot_accumulate, slot_scores, slot_edit, slot_copy, slot_compact, slot_evict,
// slot_zero) through the calls of a cache that launch them, against copying as many bytes as they have to read. What
// else such a call does is done without them in the same turns, and its time is taken off.
#include <cstring>
#include <optional>
#include <vector>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t chunk = 32; // tokens that are handed over at once

// A layer with `tokens` tokens in sequence 0, and room for a copy in sequence 1.
class Slots {
public:
    Slots(Backend& backend, const std::string& policy, const AttentionSizes& sizes, const std::string& more = "")
        : backend_(backend), sizes_(sizes), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * chunk * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * chunk * sizes.head_size),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * chunk * sizes.head_size),
          scores_(backend, WINNOW_TYPE_F32, sizes.q_heads() * chunk * (sizes.kv_len + 2 * chunk)) {
        const std::string config = policy + ":k=" + type_name(sizes.k_type) + ",v=" + type_name(sizes.v_type) +
                                   ",sink=0,residual=0,budget=" + std::to_string(sizes.kv_len) + more;
        winnow_cache_desc desc = layer_of(sizes, config, int64_t{1} << 29);
        desc.max_sequences = 2;
        cache_ = backend.make_cache(desc);
        for (int64_t begin = 0; begin < sizes.kv_len; begin += chunk) append(0);
    }
    ~Slots() { backend_.destroy(cache_); }
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;

    void append(int64_t sequence) {
        const winnow_cache_entry entry = entry_of(sequence);
        winnow_cache_step_desc desc = step(entry);
        const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, chunk, sizes_.head_size);
        desc.k = desc.v = &kv;
        backend_.run(cache_, desc);
    }
    // A chunk of queries, of which so many count for the importance.
    void attend(int64_t counted_queries, bool wants_scores = false) {
        winnow_cache_entry entry = entry_of(0);
        winnow_cache_step_desc desc = step(entry);
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), chunk, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), chunk, sizes_.head_size);
        const winnow_tensor scores = scores_.tensor(1, sizes_.q_heads(), chunk, sizes_.kv_len + chunk);
        desc.q = &q;
        desc.out = &out;
        entry.draft_tokens = chunk - counted_queries;
        if (wants_scores) entry.scores_out = &scores;
        backend_.run(cache_, desc);
    }
    void copy() { backend_.copy(cache_, 0, 1); }
    void remove_half() { backend_.remove(cache_, 1, 0, sizes_.kv_len / 2); }
    void shift_there_and_back() {
        backend_.shift(cache_, 0, 1);
        backend_.shift(cache_, 0, -1);
    }

    winnow_cache_stats stats() { return backend_.stats(cache_); }

private:
    static winnow_cache_entry entry_of(int64_t sequence) {
        winnow_cache_entry entry{};
        entry.struct_size = sizeof entry;
        entry.sequence = sequence;
        entry.count = chunk;
        return entry;
    }
    static winnow_cache_step_desc step(const winnow_cache_entry& entry) {
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.entries = &entry;
        desc.entry_count = 1;
        desc.entry_stride = sizeof entry;
        return desc;
    }

    Backend& backend_;
    AttentionSizes sizes_;
    Memory q_, kv_, out_, scores_;
    winnow_cache* cache_ = nullptr;
};

// One of the kernels: a call that launches it, and what else the call does. Neither may change what the next one finds.
struct Row {
    const char* name;
    uint64_t bytes; // that the kernel has to read
    std::function<void()> run, without;
};

void measure(const Options& options, Backend& backend, const AttentionSizes& sizes, nlohmann::json& rows) {
    Slots watching(backend, "h2o", sizes), forgetting(backend, "window", sizes);
    const winnow_cache_stats held = watching.stats();
    const uint64_t stored = held.k_bytes + held.v_bytes, maps = held.slot_map_bytes;
    const auto tokens = static_cast<uint64_t>(sizes.kv_len);
    const uint64_t scores = static_cast<uint64_t>(sizes.q_heads() * chunk) * tokens * sizeof(float);
    const uint64_t chunk_of_rows = stored / tokens * chunk;
    const std::function<void()> nothing = [] {}, copy = [&] { watching.copy(); };
    std::vector<Row> all = {
        {"slot_copy", stored, copy, nothing},
        {"slot_append, slot_evict: 32 tokens", chunk_of_rows + maps, [&] { forgetting.append(0); }, nothing},
        {"slot_edit, slot_compact: 1/2 removed", maps + stored / 2, [&] { copy(), watching.remove_half(); }, copy},
        {"slot_edit: shift, there and back", 2 * maps, [&] { watching.shift_there_and_back(); }, nothing},
        {"slot_accumulate: 32 queries", scores, [&] { watching.attend(chunk); }, [&] { watching.attend(0); }},
        {"slot_scores: 32 queries", scores, [&] { watching.attend(0, true); }, [&] { watching.attend(0); }}};
    std::optional<Slots> zeroing; // every chunk; rows that are packed are not zeroed
    if (sizes.k_type <= WINNOW_TYPE_BF16 && sizes.v_type <= WINNOW_TYPE_BF16) {
        zeroing.emplace(backend, "window", sizes, ",elastic=sweet,zero_every=32,zero_after=0");
        all.push_back({"slot_zero: all rows", stored, [&] { zeroing->append(0); }, [&] { forgetting.append(0); }});
    }
    for (const Row& each : all) {
        std::vector<char> from(each.bytes, 1), to(each.bytes);
        const std::vector<double> seconds = take_turns(
            {each.run, each.without, [&] { std::memcpy(to.data(), from.data(), each.bytes); }}, options.seconds);
        const double time = seconds[0] - seconds[1];
        print_row({std::string(each.name) + " of " + std::to_string(sizes.kv_len), fixed(time * 1e6, 1),
                   time > 0 ? fixed(static_cast<double>(each.bytes) / time / 1e9, 2) : "-",
                   time > 0 ? fixed(seconds[2] / time, 2) : "-"}); // a difference may be less than the noise
        rows.push_back({{"operation", each.name},
                        {"k_type", type_name(sizes.k_type)},
                        {"v_type", type_name(sizes.v_type)},
                        {"head_size", sizes.head_size},
                        {"group", sizes.group},
                        {"tokens", sizes.kv_len},
                        {"bytes", each.bytes},
                        {"seconds", time},
                        {"memcpy_seconds", seconds[2]}});
    }
}

} // namespace

nlohmann::json bench_slots(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& [k, v] : options.formats)
        for (const int64_t head_size : options.head_sizes)
            for (const int64_t keys : options.key_counts) {
                print_row({"slots: " + type_names(k, v) + " D=" + std::to_string(head_size), "us", "GB/s", "x memcpy"});
                measure(options, backend, {options.kv_heads, options.groups.front(), chunk, keys, head_size, k, v},
                        rows);
            }
    return rows;
}

} // namespace winnow::bench
