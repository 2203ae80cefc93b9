// Architectures that are known, and the keys that give their shapes.
#include "model_shape.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "gguf_header.hpp"

namespace winnow::tools {

namespace {

constexpr int64_t most_layers = 512; // llama.cpp's own limit
constexpr int64_t most_heads = 65536, largest_width = 1 << 24;

// Every layer attends over keys and values of its own, of all tokens.
const std::set<std::string_view> plain = {
    "apertus",    "arcee",        "arctic",    "baichuan",       "bailingmoe",  "bitnet",    "bloom",
    "chameleon",  "chatglm",      "codeshell", "command-r",      "dbrx",        "deepseek",  "dots1",
    "ernie4_5",   "ernie4_5-moe", "exaone",    "falcon",         "gemma",       "gpt2",      "gptneox",
    "granite",    "granitemoe",   "grovemoe",  "hunyuan-dense",  "hunyuan-moe", "internlm2", "jais",
    "llama",      "maincoder",    "minicpm",   "mistral3",       "mpt",         "nemotron",  "olmo",
    "olmoe",      "openelm",      "orion",     "pangu-embedded", "phi2",        "phi3",      "phimoe",
    "plamo",      "qwen",         "qwen2",     "qwen2moe",       "qwen2vl",     "qwen3",     "qwen3moe",
    "qwen3vl",    "qwen3vlmoe",   "refact",    "seed_oss",       "smollm3",     "stablelm",  "starcoder",
    "starcoder2", "xverse",
};

// Some layers have a sliding window, and llama.cpp a smaller cache for them. All but each period-th one, unless the
// file says otherwise.
struct Windows {
    int64_t period;
    int64_t window; // where the file has none; 0: then there are no windows
};
const std::map<std::string_view, Windows> windowed = {
    {"cohere2", {4, 0}}, {"gemma2", {2, 4096}}, {"gemma3", {6, 0}}, {"gpt-oss", {2, 0}}};

// hosts/ggml/README.md says why.
const std::set<std::string_view> in_place = {"grok",  "t5",        "gemma3n",   "deepseek32", "dots3note", "glm-dsa",
                                             "hy_v4", "deepseek4", "glm5-next", "minimax-m3", "qwen4exp"};

class Shapes {
public:
    explicit Shapes(const GgufHeader& header) : header_(header) {
        const auto architecture = header.text("general.architecture");
        if (!architecture) fail("there is no general.architecture, expected the metadata of a model");
        shape_.architecture = *architecture;
        shape_.name = header.text("general.name").value_or("");
    }

    ModelShape read() {
        check_architecture();
        shape_.layers = one("block_count", 1, most_layers);
        if (header_.has(key("context_length"))) shape_.trained_context = one("context_length", 1, int64_t{1} << 40);
        const std::vector<int64_t> q_heads = of_layers("attention.head_count", {});
        const std::vector<int64_t> kv_heads = of_layers("attention.head_count_kv", q_heads);
        const int64_t k_size = head_size("attention.key_length", q_heads.front());
        const int64_t v_size = head_size("attention.value_length", q_heads.front());
        const std::vector<int64_t> windows = windows_of_layers();
        std::map<std::tuple<bool, int64_t>, LayerGroup> groups; // in the order of the first cache, then the windows'
        for (int64_t layer = 0; layer < shape_.layers; ++layer) {
            const auto at = static_cast<size_t>(layer);
            if (kv_heads[at] == 0) {
                fail(key("attention.head_count_kv") + " is 0 in layer " + std::to_string(layer) +
                     ": a hybrid model, whose caches winnow plan does not know");
            }
            LayerGroup& group = groups[{windows[at] != 0, kv_heads[at]}];
            if (group.layers.empty()) group = {{}, q_heads[at], kv_heads[at], k_size, v_size, windows[at]};
            if (q_heads[at] % kv_heads[at] != 0) {
                fail(std::to_string(q_heads[at]) + " query heads and " + std::to_string(kv_heads[at]) +
                     " KV heads in layer " + std::to_string(layer) + ", expected a multiple");
            }
            if (group.q_heads != q_heads[at]) {
                fail("layers of " + std::to_string(kv_heads[at]) + " KV heads have " + std::to_string(group.q_heads) +
                     " and " + std::to_string(q_heads[at]) + " query heads: their cache stays in place");
            }
            group.layers.push_back(layer);
        }
        for (auto& [heads, group] : groups) shape_.groups.push_back(std::move(group));
        return shape_;
    }

private:
    [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(header_.path() + ": " + what); }

