// Random programs over llama.cpp's memory: decodes, and whatever may be done to sequences between them. Each runs in a
// context whose cache is in place and, operation by operation, in one whose cache is Winnow's and full. Both have to
// give the same logits. An encoder has no cache: its first context is without Winnow, and the embeddings are compared.
// A program is made from a seed, and one that fails is printed, as short as it still fails.
//
//   programs <model> <first seed> <count>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

// Not bit for bit: the two sum up a query's keys in another order. Keys and values are rounded to f16, whose unit is
// 2^-11 of a number, and the last bit of such a sum may turn the rounding of a row in the next layer. So each of up to
// 4 layers adds an error of at most a unit of each element, whose square is 2^-22 of the logits', doubled since
// attention adds as much to a token's vector as there was. A token that is missed is mostly worth a thousand times as
// much.
constexpr double tolerance = 4 * 2 * 1.0 / (1 << 22);
constexpr int cells_of_stream = 256; // no cache is smaller
constexpr int chunk = 8192;          // llama4's

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
    bool is_encoder, is_chunked;
};

Program make_program(unsigned seed, const Family &family) {
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
    return program;
}

std::string to_text(const Program &program) {
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
    bool is_encoder_;
    std::unique_ptr<llama_context, decltype(&llama_free)> context_{nullptr, llama_free};
    int width_ = 0;
};

// The plugin's functions, by which contexts that are made from now on have virtual caches or none.
class Plugin {
public:
    explicit Plugin(ggml_backend_dev_t device) {
        ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
        set_kv_ =
            reinterpret_cast<decltype(set_kv_)>(ggml_backend_reg_get_proc_address(registry, "winnow_ggml_set_kv"));
        if (!set_kv_) throw std::runtime_error("the plugin lacks a function");
    }
    void set_kv(const char *config) const {
        std::array<char, 512> message{};
        if (set_kv_(config, message.data(), message.size()) != 0) throw std::runtime_error(message.data());
    }

private:
    int (*set_kv_)(const char *, char *, size_t) = nullptr;
};

// Runs a program in both contexts. What it did is in `log`, as calls of llama.cpp.
class Run {
public:
    // `reference`: the same model, for the context in place.
    Run(llama_model *reference, llama_model *model, const Plugin &plugin, const Program &program, const Family &family)
        : program_(program), vocabulary_(llama_vocab_n_tokens(llama_model_get_vocab(model))) {
        plugin.set_kv("");
        in_place_.emplace(reference, program, family.is_encoder);
        plugin.set_kv("none:k=f16,v=f16");
        virtual_.emplace(model, program, family.is_encoder);
    }

    std::vector<std::string> log;
    int decoded = 0;
    double worst = 0; // of all errors

    // Why the two differ; "" where they do not.
    std::string run() {
        for (const Action &action : program_.actions) {
            do_action(action);
            if (!fault_.empty()) break;
        }
        return fault_;
    }

private:
    llama_pos end_of(int sequence) const {
        const llama_pos last = memory() ? llama_memory_seq_pos_max(memory(), sequence) : -1;
        return last < 0 ? static_cast<llama_pos>(program_.start) : last + 1;
    }
    llama_pos begin_of(int sequence) const { return std::max(llama_memory_seq_pos_min(memory(), sequence), 0); }
    bool is_empty(int sequence) const { return llama_memory_seq_pos_max(memory(), sequence) < 0; }
    llama_memory_t memory() const { return in_place_->memory(); }

    template <typename Operation>
    void both(const std::string &what, Operation &&operation) {
        log.push_back(what);
        operation(*in_place_);
        operation(*virtual_);
    }

    void remove(int sequence, llama_pos begin, llama_pos end) {
        const std::string what =
            "seq_rm " + std::to_string(sequence) + " " + std::to_string(begin) + " " + std::to_string(end);
        both(what, [&](Session &session) { llama_memory_seq_rm(session.memory(), sequence, begin, end); });
    }

    void shift(int sequence, llama_pos begin, llama_pos end, llama_pos by) {
        const std::string what = "seq_add " + std::to_string(sequence) + " " + std::to_string(begin) + " " +
                                 std::to_string(end) + " " + std::to_string(by);
        both(what, [&](Session &session) { llama_memory_seq_add(session.memory(), sequence, begin, end, by); });
    }

