// Random programs over llama.cpp's memory: decodes, and whatever may be done to sequences between them, some with
// states that are saved and put back. Each runs in a context whose cache is in place and, operation by operation, in
// one whose cache is Winnow's and full. Both have to give the same logits. An encoder has no cache: its first context
// is without Winnow, and the embeddings are compared. A program is made from a seed, and one that fails is printed, as
// short as it still fails. Without the plugin both contexts are llama.cpp's: so it shows which programs end llama.cpp
// itself.
//
//   programs <model> <first seed> <count> <first seed with states> <count of those> host|both: where states may lie
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"
#include "random_program.hpp"

using namespace random_program;

namespace {

// Not bit for bit: the two sum up a query's keys in another order. Keys and values are rounded to f16, whose unit is
// 2^-11 of a number, and the last bit of such a sum may turn the rounding of a row in the next layer. So each of up to
// 4 layers adds an error of at most a unit of each element, whose square is 2^-22 of the logits', doubled since
// attention adds as much to a token's vector as there was. A token that is missed is mostly worth a thousand times as
// much.
constexpr double tolerance = 4 * 2 * 1.0 / (1 << 22);

// Where a state overwrites the first token of a sequence whose beginning llama.cpp had removed, the plugin has dropped
// the rest of the sequence, and says so to whoever sees it (hosts/ggml/INTERNALS.md, States).
bool &has_dropped_tokens() {
    static bool was_said = false;
    return was_said;
}

void take_log(ggml_log_level, const char *text, void *) {
    std::fputs(text, stderr);
    if (std::strstr(text, "its token was dropped for a state")) has_dropped_tokens() = true;
}

// The plugin's functions, by which contexts that are made from now on have virtual caches or none.
class Plugin {
public:
    explicit Plugin(ggml_backend_dev_t device) { // nullptr: there is none
        if (!device) return;
        ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
        set_kv_ =
            reinterpret_cast<decltype(set_kv_)>(ggml_backend_reg_get_proc_address(registry, "winnow_ggml_set_kv"));
        if (!set_kv_) throw std::runtime_error("the plugin lacks a function");
    }
    void set_kv(const char *config) const {
        std::array<char, 512> message{};
        if (set_kv_ && set_kv_(config, message.data(), message.size()) != 0) throw std::runtime_error(message.data());
    }

private:
    int (*set_kv_)(const char *, char *, size_t) = nullptr;
};

// Runs a program in both contexts. What it did is in `log`, as calls of llama.cpp.
class Run {
public:
    // `reference`: the same model, for the context in place.
    Run(llama_model *reference, llama_model *model, const Plugin &plugin, const Program &program, const Family &family)
        : program_(program), has_device_states_(family.has_device_states),
          vocabulary_(llama_vocab_n_tokens(llama_model_get_vocab(model))) {
        plugin.set_kv("");
        in_place_.emplace(reference, program, family.is_encoder);
        plugin.set_kv("none:k=f16,v=f16");
        virtual_.emplace(model, program, family.is_encoder);
    }

    std::vector<std::string> log;
    int decoded = 0;
    double worst = 0;         // of all errors
    bool was_refused = false; // the program ended early, because the plugin had dropped tokens

