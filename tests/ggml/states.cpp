// Saves sequences, removes them and puts them back, and compares with a context that went on: what the next tokens'
// logits are, and what is saved again. Prints a line for each use:
//
//   <use>: <bytes that differ> <largest difference of a logit> <tokens that came out>
//   <use>: not tested, <reason>
//
// Without the plugin it runs llama.cpp alone: then it shows which states llama.cpp itself cannot put back.
//
//   states <model> <file with text> host|both: where states may lie, in the host's memory or on the device, too
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

using Tokens = std::vector<llama_token>;
using Bytes = std::vector<uint8_t>;

constexpr int steps = 24; // that follow a state

#ifdef LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
constexpr llama_state_seq_flags on_device = LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;
#else
constexpr llama_state_seq_flags on_device = 0; // older ones have states in the host's memory alone
#endif

struct Use {
    const char *name;
    int length;           // of the sequence
    uint32_t cells = 256; // of a stream
    int sequences = 1;    // that the context may have; the last one is saved
    bool is_unified = true;
    int beside = 0; // tokens of sequence 0, where there are others
    int zeros = 0;  // tokens whose embedding is zero, from `first_zero` on
    int first_zero = 0;
    int cycles = 1;
    bool is_fresh = false;   // put back into another context
    bool is_whole = false;   // all sequences at once
    bool are_both = false;   // sequence 0, too, is saved, put back and goes on
    bool is_pending = false; // all are saved as soon as the last one was put back, and go on as where it was put back
    bool has_full_windows = false;
    bool lies_on_device = false;
};

const std::vector<Use> uses = {
    {.name = "short", .length = 30},
    {.name = "same context", .length = 100},
    {.name = "three times", .length = 100, .cycles = 3},
    {.name = "long", .length = 300, .cells = 512},
    {.name = "on the device", .length = 100, .lies_on_device = true},
    {.name = "full windows", .length = 100, .has_full_windows = true},
    {.name = "streams", .length = 100, .sequences = 2, .is_unified = false, .beside = 40},
    {.name = "fresh", .length = 100, .is_fresh = true},
    {.name = "fresh long", .length = 300, .cells = 512, .is_fresh = true},
    {.name = "fresh whole", .length = 300, .cells = 512, .is_fresh = true, .is_whole = true},
    {.name = "first zeros", .length = 100, .zeros = 4},
    {.name = "first zeros on the device", .length = 100, .zeros = 4, .lies_on_device = true},
    // In the last cells that a window has, which are a range of their own.
    {.name = "range of zeros", .length = 300, .cells = 512, .zeros = 4, .first_zero = 252, .lies_on_device = true},
    {.name = "zeros alone", .length = 20, .zeros = 20},
    {.name = "zeros alone, fresh", .length = 20, .zeros = 20, .is_fresh = true},
    {.name = "beside", .length = 100, .cells = 512, .sequences = 2, .beside = 90},
    {.name = "both, fresh",
     .length = 100,
     .cells = 512,
     .sequences = 2,
     .beside = 90,
     .is_fresh = true,
     .are_both = true},
    {.name = "both, pending",
     .length = 100,
     .cells = 512,
     .sequences = 2,
     .beside = 90,
     .is_fresh = true,
     .is_whole = true,
     .are_both = true,
     .is_pending = true},
};

class Session {
public:
    Session(llama_model *model, const Use &use) : model_(model) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = use.cells * static_cast<uint32_t>(use.is_unified ? 1 : use.sequences);
        params.n_batch = params.n_ubatch = 64;
        params.n_seq_max = static_cast<uint32_t>(use.sequences);
        params.n_threads = params.n_threads_batch = 1;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.kv_unified = use.is_unified;
        params.swa_full = use.has_full_windows;
        context_ = llama_init_from_model(model, params);
        if (!context_) throw std::runtime_error("no context");
        flags_ = use.lies_on_device ? on_device : 0;
    }
    ~Session() { llama_free(context_); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Tokens of a sequence from a position on, in batches; the logits after the last.
    std::vector<float> decode(const Tokens &tokens, int first, int sequence) {
        for (size_t at = 0; at < tokens.size(); at += 64) {
            llama_batch batch = llama_batch_init(64, 0, 1);
            for (size_t i = at; i < std::min(tokens.size(), at + 64); ++i) {
                const int n = batch.n_tokens++;
                batch.token[n] = tokens[i];
                batch.pos[n] = first + static_cast<int>(i);
                batch.n_seq_id[n] = 1;
                batch.seq_id[n][0] = sequence;
                batch.logits[n] = i + 1 == tokens.size();
            }
            const int status = llama_decode(context_, batch);
            llama_batch_free(batch);
            if (status != 0) throw std::runtime_error("llama_decode returned " + std::to_string(status));
        }
        const float *logits = llama_get_logits_ith(context_, -1);
        return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model_))};
    }

    Bytes save_on_host(int sequence) { return save(sequence, 0); }
    Bytes save(int sequence) { return save(sequence, flags_); }
    void remove(int sequence) { llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1); }
    void restore(int sequence, Bytes state) {
        if (llama_state_seq_set_data_ext(context_, state.data(), state.size(), sequence, flags_) != state.size())
            throw std::runtime_error("the state was not taken");
    }
    Bytes save_all() {
        Bytes state(llama_state_get_size(context_));
        state.resize(llama_state_get_data(context_, state.data(), state.size()));
        return state;
    }
    void restore_all(Bytes state) {
        if (llama_state_set_data(context_, state.data(), state.size()) == 0) throw std::runtime_error("no state");
    }

