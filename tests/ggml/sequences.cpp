// Does with llama.cpp's memory what servers do with it, and prints the tokens that come out, a line for each use.
//
//   sequences <model> <file with text>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

Tokens text; // tokenized

Tokens part(size_t first, size_t count) {
    return {text.begin() + static_cast<long>(first), text.begin() + static_cast<long>(first + count)};
}

bool is_virtual() {
    const char *kv = std::getenv("WINNOW_KV");
    return kv && *kv;
}

class Session {
public:
    Session(llama_model *model, uint32_t cells, uint32_t sequences, bool is_unified) : model_(model) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = cells;
        params.n_batch = params.n_ubatch = 256;
        params.n_seq_max = sequences;
        params.n_threads = params.n_threads_batch = 1;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.kv_unified = is_unified;
        context_ = llama_init_from_model(model, params);
        if (!context_) throw std::runtime_error("no context");
        memory_ = llama_get_memory(context_);
        length_.assign(sequences, 0);
    }
    ~Session() { llama_free(context_); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Tokens for some sequences in one batch; after the call each has the most likely token after its last.
    void decode(const std::vector<std::pair<int, Tokens>> &all) {
        llama_batch batch = llama_batch_init(256, 0, 1);
        std::vector<std::pair<int, int>> ends;
        for (const auto &[sequence, tokens] : all) {
            for (size_t i = 0; i < tokens.size(); ++i) {
                const int at = batch.n_tokens++;
                batch.token[at] = tokens[i];
                batch.pos[at] = length_[static_cast<size_t>(sequence)]++;
                batch.n_seq_id[at] = 1;
                batch.seq_id[at][0] = sequence;
                batch.logits[at] = i + 1 == tokens.size();
            }
            ends.emplace_back(sequence, batch.n_tokens - 1);
        }
        const int status = llama_decode(context_, batch);
        llama_batch_free(batch);
        if (status != 0) throw std::runtime_error("llama_decode returned " + std::to_string(status));
        next_.resize(length_.size());
        for (const auto &[sequence, at] : ends)
            next_[static_cast<size_t>(sequence)] = likeliest(llama_get_logits_ith(context_, at));
    }

    Tokens generate(int sequence, int count) {
        Tokens out;
        for (int i = 0; i < count; ++i) {
            out.push_back(next(sequence));
            decode({{sequence, {next(sequence)}}});
        }
        return out;
    }

    llama_token next(int sequence) const { return next_[static_cast<size_t>(sequence)]; }

    // Positions from `begin` on.
    void remove(int sequence, int begin) {
        if (!llama_memory_seq_rm(memory_, sequence, begin, -1)) throw std::runtime_error("seq_rm failed");
        length_[static_cast<size_t>(sequence)] = begin;
    }

    // All sequences, and the memory that they had.
    void clear() {
        llama_memory_clear(memory_, true);
        length_.assign(length_.size(), 0);
    }

    // Its first positions; the others move down.
    void remove_front(int sequence, int count) {
        if (!llama_memory_seq_rm(memory_, sequence, 0, count)) throw std::runtime_error("seq_rm failed");
        llama_memory_seq_add(memory_, sequence, count, -1, -count);
        length_[static_cast<size_t>(sequence)] -= count;
    }

    // Its first positions; the others stay where they are.
    void remove_beginning(int sequence, int count) {
        if (!llama_memory_seq_rm(memory_, sequence, 0, count)) throw std::runtime_error("seq_rm failed");
    }

    void copy(int from, int to) {
        llama_memory_seq_cp(memory_, from, to, -1, -1);
        length_[static_cast<size_t>(to)] = length_[static_cast<size_t>(from)];
        next_[static_cast<size_t>(to)] = next_[static_cast<size_t>(from)];
    }

    // All sequences of another session.
    void restore(Session &from) {
        std::vector<uint8_t> state(llama_state_get_size(from.context_));
        state.resize(llama_state_get_data(from.context_, state.data(), state.size()));
        if (llama_state_set_data(context_, state.data(), state.size()) == 0) throw std::runtime_error("no state");
        length_ = from.length_;
        next_ = from.next_;
    }

    // The first part of a state of one sequence in the place of another; whether that was taken.
    bool restore_part(int from, int to, double share) {
        std::vector<uint8_t> state(llama_state_seq_get_size(context_, from));
        state.resize(llama_state_seq_get_data(context_, state.data(), state.size(), from));
        const auto size = static_cast<size_t>(share * static_cast<double>(state.size()));
        length_[static_cast<size_t>(to)] = 0;
        if (llama_state_seq_set_data(context_, state.data(), size, to) == 0) return false;
        length_[static_cast<size_t>(to)] = length_[static_cast<size_t>(from)];
        return true;
    }

    // A state of one sequence in the place of another, where there is a virtual cache with damaged rows in its middle.
    void restore_damaged(int from, int to) {
        std::vector<uint8_t> state(llama_state_seq_get_size(context_, from));
        state.resize(llama_state_seq_get_data(context_, state.data(), state.size(), from));
        const size_t part = state.size() / 16; // within the keys of one of two layers, at odd bytes or at even ones
        for (size_t at = 5 * part; is_virtual() && at < 7 * part; ++at)
            state[at] = (at % 2 == 0) == (at < 6 * part) ? 0xa5 : 0x7f;
        if (llama_state_seq_set_data(context_, state.data(), state.size(), to) == 0)
            throw std::runtime_error("a state was not taken");
        length_[static_cast<size_t>(to)] = length_[static_cast<size_t>(from)];
    }

    llama_context *context() { return context_; }

private:
    llama_token likeliest(const float *logits) const {
        const int count = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        llama_token best = 0;
        for (llama_token token = 1; token < count; ++token) {
            if (logits[token] > logits[best]) best = token;
        }
        return best;
    }

    llama_model *model_;
    llama_context *context_;
    llama_memory_t memory_;
    std::vector<llama_pos> length_;
    Tokens next_;
};