    // Tokens for each of some sets of sequences, which have them together.
    void decode(const std::vector<std::pair<std::vector<int>, int>> &parts, unsigned seed) {
        int count = 0;
        std::string what = "decode";
        for (const auto &[sequences, tokens] : parts) {
            count += tokens;
            for (const int sequence : sequences)
                what += (sequence == sequences.front() ? " " : "+") + std::to_string(sequence);
            what += ":" + std::to_string(tokens) + "@" + std::to_string(end_of(sequences.front()));
        }
        llama_batch batch = llama_batch_init(count, 0, static_cast<int>(program_.sequences));
        for (const auto &[sequences, tokens] : parts) {
            llama_pos position = end_of(sequences.front());
            for (int i = 0; i < tokens; ++i) {
                const int at = batch.n_tokens++;
                seed = seed * 1664525U + 1013904223U;
                batch.token[at] = 3 + static_cast<int>((seed >> 8) % static_cast<unsigned>(vocabulary_ - 3));
                batch.pos[at] = position++;
                batch.n_seq_id[at] = 0;
                for (const int sequence : sequences) batch.seq_id[at][batch.n_seq_id[at]++] = sequence;
                batch.logits[at] = 1;
            }
        }
        std::vector<Result> results;
        both(what, [&](Session &session) { results.push_back(session.decode(batch)); });
        llama_batch_free(batch);
        compare(results[0], results[1]);
    }

    void compare(const Result &expected, const Result &found) {
        if (expected.status != found.status)
            fault_ = "llama_decode returned " + std::to_string(expected.status) + " in place, and virtual " +
                     std::to_string(found.status);
        decoded += static_cast<int>(expected.rows.size());
        for (size_t row = 0; row < expected.rows.size() && fault_.empty(); ++row)
            compare_rows(expected.rows[row], found.rows[row], row);
    }

    void compare_rows(const std::vector<float> &expected, const std::vector<float> &found, size_t row) {
        double error = 0, square = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            error += std::pow(expected[i] - found[i], 2);
            square += std::pow(expected[i], 2);
        }
        worst = std::max(worst, error / square);
        const auto likeliest = [](const std::vector<float> &of) {
            return std::max_element(of.begin(), of.end()) - of.begin();
        };
        const auto wanted = likeliest(expected), given = likeliest(found);
        // Where two tokens are as likely as each other, either may be the likeliest.
        const double margin = expected[static_cast<size_t>(wanted)] - expected[static_cast<size_t>(given)];
        if (!(error <= tolerance * square) || !(margin * margin <= 4 * error))
            fault_ = "token " + std::to_string(row) + " of the batch: the error's square is " +
                     std::to_string(error / square) + " of the logits', the likeliest token " + std::to_string(given) +
                     ", in place " + std::to_string(wanted);
    }

    int size_of(unsigned number) const {
        const unsigned sizes[] = {1, 2, 1 + number / 8 % program_.ubatch, program_.ubatch, 2 * program_.ubatch};
        return static_cast<int>(sizes[number % 5]);
    }

    void decode_action(const Action &action, int sequence) {
        if (action.kind < 30) return decode({{{sequence}, size_of(action.count)}}, action.first);
        std::vector<std::pair<std::vector<int>, int>> parts;
        for (unsigned i = 0; i < program_.sequences; ++i)
            if ((action.other >> i & 1U) != 0 || i + 1 == program_.sequences)
                parts.push_back({{static_cast<int>(i)}, 1 + static_cast<int>(action.count >> i) % 9});
        decode(parts, action.first);
    }

    // A batch in which tokens see later ones.
    void decode_both_ways(const Action &action, int sequence) {
        both("set_causal_attn 0", [](Session &session) { session.set_causal(false); });
        decode({{{sequence}, 1 + static_cast<int>(action.count % program_.ubatch)}}, action.first);
        both("set_causal_attn 1", [](Session &session) { session.set_causal(true); });
    }

    // Some tokens for two sequences at once, which have to be as long as each other.
    void decode_together(const Action &action, int sequence, int other) {
        if (!program_.is_unified || sequence == other || end_of(sequence) != end_of(other) ||
            begin_of(sequence) != begin_of(other))
            return;
        decode({{{sequence, other}, size_of(action.count)}}, action.first);
    }

    void remove_action(const Action &action, int sequence) {
        const llama_pos begin = begin_of(sequence), length = end_of(sequence) - begin;
        if (is_empty(sequence)) return;
        const llama_pos at = begin + static_cast<llama_pos>(action.first) % length;
        if (action.kind < 60)
            remove(sequence, at, -1);
        else if (action.kind < 65)
            remove(sequence, at, at + 1 + static_cast<llama_pos>(action.count % 24));
        else if (action.kind < 69)
            remove(sequence, 0, at);
        else
            remove(sequence, -1, -1);
    }

    void copy_action(const Action &action, int sequence, int other) {
        if (sequence == other) return;
        const bool is_part = program_.is_unified && action.count % 3 == 0 && !is_empty(sequence);
        const llama_pos begin = is_part ? begin_of(sequence) + static_cast<llama_pos>(action.first) %
                                                                   (end_of(sequence) - begin_of(sequence))
                                        : -1;
        remove(other, -1, -1);
        both("seq_cp " + std::to_string(sequence) + " " + std::to_string(other) + " " + std::to_string(begin) + " -1",
             [&](Session &session) { llama_memory_seq_cp(session.memory(), sequence, other, begin, -1); });
    }

    void shift_action(const Action &action, int sequence) {
        if (!llama_memory_can_shift(memory()) || is_empty(sequence)) return;
        const llama_pos begin = begin_of(sequence), end = end_of(sequence);
        const llama_pos at = begin + static_cast<llama_pos>(action.first) % (end - begin);
        const auto count = 1 + static_cast<llama_pos>(action.count % 16);
        switch (action.other % 4) {
        case 0: return shift(sequence, at, -1, count);          // a gap
        case 1: return shift(sequence, begin, at, end - begin); // its beginning comes to its end
        default:                                                // a context shift
            remove(sequence, at, at + count);
            shift(sequence, at + count, -1, -count);
        }
    }

    void keep(int sequence) {
        both("seq_keep " + std::to_string(sequence),
             [&](Session &session) { llama_memory_seq_keep(session.memory(), sequence); });
    }

    void clear(bool with_data) {
        both("clear " + std::to_string(with_data),
             [&](Session &session) { llama_memory_clear(session.memory(), with_data); });
    }

    // The numbers are shares of a hundred actions.
    void do_action(const Action &action) {
        const int sequence = static_cast<int>(action.sequence % program_.sequences);
        const int other = static_cast<int>(action.other % program_.sequences);
        if (action.kind < 45 || !memory()) return decode_action(action, sequence);
        if (action.kind < 72) return remove_action(action, sequence);
        if (action.kind < 80) return copy_action(action, sequence, other);
        if (action.kind < 88) return shift_action(action, sequence);
        if (action.kind < 92) return decode_together(action, sequence, other);
        if (action.kind < 96) return decode_both_ways(action, sequence);
        if (action.kind < 98) return keep(sequence);
        clear(action.kind < 99);
    }

    const Program &program_;
    const int vocabulary_;
    std::optional<Session> in_place_, virtual_;
    std::string fault_;
};