private:
    Bytes save(int sequence, llama_state_seq_flags flags) {
        Bytes state(llama_state_seq_get_size_ext(context_, sequence, flags));
        state.resize(llama_state_seq_get_data_ext(context_, state.data(), state.size(), sequence, flags));
        return state;
    }

    llama_model *model_;
    llama_context *context_;
    llama_state_seq_flags flags_;
};

size_t count_differences(const Bytes &one, const Bytes &other) {
    size_t count = one.size() == other.size() ? 0 : std::max(one.size(), other.size());
    for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) count += one[i] != other[i];
    return count;
}

void run(llama_model *model, const Tokens &text, const Use &use) {
    const int sequence = use.sequences - 1;
    Tokens tokens(text.begin(), text.begin() + use.length);
    for (int i = 0; i < use.zeros; ++i) tokens[static_cast<size_t>(use.first_zero + i)] = 3 + i; // bytes
    Session whole(model, use), first(model, use), other(model, use);
    for (Session *session : {&whole, &first}) {
        if (use.beside > 0) session->decode({text.begin() + 400, text.begin() + 400 + use.beside}, 0, 0);
        session->decode(tokens, 0, sequence);
    }
    Session &then = use.is_fresh ? other : first;
    std::vector<int> saved_sequences = {sequence};
    if (use.are_both) saved_sequences.insert(saved_sequences.begin(), 0);
    size_t differing = 0;
    if (use.is_pending) {
        const Bytes saved = first.save(sequence);
        first.remove(sequence);
        first.restore(sequence, saved);
    }
    if (use.is_whole) {
        const Bytes saved = first.save_all();
        then.restore_all(saved);
        differing = count_differences(saved, then.save_all());
    }
    for (int i = 0; i < use.cycles && !use.is_whole; ++i) {
        for (const int each : saved_sequences) {
            const Bytes on_host = first.save_on_host(each), saved = first.save(each);
            if (!use.is_fresh) first.remove(each);
            then.restore(each, saved);
            differing += count_differences(on_host, then.save_on_host(each));
        }
    }
    float largest = 0;
    Tokens out;
    Session &undisturbed = use.is_pending ? first : whole;
    for (const int each : saved_sequences) {
        llama_token next = text[500];
        for (int i = 0; i < steps; ++i) {
            const int position = i + (each == sequence ? use.length : use.beside);
            const std::vector<float> wanted = undisturbed.decode({next}, position, each),
                                     found = then.decode({next}, position, each);
            for (size_t at = 0; at < found.size(); ++at)
                largest = std::isnan(found[at]) ? INFINITY : std::max(largest, std::fabs(found[at] - wanted[at]));
            next = static_cast<llama_token>(std::max_element(found.begin(), found.end()) - found.begin());
            out.push_back(next);
        }
    }
    std::printf("%s: %zu %g", use.name, differing, static_cast<double>(largest));
    for (const llama_token token : out) std::printf(" %d", token);
    std::printf("\n");
    std::fflush(stdout);
}

void run_all(const char *model_path, const char *text_path, const std::string &where) {
    ggml_backend_load_all();
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("Winnow"), nullptr};
    llama_model_params params = llama_model_default_params();
    params.devices = devices;
    const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
        llama_model_load_from_file(model_path, params), llama_model_free);
    if (!model) throw std::runtime_error("no model");
    std::ifstream file(text_path);
    const std::string prose(std::istreambuf_iterator<char>(file), {});
    Tokens text(prose.size());
    const int count =
        llama_tokenize(llama_model_get_vocab(model.get()), prose.data(), static_cast<int32_t>(prose.size()),
                       text.data(), static_cast<int32_t>(text.size()), false, false);
    if (count < 600) throw std::runtime_error("the text is too short");
    text.resize(static_cast<size_t>(count));
    for (const Use &use : uses) {
        if (use.lies_on_device && where == "host") continue;
        if (use.lies_on_device && on_device == 0)
            std::printf("%s: not tested, this llama.cpp has no LLAMA_STATE_SEQ_FLAGS_ON_DEVICE\n", use.name);
        else
            run(model.get(), text, use);
    }
}

} // namespace

int main(int count, char **arguments) {
    const std::string where = count == 4 ? arguments[3] : "";
    if (where != "host" && where != "both") {
        std::fprintf(stderr, "states <model> <file with text> host|both\n");
        return 2;
    }
    try {
        run_all(arguments[1], arguments[2], where);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "states: %s\n", error.what());
        return 1;
    }
    return 0;
}
