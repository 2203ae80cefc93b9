// What a server gains by one step for the sequences of several users, over a step for each: one token of each sequence
// comes and attends, in one layer. All steps are enqueued before the host waits.
#include <algorithm>
#include <array>
#include <string>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t sequences = 8;
constexpr int width = 15; // of the table's columns

class Users {
public:
    Users(Backend& backend, const AttentionSizes& sizes, const std::string& config)
        : backend_(backend), sizes_(sizes), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sequences * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * chunk * sizes.head_size),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sequences * sizes.head_size) {
        winnow_cache_desc desc = layer_of(sizes, config, int64_t{1} << 29); // so that it can go on
        desc.max_sequences = sequences;
        cache_ = backend.make_cache(desc);
        for (int64_t sequence = 0; sequence < sequences; ++sequence)
            for (int64_t begin = 0; begin < sizes.kv_len; begin += chunk)
                append(sequence, std::min(chunk, sizes.kv_len - begin));
    }
    ~Users() { backend_.destroy(cache_); }
    Users(const Users&) = delete;
    Users& operator=(const Users&) = delete;

    void step_together() {
        std::array<winnow_cache_entry, sequences> entries{};
        for (int64_t at = 0; at < sequences; ++at) entries[static_cast<size_t>(at)] = entry(at);
        decode(entries.data(), sequences);
        backend_.finish();
    }
    void step_alone() {
        for (int64_t at = 0; at < sequences; ++at) {
            const winnow_cache_entry one = entry(at);
            decode(&one, 1);
        }
        backend_.finish();
    }
    uint64_t launches() { return backend_.launches(); }

private:
    static constexpr int64_t chunk = 32;

    static winnow_cache_entry entry(int64_t sequence) {
        winnow_cache_entry one{};
        one.struct_size = sizeof one;
        one.sequence = one.first = sequence;
        one.count = 1;
        return one;
    }
    static winnow_cache_step_desc step(const winnow_cache_entry* entries, uint64_t count) {
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.entries = entries;
        desc.entry_count = count;
        desc.entry_stride = sizeof *entries;
        return desc;
    }
    void append(int64_t sequence, int64_t tokens) {
        const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
        winnow_cache_entry one{};
        one.struct_size = sizeof one;
        one.sequence = sequence;
        one.count = tokens;
        winnow_cache_step_desc desc = step(&one, 1);
        desc.k = desc.v = &kv;
        backend_.run(cache_, desc);
    }
    void decode(const winnow_cache_entry* entries, uint64_t count) {
        const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, sequences, sizes_.head_size);
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), sequences, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), sequences, sizes_.head_size);
        winnow_cache_step_desc desc = step(entries, count);
        desc.k = desc.v = &kv;
        desc.q = &q;
        desc.out = &out;
        backend_.enqueue(cache_, desc);
    }

    Backend& backend_;
    AttentionSizes sizes_;
    Memory q_, kv_, out_;
    winnow_cache* cache_ = nullptr;
};

} // namespace

nlohmann::json bench_sequences(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"sequences: " + std::to_string(sequences) + " with a token each, one layer", "together, us", "alone, us",
               "ratio", "launches"},
              width);
    std::vector<AttentionSizes> all = sizes_of(options);
    for (const int64_t keys : {256, 2048})
        all.push_back({3, 3, 1, keys, 64, WINNOW_TYPE_F16, WINNOW_TYPE_F16}); // SmolLM2
    for (const AttentionSizes& sizes : all)
        for (const char* policy : {"window", "winnow"}) { // without scores, and with them
            const std::string config = policy + (":budget=" + std::to_string(sizes.kv_len));
            Users users(backend, sizes, config);
            users.step_together(); // compiles
            users.step_alone();
            const uint64_t before = users.launches();
            users.step_together();
            const uint64_t launches = users.launches() - before;
            const std::vector<double> times =
                take_turns({[&] { users.step_together(); }, [&] { users.step_alone(); }}, options.seconds);
            const std::string name = config + " KV=" + std::to_string(sizes.kv_heads) +
                                     " G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) +
                                     " " + std::to_string(sizes.kv_len);
            print_row({name, fixed(times[0] * 1e6, 1), fixed(times[1] * 1e6, 1), fixed(times[0] / times[1], 2),
                       std::to_string(launches)},
                      width);
            rows.push_back({{"config", config},
                            {"kv_heads", sizes.kv_heads},
                            {"group", sizes.group},
                            {"head_size", sizes.head_size},
                            {"keys", sizes.kv_len},
                            {"together_seconds", times[0]},
                            {"alone_seconds", times[1]},
                            {"launches", launches}});
        }
    return rows;
}

} // namespace winnow::bench
