// Architectures that are known, and the keys that give their shapes.
#include "model_shape.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "gguf_header.hpp"
#include "model_keys.hpp"
#include "recurrent_layers.hpp"

namespace winnow::tools {

namespace {

// Every layer attends over keys and values of its own, or over latent keys (MLA), of all tokens.
const std::set<std::string_view> plain = {
    "apertus",   "arcee",    "arctic",       "baichuan",   "bailingmoe",    "bitnet",         "bloom",
    "chameleon", "chatglm",  "codeshell",    "command-r",  "dbrx",          "deepseek",       "deepseek2",
    "dots1",     "ernie4_5", "ernie4_5-moe", "exaone",     "falcon",        "gemma",          "gpt2",
    "gptneox",   "granite",  "granitemoe",   "grovemoe",   "hunyuan-dense", "hunyuan-moe",    "internlm2",
    "jais",      "llama",    "maincoder",    "minicpm",    "minicpm3",      "mistral3",       "mpt",
    "nemotron",  "olmo",     "olmoe",        "openelm",    "orion",         "pangu-embedded", "phi2",
    "phi3",      "phimoe",   "plamo",        "plm",        "qwen",          "qwen2",          "qwen2moe",
    "qwen2vl",   "qwen3",    "qwen3moe",     "qwen3vl",    "qwen3vlmoe",    "refact",         "seed_oss",
    "smollm3",   "stablelm", "starcoder",    "starcoder2", "xverse",
};

// Some layers have a sliding window, and llama.cpp a smaller cache for them. All but each period-th one, unless the
// file says otherwise.
struct Windows {
    int64_t period;
    int64_t window;                  // where the file has none; 0: then there are no windows
    int64_t with_keys = most_layers; // first layers, with keys of their own; the others attend over the keys of these
};
const std::map<std::string_view, Windows> windowed = {
    {"cohere2", {4, 0}}, {"gemma2", {2, 4096}}, {"gemma3", {6, 0}}, {"gemma3n", {5, 0, 20}}, {"gpt-oss", {2, 0}}};

// What is said of an architecture whose cache stays in place, whole or in part, as in docs/models.md.
constexpr std::string_view in_place = "stays in place, Winnow saves nothing there";
constexpr std::string_view in_part = "stays in place in part, and winnow plan does not know how large that part is";
const std::map<std::string_view, std::string_view> unplanned = {
    {"deepseek32", in_part}, {"deepseek4", in_place}, {"dots3note", in_part}, {"glm-dsa", in_part},
    {"glm5-next", in_part},  {"grok", in_place},      {"hy_v4", in_part},     {"minimax-m3", in_place},
    {"qwen4exp", in_part},   {"t5", in_place},
};

class Shapes {
public:
    explicit Shapes(const GgufHeader& header) : keys_(header) {
        shape_.architecture = keys_.architecture();
        shape_.name = header.text("general.name").value_or("");
    }

    ModelShape read() {
        check_architecture();
        shape_.layers = keys_.one("block_count", 1, most_layers);
        if (keys_.has("context_length")) shape_.trained_context = keys_.one("context_length", 1, int64_t{1} << 40);
        const std::vector<int64_t> q_heads =
            keys_.of_layers("attention.head_count", shape_.layers, is_hybrid(shape_.architecture) ? 0 : 1, most_heads);
        const std::vector<int64_t> kv_heads =
            keys_.has("attention.head_count_kv")
                ? keys_.of_layers("attention.head_count_kv", shape_.layers, 0, most_heads)
                : q_heads;
        const LayerKinds kinds = layer_kinds(keys_, kv_heads);
        const std::vector<int64_t> windows = windows_of_layers();
        std::map<std::tuple<bool, int64_t>, LayerGroup> groups; // in the order of the first cache, then the windows'
        for (int64_t layer = 0; layer < shape_.layers; ++layer) {
            const auto at = static_cast<size_t>(layer);
            if (!kinds.attends[at] || layer >= layers_with_keys()) continue;
            check_heads(layer, q_heads[at], kv_heads[at]);
            LayerGroup& group = groups[{windows[at] != 0, kv_heads[at]}];
            if (group.layers.empty()) group = {{}, q_heads[at], kv_heads[at], 0, 0, windows[at], has_latent_keys()};
            if (group.q_heads != q_heads[at]) {
                keys_.fail("layers of " + std::to_string(kv_heads[at]) + " KV heads have " +
                           std::to_string(group.q_heads) + " and " + std::to_string(q_heads[at]) +
                           " query heads: their cache stays in place");
            }
            group.layers.push_back(layer);
        }
        if (groups.empty()) keys_.fail("no layer has keys and values");
        const int64_t k_size = head_size("attention.key_length", q_heads.front());
        const int64_t v_size = head_size("attention.value_length", q_heads.front());
        for (auto& [heads, group] : groups) {
            group.k_size = k_size;
            group.v_size = v_size;
            shape_.groups.push_back(std::move(group));
        }
        shape_.recurrent = recurrent_state(keys_, kinds, q_heads.front());
        return shape_;
    }

private:
    void check_architecture() const {
        const std::string& name = shape_.architecture;
        if (const auto found = unplanned.find(name); found != unplanned.end()) {
            keys_.fail("llama.cpp's cache of the architecture " + name + " " + std::string(found->second) +
                       " (docs/models.md says why)");
        }
        if (plain.count(name) || windowed.count(name) || is_hybrid(name)) return;
        std::string known;
        for (const auto& each : plain) known.append(known.empty() ? "" : ", ").append(each);
        for (const auto& each : windowed) known.append(", ").append(each.first);
        for (const std::string_view each : hybrids()) known.append(", ").append(each);
        keys_.fail("winnow plan does not know the cache of the architecture \"" + name + "\"; it knows " + known);
    }

