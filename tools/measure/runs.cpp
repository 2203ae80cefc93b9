// A context of llama.cpp for each run: made, fed, read and freed.
#include "runs.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

namespace winnow::measure {

namespace {

using nlohmann::json;

constexpr std::array<std::pair<const char*, ggml_type>, 9> cache_types{{{"f32", GGML_TYPE_F32},
                                                                        {"f16", GGML_TYPE_F16},
                                                                        {"bf16", GGML_TYPE_BF16},
                                                                        {"q8_0", GGML_TYPE_Q8_0},
                                                                        {"q5_1", GGML_TYPE_Q5_1},
                                                                        {"q5_0", GGML_TYPE_Q5_0},
                                                                        {"q4_1", GGML_TYPE_Q4_1},
                                                                        {"q4_0", GGML_TYPE_Q4_0},
                                                                        {"iq4_nl", GGML_TYPE_IQ4_NL}}};

ggml_type type_of(const std::string& name) {
    const auto* const found =
        std::find_if(cache_types.begin(), cache_types.end(), [&](const auto& type) { return name == type.first; });
    if (found == cache_types.end()) throw std::runtime_error("\"" + name + "\" is no type of a cache");
    return found->second;
}

// Variables that are set for as long as a run lasts.
class Environment {
public:
    explicit Environment(const std::map<std::string, std::optional<std::string>>& variables) {
        for (const auto& [name, value] : variables) {
            const char* before = std::getenv(name.c_str());
            before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
            set(name, value);
        }
    }
    ~Environment() {
        for (const auto& [name, value] : before_) set(name, value);
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    static void set(const std::string& name, const std::optional<std::string>& value) {
        if (value)
            setenv(name.c_str(), value->c_str(), 1);
        else
            unsetenv(name.c_str());
    }
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

class Batch {
public:
    Batch(const LlamaApi& api, uint32_t tokens)
        : api_(api), batch_(api.batch_init(static_cast<int32_t>(tokens), 0, 1)) {}
    ~Batch() { api_.batch_free(batch_); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    void clear() { batch_.n_tokens = 0; }
    void add(llama_token token, size_t position, bool has_logits) {
        const int32_t at = batch_.n_tokens++;
        batch_.token[at] = token;
        batch_.pos[at] = static_cast<llama_pos>(position);
        batch_.n_seq_id[at] = 1;
        batch_.seq_id[at][0] = 0;
        batch_.logits[at] = has_logits;
    }
    const llama_batch& get() const { return batch_; }

private:
    const LlamaApi& api_;
    llama_batch batch_;
};

std::string text_of_report(const Plugin& plugin) {
    std::string text(plugin.report(nullptr, 0) + 1, '\0');
    text.resize(plugin.report(text.data(), text.size()));
    return text;
}

json last_of(const json& array, size_t from) {
    json some = json::array();
    for (size_t i = from; i < array.size(); ++i) some.push_back(array[i]);
    return some;
}

} // namespace

Configuration to_configuration(const nlohmann::json& json) {
    Configuration configuration;
    try {
        configuration.is_winnow = json.at("backend").get<std::string>() == "winnow";
        configuration.k_type = json.at("k").get<std::string>();
        configuration.v_type = json.at("v").get<std::string>();
        configuration.kv = json.at("kv").get<std::string>();
        for (const auto& [name, value] : json.at("environment").items())
            configuration.environment[name] =
                value.is_null() ? std::nullopt : std::optional<std::string>(value.get<std::string>());
    } catch (const nlohmann::json::exception& error) {
        throw std::runtime_error(std::string("no configuration: ") + error.what());
    }
    return configuration;
}

Runs::Runs(const LlamaApi& api, const std::string& model, const std::string& plugin, const std::string& text,
           const Sizes& sizes)
    : api_(api), path_(model), sizes_(sizes), plugin_(load_plugin(api, plugin)), winnow_(nullptr, FreeModel{&api}),
      plain_(nullptr, FreeModel{&api}) {
    vocab_ = api.model_get_vocab(model_for(true));
    vocabulary_ = static_cast<size_t>(api.vocab_n_tokens(vocab_));
    text_ = tokens_of(api, vocab_, text);
}

llama_model* Runs::model_for(bool is_winnow) {
    Model& model = is_winnow ? winnow_ : plain_;
    if (!model) model = load_model(api_, path_, is_winnow ? plugin_.device : nullptr);
    return model.get();
}

std::vector<llama_token> Runs::tokens_of_context(size_t context) const {
    if (context >= contexts()) {
        throw std::runtime_error("the text has " + std::to_string(contexts()) + " contexts of " +
                                 std::to_string(sizes_.context) + " tokens, context " + std::to_string(context) +
                                 " was asked for");
    }
    const auto begin = text_.begin() + static_cast<ptrdiff_t>(context * sizes_.context);
    std::vector<llama_token> tokens(begin, begin + static_cast<ptrdiff_t>(sizes_.context));
    if (api_.vocab_get_add_bos(vocab_)) tokens.front() = api_.vocab_bos(vocab_);
    return tokens;
}

Result Runs::run(const Configuration& configuration, size_t context, bool as_base) {
    const std::vector<llama_token> tokens = tokens_of_context(context);
    if (!as_base && base_context_ != context)
        throw std::runtime_error("no base of context " + std::to_string(context) + " to compare with");
    const Environment environment(configuration.environment);
    new_in_report(); // what a run before this one left that failed is not this one's
    take_log();
    std::array<char, 1024> message{};
    if (plugin_.set_kv(configuration.kv.c_str(), message.data(), message.size()) != 0)
        throw std::runtime_error(message.data());
    llama_context_params params = api_.context_default_params();
    params.n_ctx = static_cast<uint32_t>(sizes_.context);
    params.n_batch = sizes_.batch;
    params.n_ubatch = sizes_.ubatch;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = static_cast<int32_t>(sizes_.threads);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = false; // caches of windows are as large as those need, as in llama.cpp's own programs
    params.type_k = type_of(configuration.k_type);
    params.type_v = type_of(configuration.v_type);
    const auto free = [&](llama_context* made) { api_.free(made); };
    std::unique_ptr<llama_context, decltype(free)> made(
        api_.init_from_model(model_for(configuration.is_winnow), params), free);
    if (!made) throw std::runtime_error("llama.cpp makes no context");
    Result result;
    if (as_base) {
        base_context_.reset();
        base_.clear();
        base_.reserve((sizes_.context - std::min(sizes_.context, sizes_.first_scored)) * vocabulary_);
    }
    decode(made.get(), tokens, as_base, result);
    if (as_base) base_context_ = context;
    made.reset(); // and so it is in the report
    result.report = new_in_report();
    result.log = take_log();
    return result;
}

void Runs::decode(llama_context* context, const std::vector<llama_token>& tokens, bool as_base, Result& result) {
    using Clock = std::chrono::steady_clock;
    Batch batch(api_, sizes_.batch);
    size_t scored = 0;
    for (size_t begin = 0; begin < tokens.size(); begin += sizes_.batch) {
        const size_t end = std::min(tokens.size(), begin + sizes_.batch);
        batch.clear();
        std::vector<int32_t> next;
        for (size_t position = begin; position < end; ++position) {
            const bool is_scored = position >= sizes_.first_scored && position + 1 < tokens.size();
            batch.add(tokens[position], position, is_scored);
            if (is_scored) next.push_back(tokens[position + 1]);
        }
        const auto start = Clock::now();
        const int status = api_.decode(context, batch.get());
        api_.synchronize(context);
        result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
        if (status != 0) throw std::runtime_error("llama_decode returned " + std::to_string(status));
        if (next.empty()) continue;
        const float* logits = api_.get_logits(context);
        if (!logits) throw std::runtime_error("llama.cpp has no logits");
        if (as_base) base_.insert(base_.end(), logits, logits + next.size() * vocabulary_);
        add_scores(logits, as_base ? nullptr : base_.data() + scored * vocabulary_, next.data(), next.size(),
                   vocabulary_, sizes_.threads, result.scores);
        scored += next.size();
    }
}

// The plugin's report counts all contexts so far.
json Runs::new_in_report() {
    const json now = json::parse(text_of_report(plugin_)), before = std::exchange(counted_, now);
    const auto more = [](const json& all, const json& earlier, const char* name) {
        return all.at(name).get<uint64_t>() - earlier.value(name, uint64_t{0});
    };
    json made = now;
    for (const auto& [name, value] : now.items())
        if (value.is_number_unsigned()) made[name] = more(now, before, name.c_str());
    for (const char* name : {"caches", "in_place"})
        made[name] = last_of(now.at(name), before.value(name, json()).size());
    made["tensors"] = json::object();
    const json tensors = before.value("tensors", json::object());
    for (const auto& [tensor, counts] : now.at("tensors").items()) {
        json its = counts;
        const json earlier = tensors.value(tensor, json::object());
        for (const char* name : {"attention_calls", "append_calls"}) its[name] = more(counts, earlier, name);
        if (its.at("attention_calls") != 0 || its.at("append_calls") != 0) made["tensors"][tensor] = its;
    }
    return made;
}

} // namespace winnow::measure