    std::string key(const std::string& name) const { return shape_.architecture + '.' + name; }

    void check_architecture() const {
        const std::string& name = shape_.architecture;
        if (in_place.count(name)) {
            fail("llama.cpp's cache of the architecture " + name +
                 " stays in place, Winnow saves nothing there (hosts/ggml/README.md says why)");
        }
        if (header_.has(key("attention.kv_lora_rank"))) {
            fail("latent attention (MLA, " + key("attention.kv_lora_rank") + "): its cache has no keys and values " +
                 "of heads, and winnow plan does not know its bytes");
        }
        if (header_.has_prefix(key("ssm.")) || header_.has_prefix(key("wkv."))) {
            fail("the architecture " + name + " is recurrent or hybrid, and winnow plan does not know its caches");
        }
        if (!plain.count(name) && !windowed.count(name)) {
            std::string known;
            for (const auto& each : plain) known.append(known.empty() ? "" : ", ").append(each);
            for (const auto& each : windowed) known.append(", ").append(each.first);
            fail("winnow plan does not know the cache of the architecture \"" + name + "\"; it knows " + known);
        }
    }

    int64_t checked(const std::string& name, int64_t value, int64_t least, int64_t most) const {
        if (value < least || value > most) {
            fail(key(name) + " is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
                 std::to_string(most));
        }
        return value;
    }

    int64_t one(const std::string& name, int64_t least, int64_t most) const {
        const auto found = header_.integer(key(name));
        if (!found) fail("there is no " + key(name));
        return checked(name, *found, least, most);
    }

    // A number for all layers, or one for each. Where the key is missing: the default, unless it is empty.
    std::vector<int64_t> of_layers(const std::string& name, const std::vector<int64_t>& otherwise) const {
        if (!header_.has(key(name))) {
            if (otherwise.empty()) fail("there is no " + key(name));
            return otherwise;
        }
        const int64_t least = otherwise.empty() ? 1 : 0;
        if (!header_.is_array(key(name))) {
            return std::vector<int64_t>(static_cast<size_t>(shape_.layers), one(name, least, most_heads));
        }
        std::vector<int64_t> found = *header_.integers(key(name));
        if (static_cast<int64_t>(found.size()) != shape_.layers) {
            fail(key(name) + " has " + std::to_string(found.size()) + " numbers, expected one for each of " +
                 std::to_string(shape_.layers) + " layers");
        }
        for (const int64_t each : found) checked(name, each, least, most_heads);
        return found;
    }

    int64_t head_size(const std::string& name, int64_t heads) const {
        if (header_.has(key(name))) return one(name, 1, largest_width);
        const int64_t width = one("embedding_length", 1, largest_width);
        if (width % heads != 0) {
            fail(key("embedding_length") + " is " + std::to_string(width) + ", no multiple of " +
                 std::to_string(heads) + " heads, and there is no " + key(name));
        }
        return width / heads;
    }

    // 0 where a layer has none.
    std::vector<int64_t> windows_of_layers() const {
        std::vector<int64_t> windows(static_cast<size_t>(shape_.layers), 0);
        const auto known = windowed.find(shape_.architecture);
        if (known == windowed.end()) return windows;
        const std::string length = "attention.sliding_window", pattern = "attention.sliding_window_pattern";
        int64_t window = known->second.window;
        if (header_.has(key(length))) window = one(length, 0, int64_t{1} << 32);
        if (header_.is_array(key(pattern))) {
            const std::vector<int64_t> has_window = *header_.integers(key(pattern));
            if (has_window.size() != windows.size()) {
                fail(key(pattern) + " has " + std::to_string(has_window.size()) +
                     " entries, expected one for each of " + std::to_string(shape_.layers) + " layers");
            }
            for (size_t i = 0; i < windows.size(); ++i) windows[i] = has_window[i] != 0 ? window : 0;
            return windows;
        }
        const int64_t period = header_.has(key(pattern)) ? one(pattern, 0, most_layers) : known->second.period;
        for (size_t i = 0; i < windows.size(); ++i) {
            const auto layer = static_cast<int64_t>(i);
            if (period == 0 || layer % period != period - 1) windows[i] = window;
        }
        return windows;
    }

    const GgufHeader& header_;
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
