// A random program over llama.cpp's memory, and a context in which it runs. `programs` says what the programs are for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace random_program {

constexpr int cells_of_stream = 256; // no cache is smaller
constexpr int chunk = 8192;          // llama4's
constexpr int all = -1;              // in the place of a sequence

#ifdef LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
constexpr llama_state_seq_flags on_device = LLAMA_STATE_SEQ_FLAGS_ON_DEVICE;
#else
constexpr llama_state_seq_flags on_device = 0; // older ones have states in the host's memory alone
#endif
constexpr llama_state_seq_flags partial = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
constexpr llama_state_seq_flags kinds_of_states[] = {0, 0, partial, on_device, partial | on_device};

// Which operation an action is comes from `kind`, and on what from the others, by what there is when it runs: so a
// program without some of its actions is a program, too.
struct Action {
    unsigned kind, sequence, other, first, count;
};

struct Program {
    unsigned sequences, ubatch, start;
    bool is_unified, has_full_windows;
    std::vector<Action> actions;
};

struct Family {
    bool is_encoder, is_chunked, has_device_states;
};

inline Program make_program(unsigned seed, const Family &family, bool has_states) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
    Program program{};
    program.sequences = 1 + below(3);
    program.ubatch = 8U << below(4);
    program.is_unified = below(2) == 0;
    program.has_full_windows = below(2) == 0;
    if (family.is_chunked) program.start = chunk - program.ubatch * (1 + below(3)) - (below(2) == 0 ? below(8) : 0);
    program.actions.resize(24 + below(24));
    for (Action &action : program.actions) action = {below(100), below(16), below(16), below(1 << 16), below(1 << 16)};
    for (unsigned at = 0; has_states && at <= program.actions.size(); at += 1 + below(4))
        program.actions.insert(program.actions.begin() + at,
                               {100 + below(2), below(16), below(16), below(1 << 16), below(1 << 16)});
    return program;
}

inline std::string to_text(const Program &program) {
    return std::to_string(program.sequences) + (program.is_unified ? " sequences in one stream" : " streams") +
           ", batches of " + std::to_string(program.ubatch) + ", from position " + std::to_string(program.start) +
           (program.has_full_windows ? ", windows of all cells" : "");
}

// What a decode gave: logits or embeddings of each of its tokens, or that it was refused.
struct Result {
    int status = 0;
    std::vector<std::vector<float>> rows;
};

class Session {
public:
    Session(llama_model *model, const Program &program, bool is_encoder) : is_encoder_(is_encoder) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 2 * cells_of_stream * (program.is_unified ? 1 : program.sequences);
        params.n_batch = 2 * cells_of_stream;
        params.n_ubatch = is_encoder ? params.n_batch : program.ubatch;
        params.n_seq_max = program.sequences;
        params.n_threads = params.n_threads_batch = 1;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.kv_unified = program.is_unified;
        params.swa_full = program.has_full_windows;
        params.embeddings = is_encoder;
        params.pooling_type = LLAMA_POOLING_TYPE_NONE;
        context_.reset(llama_init_from_model(model, params));
        if (!context_) throw std::runtime_error("no context");
        width_ = is_encoder ? llama_model_n_embd(model) : llama_vocab_n_tokens(llama_model_get_vocab(model));
    }

    llama_memory_t memory() const { return llama_get_memory(context_.get()); }
    void set_causal(bool is_causal) { llama_set_causal_attn(context_.get(), is_causal); }

    // Keeps a sequence's state, or that of all, instead of the one before; returns its bytes.
    size_t save(int sequence, llama_state_seq_flags flags) {
        llama_context *const context = context_.get();
        std::vector<uint8_t> bytes(sequence == all ? llama_state_get_size(context)
                                                   : llama_state_seq_get_size_ext(context, sequence, flags));
        bytes.resize(sequence == all
                         ? llama_state_get_data(context, bytes.data(), bytes.size())
                         : llama_state_seq_get_data_ext(context, bytes.data(), bytes.size(), sequence, flags));
        states_[sequence] = {flags, std::move(bytes)};
        return states_[sequence].bytes.size();
    }
    // The flags of the state that is kept of a sequence, or of all; nothing where there is none.
    std::optional<llama_state_seq_flags> kept(int sequence) const {
        const auto state = states_.find(sequence);
        return state == states_.end() ? std::nullopt : std::optional(state->second.flags);
    }
    void take_state(int sequence, const Session &from) { states_[sequence] = from.states_.at(sequence); }
    // Puts so many eighths of a state back, that of a sequence as `to`; returns the bytes that were read, 0 where it
    // was refused.
    size_t restore(int sequence, int to, unsigned eighths) {
        const State &state = states_.at(sequence);
        const size_t size = state.bytes.size() * eighths / 8;
        if (sequence == all) return llama_state_set_data(context_.get(), state.bytes.data(), size);
        return llama_state_seq_set_data_ext(context_.get(), state.bytes.data(), size, to, state.flags);
    }

    Result decode(const llama_batch &batch) {
        Result result{llama_decode(context_.get(), batch), {}};
        for (int i = 0; i < batch.n_tokens && result.status == 0; ++i) {
            const float *row =
                is_encoder_ ? llama_get_embeddings_ith(context_.get(), i) : llama_get_logits_ith(context_.get(), i);
            result.rows.emplace_back(row, row + width_);
        }
        return result;
    }

private:
    struct State {
        llama_state_seq_flags flags;
        std::vector<uint8_t> bytes;
    };

    bool is_encoder_;
    std::map<int, State> states_;
    std::unique_ptr<llama_context, decltype(&llama_free)> context_{nullptr, llama_free};
    int width_ = 0;
};

} // namespace random_program