void print(const char *use, const Tokens &tokens) {
    std::printf("%s:", use);
    for (const llama_token token : tokens) std::printf(" %d", token);
    std::printf("\n");
    std::fflush(stdout);
}

void add(Tokens &all, const Tokens &more) { all.insert(all.end(), more.begin(), more.end()); }

// A tail is taken back and others come instead; then another text, in the cells of the first.
void reuse(llama_model *model) {
    Session session(model, 256, 1, false);
    Tokens out;
    session.decode({{0, part(0, 120)}});
    add(out, session.generate(0, 8));
    session.remove(0, 40);
    session.decode({{0, part(300, 30)}});
    add(out, session.generate(0, 8));
    session.remove(0, 0);
    session.decode({{0, part(200, 60)}});
    add(out, session.generate(0, 8));
    print("reuse", out);
}

// All memory is cleared, as llama-perplexity does between two texts.
void clear(llama_model *model) {
    Session session(model, 256, 2, false);
    Tokens out;
    session.decode({{0, part(0, 90)}, {1, part(300, 60)}});
    add(out, session.generate(0, 6));
    session.clear();
    session.decode({{1, part(200, 70)}});
    add(out, session.generate(1, 6));
    session.decode({{0, part(400, 40)}});
    add(out, session.generate(0, 6));
    print("clear", out);
}

// Guesses of which one is right, as with a draft.
void rollback(llama_model *model) {
    Session session(model, 256, 1, false);
    Tokens out;
    session.decode({{0, part(0, 90)}});
    for (int at = 90; at < 100; ++at) {
        session.decode({{0, part(static_cast<size_t>(at), 4)}});
        session.remove(0, at + 1);
        session.decode({{0, part(static_cast<size_t>(at) + 100, 1)}});
        out.push_back(session.next(0));
        session.remove(0, at + 1);
    }
    print("rollback", out);
}

// A prompt that two sequences go on from, and a third that has its own.
void share(llama_model *model, const char *use, bool is_unified) {
    Session session(model, is_unified ? 512 : 1024, 3, is_unified);
    Tokens out;
    session.decode({{0, part(0, 100)}});
    session.decode({{2, part(400, 50)}});
    session.copy(0, 1);
    session.decode({{0, part(150, 5)}, {1, part(250, 5)}});
    for (int i = 0; i < 6; ++i) {
        add(out, {session.next(0), session.next(1), session.next(2)});
        session.decode({{0, {session.next(0)}}, {1, {session.next(1)}}, {2, {session.next(2)}}});
    }
    session.remove(1, 0); // the one goes, the others stay
    session.decode({{1, part(500, 70)}});
    for (int sequence = 0; sequence < 3; ++sequence) add(out, session.generate(sequence, 4));
    print(use, out);
}

// Two contexts of one process, in turn.
void contexts(llama_model *model) {
    Session one(model, 256, 1, false), other(model, 256, 1, false);
    Tokens out;
    one.decode({{0, part(0, 80)}});
    other.decode({{0, part(300, 80)}});
    for (int i = 0; i < 8; ++i) {
        add(out, one.generate(0, 1));
        add(out, other.generate(0, 1));
    }
    print("contexts", out);
}

// A state of two sequences goes into another context. The one goes, another text takes its cells, the other stays.
void states(llama_model *model) {
    Session from(model, 512, 3, true), to(model, 512, 3, true);
    from.decode({{0, part(0, 80)}});
    from.decode({{1, part(200, 90)}});
    to.restore(from);
    to.remove(0, 0);
    to.decode({{2, part(400, 60)}});
    Tokens out = to.generate(1, 6);
    add(out, to.generate(2, 6));
    print("states", out);
}

