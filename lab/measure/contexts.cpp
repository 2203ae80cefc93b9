// A context of llama.cpp for each run: made, used, reported and freed.
#include "contexts.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "canonical_config.hpp"

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

} // namespace

Configuration to_configuration(const json& json) {
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

Context::Context(const LlamaApi& api, llama_context* context, const Sizes& sizes)
    : api_(api), context_(context), sizes_(sizes), batch_(api.batch_init(static_cast<int32_t>(sizes.batch), 0, 1)) {}

Context::~Context() {
    api_.batch_free(batch_);
    api_.free(context_);
}

const float* Context::evaluate(const llama_token* tokens, size_t count, const std::vector<bool>& scored) {
    using Clock = std::chrono::steady_clock;
    batch_.n_tokens = static_cast<int32_t>(count);
    for (size_t at = 0; at < count; ++at) {
        batch_.token[at] = tokens[at];
        batch_.pos[at] = static_cast<llama_pos>(position_ + at);
        batch_.n_seq_id[at] = 1;
        batch_.seq_id[at][0] = 0;
        batch_.logits[at] = scored[at];
    }
    const auto start = Clock::now();
    const int status = api_.decode(context_, batch_);
    api_.synchronize(context_);
    seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    if (status != 0) throw std::runtime_error("llama_decode returned " + std::to_string(status));
    position_ += count;
    micro_batches_ += (count + sizes_.ubatch - 1) / sizes_.ubatch;
    if (std::find(scored.begin(), scored.end(), true) == scored.end()) return nullptr;
    const float* logits = api_.get_logits(context_);
    if (!logits) throw std::runtime_error("llama.cpp has no logits");
    return logits;
}

const float* Context::evaluate_all(const std::vector<llama_token>& tokens) {
    const float* logits = nullptr;
    for (size_t begin = 0; begin < tokens.size(); begin += sizes_.batch) {
        const size_t count = std::min<size_t>(sizes_.batch, tokens.size() - begin);
        std::vector<bool> scored(count, false);
        scored.back() = begin + count == tokens.size();
        logits = evaluate(tokens.data() + begin, count, scored);
    }
    return logits;
}

Contexts::Contexts(const LlamaApi& api, const std::string& model, const std::string& plugin, const Sizes& sizes)
    : api_(api), path_(model), sizes_(sizes), plugin_(load_plugin(api, plugin)), winnow_(nullptr, FreeModel{&api}),
      plain_(nullptr, FreeModel{&api}) {
    vocab_ = api.model_get_vocab(model_for(true));
    if (api.vocab_type(vocab_) == LLAMA_VOCAB_TYPE_NONE)
        throw std::runtime_error(path_ + " has no tokenizer: not a language model");
    vocabulary_ = static_cast<size_t>(api.vocab_n_tokens(vocab_));
}

llama_model* Contexts::model_for(bool is_winnow) {
    Model& model = is_winnow ? winnow_ : plain_;
    if (!model) model = load_model(api_, path_, is_winnow ? plugin_.device : nullptr);
    return model.get();
}

json Contexts::report() const {
    std::string text(plugin_.report(nullptr, 0) + 1, '\0');
    text.resize(plugin_.report(text.data(), text.size()));
    json report = json::parse(text);
    for (json& cache : report.at("caches")) cache["family"] = ggml::without_budget(cache.at("config"));
    return report;
}

Outcome Contexts::run(const Configuration& configuration, size_t cells, const std::function<void(Context&)>& use) {
    const Environment environment(configuration.environment);
    plugin_.reset_report();
    take_log();
    std::array<char, 1024> message{};
    if (plugin_.set_kv(configuration.kv.c_str(), message.data(), message.size()) != 0)
        throw std::runtime_error(message.data());
    llama_context_params params = api_.context_default_params();
    params.n_ctx = static_cast<uint32_t>(cells);
    Sizes sizes = sizes_;
    sizes.batch = static_cast<uint32_t>(std::min<size_t>(sizes.batch, cells));
    sizes.ubatch = std::min(sizes.ubatch, sizes.batch);
    params.n_batch = sizes.batch;
    params.n_ubatch = sizes.ubatch;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = static_cast<int32_t>(sizes.threads);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = false; // caches of windows are as large as those need, as in llama.cpp's own programs
    params.type_k = type_of(configuration.k_type);
    params.type_v = type_of(configuration.v_type);
    llama_context* made = api_.init_from_model(model_for(configuration.is_winnow), params);
    if (!made) throw std::runtime_error("llama.cpp makes no context");
    Outcome outcome;
    {
        Context context(api_, made, sizes);
        use(context);
        outcome.micro_batches = context.micro_batches();
        outcome.seconds = context.seconds();
    } // and so it is in the report
    outcome.report = report();
    outcome.log = take_log();
    return outcome;
}

} // namespace winnow::measure