    void check_heads(int64_t layer, int64_t q_heads, int64_t kv_heads) const {
        if (kv_heads == 0) {
            keys_.fail(keys_.full("attention.head_count_kv") + " is 0 in layer " + std::to_string(layer) +
                       ", and the architecture " + shape_.architecture + " has attention in every layer");
        }
        if (q_heads == 0 || q_heads % kv_heads != 0) {
            keys_.fail(std::to_string(q_heads) + " query heads and " + std::to_string(kv_heads) +
                       " KV heads in layer " + std::to_string(layer) + ", expected a multiple");
        }
    }

    // Latent attention (MLA) whose cache has keys alone: files that were made before llama.cpp had that lack the key.
    bool has_latent_keys() const { return keys_.has("attention.key_length_mla"); }

    int64_t head_size(const std::string& name, int64_t heads) const {
        if (keys_.has(name)) return keys_.one(name, 1, largest_width);
        const int64_t width = keys_.one("embedding_length", 1, largest_width);
        if (heads == 0 || width % heads != 0) {
            keys_.fail(keys_.full("embedding_length") + " is " + std::to_string(width) + ", no multiple of " +
                       std::to_string(heads) + " heads, and there is no " + keys_.full(name));
        }
        return width / heads;
    }

    int64_t layers_with_keys() const {
        const auto known = windowed.find(shape_.architecture);
        return known == windowed.end() ? shape_.layers : known->second.with_keys;
    }

    // 0 where a layer has none.
    std::vector<int64_t> windows_of_layers() const {
        std::vector<int64_t> windows(static_cast<size_t>(shape_.layers), 0);
        const auto known = windowed.find(shape_.architecture);
        if (known == windowed.end()) return windows;
        const std::string length = "attention.sliding_window", pattern = "attention.sliding_window_pattern";
        int64_t window = known->second.window;
        if (keys_.has(length)) window = keys_.one(length, 0, int64_t{1} << 32);
        if (keys_.is_list(pattern)) {
            const std::vector<int64_t> has_window = keys_.of_layers(pattern, shape_.layers, 0, 1);
            for (size_t i = 0; i < windows.size(); ++i) windows[i] = has_window[i] != 0 ? window : 0;
            return windows;
        }
        const int64_t period = keys_.has(pattern) ? keys_.one(pattern, 0, most_layers) : known->second.period;
        for (size_t i = 0; i < windows.size(); ++i) {
            const auto layer = static_cast<int64_t>(i);
            if (period == 0 || layer % period != period - 1) windows[i] = window;
        }
        return windows;
    }

    ModelKeys keys_;
    ModelShape shape_;
};

int64_t padded(int64_t cells) { return (cells + 255) / 256 * 256; }

} // namespace

ModelShape read_shape(const GgufHeader& header) { return Shapes(header).read(); }

int64_t cells_of(const LayerGroup& group, int64_t context, int64_t ubatch) {
    const int64_t cells = padded(context);
    return group.window == 0 ? cells : padded(std::min(cells, group.window + ubatch));
}

} // namespace winnow::tools