// A state is shifted before anything is computed over it.
void shifted_states(llama_model *model) {
    Session from(model, 512, 2, true), to(model, 512, 2, true);
    from.decode({{0, part(0, 80)}});
    to.restore(from);
    to.remove_front(0, 16);
    print("shifted states", to.generate(0, 6));
}

// States that are cut short are refused, and whoever was there goes on as if they had not come.
void broken_states(llama_model *model) {
    Session session(model, 512, 3, true);
    Tokens out;
    session.decode({{0, part(0, 80)}});
    session.decode({{1, part(300, 60)}});
    for (const double share : {.1, .4, .8}) {
        if (session.restore_part(0, 2, share)) throw std::runtime_error("a part of a state was taken for all of it");
        session.remove(2, 0); // older llama.cpp keep the cells that they read
        add(out, session.generate(0, 2));
        session.decode({{2, part(500, 20)}});
        add(out, session.generate(2, 2));
        session.remove(2, 0);
        add(out, session.generate(1, 2));
    }
    print("broken states", out);
}

// A state with damaged rows: its sequence fails until it is removed, and the others go on.
void damaged_states(llama_model *model) {
    Session session(model, 512, 3, true);
    Tokens out;
    session.decode({{0, part(0, 80)}});
    session.decode({{1, part(300, 60)}});
    for (int i = 0; i < 2; ++i) {
        session.restore_damaged(0, 2);
        if (i == 1) session.remove_front(2, 16);
        add(out, session.generate(1, 2));
        bool fails = false;
        try {
            session.decode({{2, part(80, 4)}});
        } catch (const std::runtime_error &) {
            fails = true;
        }
        if (fails != is_virtual()) throw std::runtime_error("a sequence whose state is damaged goes on");
        add(out, session.generate(0, 2));
        session.remove(2, 0);
        session.decode({{2, part(500, 30)}});
        add(out, session.generate(2, 2));
        add(out, session.generate(1, 2));
        session.remove(2, 0);
    }
    print("damaged states", out);
}

// A state in the cells of another sequence's beginning, whose rest lives: a virtual cache drops the rest, and says so,
// if it knows the beginning. -1 stands for the token of a sequence that fails.
void states_over_beginnings(llama_model *model) {
    Session session(model, 512, 3, true);
    Tokens out;
    session.decode({{0, part(0, 40)}});
    session.decode({{1, part(300, 60)}});
    session.remove_beginning(1, 16);
    if (!session.restore_part(0, 2, 1)) throw std::runtime_error("a state was not taken");
    try {
        session.decode({{1, part(80, 4)}});
        out.push_back(session.next(1));
    } catch (const std::runtime_error &) {
        if (!is_virtual()) throw;
        out.push_back(-1);
    }
    add(out, session.generate(0, 2));
    session.decode({{2, part(500, 4)}});
    add(out, session.generate(2, 2));
    session.remove(1, 0);
    session.decode({{1, part(200, 30)}});
    add(out, session.generate(1, 2));
    print("states over beginnings", out);
}

// Every token sees those behind it, too.
void both_ways(llama_model *model) {
    Session session(model, 256, 1, false);
    llama_set_causal_attn(session.context(), false);
    Tokens out;
    for (size_t i = 0; i < 4; ++i) {
        session.remove(0, 0);
        session.decode({{0, part(100 * i, 50)}});
        out.push_back(session.next(0));
    }
    print("both ways", out);
}

void run(const char *model_path, const char *text_path) {
    ggml_backend_load_all();
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("Winnow"), nullptr};
    if (!devices[0]) throw std::runtime_error("there is no device Winnow");
    llama_model_params params = llama_model_default_params();
    params.devices = devices;
    const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
        llama_model_load_from_file(model_path, params), llama_model_free);
    if (!model) throw std::runtime_error("no model");
    std::ifstream file(text_path);
    const std::string prose(std::istreambuf_iterator<char>(file), {});
    text.resize(prose.size());
    const int count =
        llama_tokenize(llama_model_get_vocab(model.get()), prose.data(), static_cast<int32_t>(prose.size()),
                       text.data(), static_cast<int32_t>(text.size()), false, false);
    if (count < 600) throw std::runtime_error("the text is too short");
    text.resize(static_cast<size_t>(count));
    reuse(model.get());
    clear(model.get());
    rollback(model.get());
    share(model.get(), "streams", false);
    share(model.get(), "unified", true);
    contexts(model.get());
    states(model.get());
    shifted_states(model.get());
    broken_states(model.get());
    damaged_states(model.get());
    states_over_beginnings(model.get());
    both_ways(model.get());
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "sequences <model> <file with text>\n");
        return 2;
    }
    try {
        run(arguments[1], arguments[2]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "sequences: %s\n", error.what());
        return 1;
    }
    return 0;
}
