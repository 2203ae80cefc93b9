// Opening llama.cpp's libraries.
#include "llama.hpp"

#include <cstdio>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace winnow::measure {

namespace fs = std::filesystem;

namespace {

// Programs lie beside the libraries in a build of llama.cpp, and in bin of an installation.
fs::path find_library(const fs::path& folder, const std::string& name) {
    for (const char* place : {".", "../lib", "../lib64"}) {
        fs::path path = folder / place / name;
        if (fs::exists(path)) return path;
    }
    throw std::runtime_error("no " + name + " in " + folder.string() +
                             ", nor in the lib beside it; a llama.cpp with "
                             "shared libraries is needed (BUILD_SHARED_LIBS, its default)");
}

std::mutex log_mutex;
std::string log_text;

void add_to_log(ggml_log_level, const char* text, void*) {
    std::fputs(text, stderr);
    const std::lock_guard lock(log_mutex);
    log_text += text;
}

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) throw std::runtime_error("libllama.so has no function " + std::string(name));
}

} // namespace

const LlamaApi& load_llama(const fs::path& folder) {
    static LlamaApi api{};
    const fs::path path = find_library(folder, "libllama.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) throw std::runtime_error(dlerror());
#define LOOK_UP(prefix, name) look_up(library, #prefix #name, api.name)
    LOOK_UP(llama_, backend_init);
    LOOK_UP(llama_, log_set);
    LOOK_UP(llama_, model_default_params);
    LOOK_UP(llama_, context_default_params);
    LOOK_UP(llama_, model_load_from_file);
    LOOK_UP(llama_, model_free);
    LOOK_UP(llama_, init_from_model);
    LOOK_UP(llama_, free);
    LOOK_UP(llama_, model_n_ctx_train);
    LOOK_UP(llama_, model_get_vocab);
    LOOK_UP(llama_, vocab_type);
    LOOK_UP(llama_, vocab_n_tokens);
    LOOK_UP(llama_, vocab_get_add_bos);
    LOOK_UP(llama_, vocab_bos);
    LOOK_UP(llama_, vocab_is_eog);
    LOOK_UP(llama_, tokenize);
    LOOK_UP(llama_, token_to_piece);
    LOOK_UP(llama_, model_chat_template);
    LOOK_UP(llama_, chat_apply_template);
    LOOK_UP(llama_, batch_init);
    LOOK_UP(llama_, batch_free);
    LOOK_UP(llama_, decode);
    LOOK_UP(llama_, synchronize);
    LOOK_UP(llama_, get_logits);
    LOOK_UP(, ggml_version);
    LOOK_UP(ggml_, backend_load_all_from_path);
    LOOK_UP(ggml_, backend_load);
    LOOK_UP(ggml_, backend_dev_by_name);
    LOOK_UP(ggml_, backend_reg_get_proc_address);
#undef LOOK_UP
    if (api.ggml_version() != std::string(WINNOW_GGML_VERSION)) {
        throw std::runtime_error(path.string() + " is of ggml " + api.ggml_version() + ", expected " +
                                 WINNOW_GGML_VERSION + ", whose headers this program was built with");
    }
    api.log_set(add_to_log, nullptr);
    api.backend_load_all_from_path(path.parent_path().c_str());
    api.backend_init();
    return api;
}

std::string take_log() {
    const std::lock_guard lock(log_mutex);
    return std::exchange(log_text, {});
}

Plugin load_plugin(const LlamaApi& api, const std::string& path) {
    const ggml_backend_reg_t registration = api.backend_load(path.c_str());
    if (!registration) throw std::runtime_error("llama.cpp does not take " + path);
    Plugin plugin;
    plugin.device = api.backend_dev_by_name("Winnow");
    const auto find = [&](const char* name, auto& function) {
        function =
            reinterpret_cast<std::decay_t<decltype(function)>>(api.backend_reg_get_proc_address(registration, name));
        if (!function) throw std::runtime_error(path + " has no function " + name);
    };
    find("winnow_ggml_report", plugin.report);
    find("winnow_ggml_reset_report", plugin.reset_report);
    find("winnow_ggml_set_kv", plugin.set_kv);
    if (!plugin.device) throw std::runtime_error(path + " has no device Winnow");
    return plugin;
}

Model load_model(const LlamaApi& api, const std::string& path, ggml_backend_dev_t device) {
    llama_model_params params = api.model_default_params();
    ggml_backend_dev_t devices[] = {device, nullptr};
    params.devices = devices;
    Model model(api.model_load_from_file(path.c_str(), params), FreeModel{&api});
    if (!model) throw std::runtime_error("llama.cpp cannot load " + path);
    return model;
}

std::vector<llama_token> tokens_of(const LlamaApi& api, const llama_vocab* vocab, const std::string& text,
                                   bool is_begin, bool with_special) {
    const auto length = static_cast<int32_t>(text.size());
    std::vector<llama_token> tokens(text.size() + 2); // a token has at least a byte, but for those around the text
    const int32_t count = api.tokenize(vocab, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()),
                                       is_begin, with_special);
    if (count < 0) throw std::runtime_error("llama.cpp cannot tokenize the text");
    tokens.resize(static_cast<size_t>(count));
    return tokens;
}

std::string piece_of(const LlamaApi& api, const llama_vocab* vocab, llama_token token) {
    std::string piece(16, '\0');
    for (;;) {
        const int32_t size =
            api.token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, true);
        piece.resize(static_cast<size_t>(size < 0 ? -size : size));
        if (size >= 0) return piece;
    }
}

std::string chat_of(const LlamaApi& api, const llama_model* model, const std::string& said) {
    const char* chat_template = api.model_chat_template(model, nullptr);
    if (!chat_template) throw std::runtime_error("the model has no chat template");
    const llama_chat_message message{"user", said.c_str()};
    std::string text(2 * said.size() + 256, '\0');
    for (;;) {
        const int32_t size =
            api.chat_apply_template(chat_template, &message, 1, true, text.data(), static_cast<int32_t>(text.size()));
        if (size < 0) throw std::runtime_error("llama.cpp does not know the model's chat template");
        const bool fits = static_cast<size_t>(size) <= text.size();
        text.resize(static_cast<size_t>(size));
        if (fits) return text;
    }
}

std::string reason_against_chat(const LlamaApi& api, const llama_model* model) {
    try {
        chat_of(api, model, "Hello");
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

} // namespace winnow::measure
