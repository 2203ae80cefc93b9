// llama.cpp as a process of its own has it: the libraries of a folder, a model, and Winnow's plugin in it. What is
// compiled in of llama.cpp are its headers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ggml-backend.h>
#include <llama.h>

namespace winnow::measure {

// The functions that are used, of libllama.so and the ggml beside it.
struct LlamaApi {
    decltype(&::llama_backend_init) backend_init;
    decltype(&::llama_log_set) log_set;
    decltype(&::llama_model_default_params) model_default_params;
    decltype(&::llama_context_default_params) context_default_params;
    decltype(&::llama_model_load_from_file) model_load_from_file;
    decltype(&::llama_model_free) model_free;
    decltype(&::llama_init_from_model) init_from_model;
    decltype(&::llama_free) free;
    decltype(&::llama_model_n_ctx_train) model_n_ctx_train;
    decltype(&::llama_model_get_vocab) model_get_vocab;
    decltype(&::llama_vocab_type) vocab_type;
    decltype(&::llama_vocab_n_tokens) vocab_n_tokens;
    decltype(&::llama_vocab_get_add_bos) vocab_get_add_bos;
    decltype(&::llama_vocab_bos) vocab_bos;
    decltype(&::llama_vocab_is_eog) vocab_is_eog;
    decltype(&::llama_tokenize) tokenize;
    decltype(&::llama_token_to_piece) token_to_piece;
    decltype(&::llama_model_chat_template) model_chat_template;
    decltype(&::llama_chat_apply_template) chat_apply_template;
    decltype(&::llama_batch_init) batch_init;
    decltype(&::llama_batch_free) batch_free;
    decltype(&::llama_decode) decode;
    decltype(&::llama_synchronize) synchronize;
    decltype(&::llama_get_logits) get_logits;
    decltype(&::ggml_version) ggml_version;
    decltype(&::ggml_backend_load_all_from_path) backend_load_all_from_path;
    decltype(&::ggml_backend_load) backend_load;
    decltype(&::ggml_backend_dev_by_name) backend_dev_by_name;
    decltype(&::ggml_backend_reg_get_proc_address) backend_reg_get_proc_address;
};

// Looked up in the libraries of a folder. Throws std::runtime_error where one is missing, or of another version of ggml
// than the headers.
const LlamaApi& load_llama(const std::filesystem::path& folder);

// What llama.cpp has said since the last call, which also goes to standard error.
std::string take_log();

// The plugin's own functions (hosts/ggml/INTERNALS.md).
struct Plugin {
    ggml_backend_dev_t device = nullptr;
    size_t (*report)(char* text, size_t size) = nullptr;
    void (*reset_report)() = nullptr;
    int (*set_kv)(const char* config, char* message, size_t size) = nullptr;
};
// Throws std::runtime_error where llama.cpp does not take it.
Plugin load_plugin(const LlamaApi& api, const std::string& path);

struct FreeModel {
    const LlamaApi* api;
    void operator()(llama_model* model) const { api->model_free(model); }
};
using Model = std::unique_ptr<llama_model, FreeModel>;

// A model whose layers' caches belong to the device, NULL for none. Throws std::runtime_error.
Model load_model(const LlamaApi& api, const std::string& path, ggml_backend_dev_t device);

// The tokens of a text. is_begin: with those that a model wants around a text. with_special: words that look like
// special tokens are these, else they are words.
std::vector<llama_token> tokens_of(const LlamaApi& api, const llama_vocab* vocab, const std::string& text,
                                   bool is_begin, bool with_special);

// What a token stands for in a text; special tokens by their names.
std::string piece_of(const LlamaApi& api, const llama_vocab* vocab, llama_token token);

// What a model reads where a user says something and the assistant begins to answer, as far as llama.cpp knows the
// model's template. Throws std::runtime_error where it does not.
std::string chat_of(const LlamaApi& api, const llama_model* model, const std::string& said);

// Why chat_of() throws for a model; empty: it does not.
std::string reason_against_chat(const LlamaApi& api, const llama_model* model);

} // namespace winnow::measure
