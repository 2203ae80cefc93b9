// Configurations of the KV cache over contexts of a text, one after another in one process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "divergence.hpp"
#include "llama.hpp"
#include <nlohmann/json.hpp>

namespace winnow::measure {

struct Sizes {
    size_t context = 0;      // tokens
    size_t first_scored = 0; // the first position whose next token is scored
    uint32_t batch = 512, ubatch = 512;
    uint32_t threads = 1;
};

// One configuration.
struct Configuration {
    bool is_winnow = false; // else llama.cpp's own attention, on its CPU backend
    std::string k_type = "f16", v_type = "f16";
    std::string kv;                                                // WINNOW_KV, "" in place
    std::map<std::string, std::optional<std::string>> environment; // nothing: the variable is not set
};
// Throws std::runtime_error where it is none.
Configuration to_configuration(const nlohmann::json& json);

struct Result {
    Scores scores;
    double seconds = 0;    // of all batches, without the making of the context and without the scoring
    nlohmann::json report; // what is new in the plugin's report (hosts/ggml/README.md); tensors that were used
    std::string log;       // of llama.cpp
};

class Runs {
public:
    // All of it has to stay. text: its tokens.
    Runs(const LlamaApi& api, const std::string& model, const std::string& plugin, const std::string& text,
         const Sizes& sizes);

    size_t tokens() const { return text_.size(); }
    size_t contexts() const { return text_.size() / sizes_.context; }
    size_t vocabulary() const { return vocabulary_; }

    // Runs a configuration over context number `context` of the text. as_base: its logits are kept, and what comes
    // later is compared with them. Throws std::runtime_error.
    Result run(const Configuration& configuration, size_t context, bool as_base);

private:
    llama_model* model_for(bool is_winnow);
    std::vector<llama_token> tokens_of_context(size_t context) const;
    void decode(llama_context* context, const std::vector<llama_token>& tokens, bool as_base, Result& result);
    nlohmann::json new_in_report();

    const LlamaApi& api_;
    std::string path_;
    Sizes sizes_;
    Plugin plugin_;
    Model winnow_, plain_; // the same file, which both map into memory
    const llama_vocab* vocab_ = nullptr;
    size_t vocabulary_ = 0;
    std::vector<llama_token> text_;
    std::vector<float> base_; // [scored tokens][vocabulary] of context base_context_
    std::optional<size_t> base_context_;
    nlohmann::json counted_ = nlohmann::json::object(); // the plugin's report so far
};

} // namespace winnow::measure
