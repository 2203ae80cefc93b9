// Fresh contexts of llama.cpp with one model, each under a configuration of its KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llama.hpp"
#include <nlohmann/json.hpp>

namespace winnow::measure {

struct Sizes {
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

// A context of llama.cpp with one sequence, which is empty at first.
class Context {
public:
    Context(const LlamaApi& api, llama_context* context, const Sizes& sizes);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // Evaluates at most Sizes::batch tokens after those before. Returns the logits, one row after another, of those
    // that are to have some, which `scored` says of each; NULL where none is. They last until the next call. Throws
    // std::runtime_error.
    const float* evaluate(const llama_token* tokens, size_t count, const std::vector<bool>& scored);
    // All of them, batch by batch; returns the logits of the last.
    const float* evaluate_all(const std::vector<llama_token>& tokens);

    size_t batch() const { return sizes_.batch; }
    size_t position() const { return position_; }           // of the next token
    size_t micro_batches() const { return micro_batches_; } // in which the tokens came
    double seconds() const { return seconds_; }             // in all calls

private:
    const LlamaApi& api_;
    llama_context* context_;
    const Sizes sizes_;
    llama_batch batch_;
    size_t position_ = 0, micro_batches_ = 0;
    double seconds_ = 0;
};

// What one context did.
struct Outcome {
    size_t micro_batches = 0;
    double seconds = 0;    // of all batches, without the making of the context
    nlohmann::json report; // the plugin's (hosts/ggml/variables.md), of this context alone, and "family" of each cache
    std::string log;       // of llama.cpp
};

class Contexts {
public:
    // Loads the model. api has to stay. sizes: the most of each; a context of fewer cells has smaller batches.
    Contexts(const LlamaApi& api, const std::string& model, const std::string& plugin, const Sizes& sizes);

    // Makes a context of so many cells, lets `use` work with it, and frees it. Throws std::runtime_error, and what
    // `use` throws.
    Outcome run(const Configuration& configuration, size_t cells, const std::function<void(Context&)>& use);

    const LlamaApi& api() const { return api_; }
    const Sizes& sizes() const { return sizes_; }
    const llama_vocab* vocab() const { return vocab_; }
    size_t vocabulary() const { return vocabulary_; }
    const llama_model* model() { return model_for(true); }

private:
    llama_model* model_for(bool is_winnow);
    nlohmann::json report() const;

    const LlamaApi& api_;
    std::string path_;
    Sizes sizes_;
    Plugin plugin_;
    Model winnow_, plain_; // the same file, which both map into memory
    const llama_vocab* vocab_ = nullptr;
    size_t vocabulary_ = 0;
};

} // namespace winnow::measure