    // Why the two differ; "" where they do not.
    std::string run() {
        for (const Action &action : program_.actions) {
            do_action(action);
            if (!fault_.empty() || was_refused) break;
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
        has_dropped_tokens() = false;
        both(what, [&](Session &session) { results.push_back(session.decode(batch)); });
        llama_batch_free(batch);
        compare(results[0], results[1]);
    }

    void compare(const Result &expected, const Result &found) {
        was_refused = expected.status == 0 && found.status != 0 && has_dropped_tokens();
        if (was_refused) return;
        if (expected.status != found.status)
            fault_ = "llama_decode returned " + std::to_string(expected.status) + " in place, and virtual " +
                     std::to_string(found.status);
        awaits_copy_ = awaits_copy_ && expected.status != 0;
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
        awaits_copy_ = awaits_copy_ || !program_.is_unified;
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

    // Both have to have as many bytes.
    template <typename Operation>
    void both_sizes(const std::string &what, Operation &&operation) {
        std::vector<size_t> sizes;
        both(what, [&](Session &session) { sizes.push_back(operation(session)); });
        if (sizes[0] != sizes[1])
            fault_ = std::to_string(sizes[0]) + " bytes in place, and virtual " + std::to_string(sizes[1]);
    }

    void save_action(const Action &action, int sequence) {
        const int of = action.first % 6 == 0 ? all : sequence;
        llama_state_seq_flags flags = of == all ? 0 : kinds_of_states[action.count % std::size(kinds_of_states)];
        if (!has_device_states_) flags &= ~on_device;
        both_sizes("state of " + std::to_string(of) + ", flags " + std::to_string(flags),
                   [&](Session &session) { return session.save(of, flags); });
    }

    void restore_action(const Action &action, int sequence, int other) {
        const int of = action.first % 6 == 0 ? all : other;
        const std::optional<llama_state_seq_flags> flags = in_place_->kept(of);
        if (!flags) return;
        const bool is_in_memory = (*flags & on_device) == 0, takes = is_in_memory && action.count % 4 == 0;
        const unsigned eighths = is_in_memory && action.count % 9 == 0 ? 1 + action.other % 7 : 8;
        if (takes) virtual_->take_state(of, *in_place_);
        both_sizes("put " + std::to_string(eighths) + "/8 of the state of " + std::to_string(of) + " back as " +
                       std::to_string(sequence) + (takes ? ", that of the cache in place in both" : ""),
                   [&](Session &session) { return session.restore(of, sequence, eighths); });
        // One of two caches, or part of one, may have cells then whose rows llama.cpp has not written.
        if (eighths < 8) return of == all ? clear(true) : remove(sequence, -1, -1);
        // As llama-server goes back to a checkpoint.
        if ((*flags & partial) != 0 && action.count % 2 == 0) remove(sequence, end_of(sequence), -1);
    }

    // The numbers are shares of a hundred actions; those above come between them.
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
        if (action.kind < 100) return clear(action.kind < 99);
        if (awaits_copy_) return;
        if (action.kind == 100) return save_action(action, sequence);
        restore_action(action, sequence, other);
    }

    const Program &program_;
    const bool has_device_states_;
    const int vocabulary_;
    std::optional<Session> in_place_, virtual_;
    std::string fault_;
    // llama.cpp copies streams before the next decode; a state between would be of other rows than its cells.
    bool awaits_copy_ = false;
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

bool run(const char *path, const std::array<unsigned, 4> &seeds, bool has_device_states) {
    const auto [first, count, first_with_states, count_with_states] = seeds;
    llama_log_set(take_log, nullptr);
    ggml_backend_load_all();
    ggml_backend_dev_t devices[] = {ggml_backend_dev_by_name("Winnow"), nullptr};
    const Plugin plugin(devices[0]);
    const Model model = load(path, devices);
    std::array<char, 64> architecture{};
    llama_model_meta_val_str(model.get(), "general.architecture", architecture.data(), architecture.size());
    const std::string name = architecture.data();
    const Family family{name == "gemma-embedding", name == "llama4", has_device_states};
    const Model without = family.is_encoder ? load(path, devices + 1) : Model(nullptr, llama_model_free);
    llama_model *const reference = without ? without.get() : model.get();
    int decoded = 0;
    unsigned refused = 0;
    double worst = 0;
    bool is_right = true;
    for (unsigned i = 0; i < count + count_with_states; ++i) {
        const bool has_states = i >= count;
        const unsigned seed = has_states ? first_with_states + i - count : first + i;
        const Program program = make_program(seed, family, has_states);
        Run run(reference, model.get(), plugin, program, family);
        if (run.run().empty()) {
            decoded += run.decoded;
            refused += run.was_refused;
            worst = std::max(worst, run.worst);
            continue;
        }
        is_right = false;
        const Program shortest = shorten(program, [&](const Program &shorter) {
            return !Run(reference, model.get(), plugin, shorter, family).run().empty();
        });
        Run again(reference, model.get(), plugin, shortest, family);
        const std::string fault = again.run();
        std::printf("seed %u%s fails, %s:\n", seed, has_states ? " with states" : "", to_text(shortest).c_str());
        for (const std::string &line : again.log) std::printf("  %s\n", line.c_str());
        std::printf("  %s\n", fault.c_str());
    }
    std::printf("%u programs, %d tokens decoded, largest error %.1e, %u refused\n", count + count_with_states, decoded,
                worst, refused);
    return is_right;
}

} // namespace

int main(int count, char **arguments) {
    const std::string where = count == 7 ? arguments[6] : "";
    if (where != "host" && where != "both") {
        std::fprintf(stderr,
                     "programs <model> <first seed> <count> <first seed with states> <count of those> host|both\n");
        return 2;
    }
    try {
        std::array<unsigned, 4> seeds{};
        for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<unsigned>(std::atoi(arguments[2 + i]));
        return run(arguments[1], seeds, where == "both") ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "programs: %s\n", error.what());
        return 1;
    }
}
