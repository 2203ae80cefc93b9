// A query of decoding under recall, which scores all signatures (page_sign made them), picks pages (page_pick) and
// attends to them, against a query over the whole packed cache. The columns: microseconds of the whole, of recall with
// a budget of 1/16 and signatures of signs, and of codes, and how many times as fast these two are; minima of turns.
// The context is as long as there are keys: of a longer one the budget would hold more of them.
#include <algorithm>

#include "../tests/made_codebooks.hpp"
#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t chunk = 32; // tokens that are handed over at once

class Layer {
public:
    Layer(Backend& backend, const std::string& config, const AttentionSizes& sizes)
        : backend_(backend), sizes_(sizes), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.head_size),
          kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * chunk * sizes.head_size),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.head_size) {
        winnow_cache_desc desc = layer_of(sizes, config, sizes.kv_len);
        const std::vector<uint8_t> codebooks = made_codebooks(1, sizes.kv_heads, sizes.head_size);
        desc.codebooks = codebooks.data();
        desc.codebooks_size = codebooks.size();
        cache_ = backend.make_cache(desc);
        for (int64_t begin = 0; begin < sizes.kv_len; begin += chunk) append(std::min(chunk, sizes.kv_len - begin));
    }
    ~Layer() { backend_.destroy(cache_); }
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;

    void append(int64_t tokens) {
        winnow_cache_step_desc desc = step();
        const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
        desc.k = desc.v = &kv;
        backend_.run(cache_, desc);
    }
    void attend() {
        winnow_cache_step_desc desc = step();
        const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), 1, sizes_.head_size);
        const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), 1, sizes_.head_size);
        desc.q = &q;
        desc.out = &out;
        backend_.run(cache_, desc);
    }

private:
    static winnow_cache_step_desc step() {
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        return desc;
    }

    Backend& backend_;
    AttentionSizes sizes_;
    Memory q_, kv_, out_;
    winnow_cache* cache_ = nullptr;
};

} // namespace

nlohmann::json bench_recall(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    for (const AttentionSizes& sizes : sizes_of(options, WINNOW_TYPE_TURBO4, WINNOW_TYPE_TURBO3)) {
        Layer whole(backend, "winnow", sizes), signs(backend, "winnow:budget=1/16,recall=host", sizes),
            codes(backend, "winnow:budget=1/16,recall=host,signature=codes", sizes);
        const std::vector<double> seconds =
            take_turns({[&] { whole.attend(); }, [&] { signs.attend(); }, [&] { codes.attend(); }}, options.seconds);
        print_row({"page_pick: G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) + " of " +
                       std::to_string(sizes.kv_len),
                   fixed(seconds[0] * 1e6, 1), fixed(seconds[1] * 1e6, 1), fixed(seconds[2] * 1e6, 1),
                   fixed(seconds[0] / seconds[1], 2), fixed(seconds[0] / seconds[2], 2)});
        rows.push_back({{"operation", "page_pick, page_sign"},
                        {"head_size", sizes.head_size},
                        {"group", sizes.group},
                        {"tokens", sizes.kv_len},
                        {"whole_seconds", seconds[0]},
                        {"recall_seconds", seconds[1]},
                        {"codes_seconds", seconds[2]}});
    }
    return rows;
}

} // namespace winnow::bench
