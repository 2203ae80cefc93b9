// As llama.cpp divides the layers of a hybrid model between its two caches, and sizes the state of one sequence.
#include "recurrent_layers.hpp"

#include <algorithm>
#include <map>

#include "model_keys.hpp"

namespace winnow::tools {

namespace {

// What tells a recurrent layer.
enum class Sign {
    no_kv_heads,            // no KV heads
    no_kv_heads_no_forward, // nor a feed-forward part: with one the layer is neither
    every_layer,            // all are, and attend as well
    period,                 // a list, or all but each period-th
};

const std::map<std::string_view, Sign> signs = {
    {"falcon-h1", Sign::every_layer},
    {"granitehybrid", Sign::no_kv_heads},
    {"jamba", Sign::no_kv_heads},
    {"kimi-linear", Sign::no_kv_heads},
    {"lfm2", Sign::no_kv_heads},
    {"lfm2moe", Sign::no_kv_heads},
    {"nemotron_h", Sign::no_kv_heads_no_forward},
    {"nemotron_h_moe", Sign::no_kv_heads_no_forward},
    {"plamo2", Sign::no_kv_heads},
    {"qwen35", Sign::period},
    {"qwen35moe", Sign::period},
    {"qwen3next", Sign::period},
};

constexpr int64_t usual_period = 4;

int64_t or_zero(const ModelKeys& keys, const std::string& name) {
    return keys.has(name) ? keys.one(name, 0, largest_width) : 0;
}

std::vector<int64_t> recurrent_by_period(const ModelKeys& keys, int64_t layers) {
    if (keys.has("attention.recurrent_layers")) return keys.of_layers("attention.recurrent_layers", layers, 0, 1);
    const std::string name = "full_attention_interval";
    const int64_t period = keys.has(name) ? keys.one(name, 1, most_layers) : usual_period;
    std::vector<int64_t> recurs;
    for (int64_t layer = 0; layer < layers; ++layer) recurs.push_back((layer + 1) % period != 0);
    return recurs;
}

// Elements of a layer's state.
int64_t elements(const ModelKeys& keys, int64_t q_heads) {
    if (const int64_t length = or_zero(keys, "shortconv.l_cache"); length != 0)
        return (length - 1) * keys.one("embedding_length", 1, largest_width);
    const int64_t kernel = or_zero(keys, "ssm.conv_kernel");
    if (const int64_t size = or_zero(keys, "kda.head_dim"); size != 0) // convolutions of queries, keys and values
        return 3 * (kernel > 0 ? kernel - 1 : 3) * q_heads * size + size * size * q_heads;
    const int64_t inner = keys.one("ssm.inner_size", 1, largest_width),
                  state = keys.one("ssm.state_size", 1, largest_width), groups = or_zero(keys, "ssm.group_count");
    return std::max<int64_t>(kernel - 1, 0) * (inner + 2 * groups * state) + state * inner;
}

} // namespace

bool is_hybrid(const std::string& architecture) { return signs.count(architecture) != 0; }

std::vector<std::string_view> hybrids() {
    std::vector<std::string_view> names;
    names.reserve(signs.size());
    for (const auto& each : signs) names.push_back(each.first);
    return names;
}

LayerKinds layer_kinds(const ModelKeys& keys, const std::vector<int64_t>& kv_heads) {
    const auto layers = static_cast<int64_t>(kv_heads.size());
    LayerKinds kinds{std::vector<bool>(kv_heads.size(), true), std::vector<bool>(kv_heads.size(), false)};
    const auto sign = signs.find(keys.architecture());
    if (sign == signs.end()) return kinds;
    if (sign->second == Sign::no_kv_heads && or_zero(keys, "attention.sliding_window") != 0)
        keys.fail("a hybrid model whose attention has windows, which winnow plan does not know");
    const std::vector<int64_t> by_period =
        sign->second == Sign::period ? recurrent_by_period(keys, layers) : std::vector<int64_t>{};
    const std::vector<int64_t> forward = sign->second == Sign::no_kv_heads_no_forward
                                             ? keys.of_layers("feed_forward_length", layers, 0, largest_width)
                                             : std::vector<int64_t>{};
    // Layers at the end that predict further tokens are in no cache of the model itself.
    const int64_t predicting = or_zero(keys, "nextn_predict_layers");
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        bool attends = kv_heads[at] != 0, recurs = !attends;
        if (sign->second == Sign::every_layer) recurs = true;
        if (sign->second == Sign::period) attends = !(recurs = by_period[at] != 0);
        if (!forward.empty() && forward[at] != 0) attends = recurs = false;
        kinds.attends[at] = attends && layer < layers - predicting;
        kinds.recurs[at] = recurs && layer < layers - predicting;
    }
    return kinds;
}

RecurrentState recurrent_state(const ModelKeys& keys, const LayerKinds& kinds, int64_t q_heads) {
    RecurrentState state;
    state.layers = std::count(kinds.recurs.begin(), kinds.recurs.end(), true);
    if (state.layers != 0) state.bytes = static_cast<uint64_t>(state.layers * elements(keys, q_heads)) * sizeof(float);
    return state;
}

} // namespace winnow::tools