// The program without each action that it fails without.
Program shorten(Program program, const std::function<bool(const Program &)> &fails) {
    for (size_t i = program.actions.size(); i-- > 0;) {
        Program shorter = program;
        shorter.actions.erase(shorter.actions.begin() + static_cast<ptrdiff_t>(i));
        if (fails(shorter)) program = std::move(shorter);
    }
    return program;
}

using Model = std::unique_ptr<llama_model, decltype(&llama_model_free)>;

Model load(const char *path, ggml_backend_dev_t *devices) {
    llama_model_params params = llama_model_default_params();
    params.devices = devices;
    Model model(llama_model_load_from_file(path, params), llama_model_free);
    if (!model) throw std::runtime_error("no model");
    return model;
}

bool run(const char *path, unsigned first, unsigned count) {
    ggml_backend_load_all();
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("Winnow"), nullptr};
    if (!devices[0]) throw std::runtime_error("there is no device Winnow");
    const Plugin plugin(devices[0]);
    const Model model = load(path, devices);
    std::array<char, 64> architecture{};
    llama_model_meta_val_str(model.get(), "general.architecture", architecture.data(), architecture.size());
    const std::string name = architecture.data();
    const Family family{name == "gemma-embedding", name == "llama4"};
    const Model without = family.is_encoder ? load(path, devices + 1) : Model(nullptr, llama_model_free);
    llama_model *const reference = without ? without.get() : model.get();
    int decoded = 0;
    double worst = 0;
    bool is_right = true;
    for (unsigned seed = first; seed < first + count; ++seed) {
        const Program program = make_program(seed, family);
        Run run(reference, model.get(), plugin, program, family);
        if (run.run().empty()) {
            decoded += run.decoded;
            worst = std::max(worst, run.worst);
            continue;
        }
        is_right = false;
        const Program shortest = shorten(program, [&](const Program &shorter) {
            return !Run(reference, model.get(), plugin, shorter, family).run().empty();
        });
        Run again(reference, model.get(), plugin, shortest, family);
        const std::string fault = again.run();
        std::printf("seed %u fails, %s:\n", seed, to_text(shortest).c_str());
        for (const std::string &line : again.log) std::printf("  %s\n", line.c_str());
        std::printf("  %s\n", fault.c_str());
    }
    std::printf("%u programs, %d tokens decoded, largest error %.1e\n", count, decoded, worst);
    return is_right;
}

} // namespace

int main(int count, char **arguments) {
    if (count != 4) {
        std::fprintf(stderr, "programs <model> <first seed> <count>\n");
        return 2;
    }
    try {
        return run(arguments[1], static_cast<unsigned>(std::atoi(arguments[2])),
                   static_cast<unsigned>(std::atoi(arguments[3])))
                   ? 0
                   : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "programs: %s\n", error.what());
        return 1;
    }
}
