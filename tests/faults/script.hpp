// What a host does with a backend, as a list of calls, each of which can be repeated. The driver (sweep.hpp) runs them
// and lets OpenCL's calls fail; a script says what has to be the same in the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "saved_state.hpp"
#include "session.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {

constexpr int32_t not_run = -1; // in the place of a status: what the call needs could not be made

enum class Effect {
    none,     // whatever goes wrong, the call can be repeated
    changes,  // WINNOW_ERROR_DEVICE may leave it half done: `recover` comes before the next try
    releases, // the object is gone, whatever the status
};

struct Action {
    std::string name;
    std::function<int32_t()> run;
    Effect effect = Effect::none;
    std::function<std::string()> result = {};  // what it gave, after it succeeded
    std::function<std::string()> observe = {}; // what has to be the same before and after a failure
    std::function<void()> prepare = {};        // before the first try, so that `recover` can bring that back
    // Brings back what was before the action. Without it the action may be run again after it passed, too.
    std::function<void()> recover = {};
};

class Script {
public:
    virtual ~Script() = default;
    const std::vector<Action>& actions() const { return actions_; }
    Session& session() { return session_; }
    // Between two tries: makes the backend forget the arguments that kernels were given, so that both make as many
    // calls.
    void unsettle();

protected:
    explicit Script(const std::string& backend) : session_(backend) {}
    void add(Action action) { actions_.push_back(std::move(action)); }
    // The first and the last action: a context, made and destroyed.
    void add_create();
    void add_destroy();

    // Waits for all; where memory was lacking once more, as the header allows.
    int32_t finish();
    // Waits for an event, destroys it, and tells how that went. When it returns, nothing runs any more.
    int32_t wait(winnow_event* event);

    const winnow_api& api() const { return session_.api(); }
    const winnow_cache_api& caches() const { return session_.caches(); }
    const winnow_opencl_api& opencl() const { return session_.opencl(); }
    winnow_context* context() const { return session_.context(); }

    Session session_;

private:
    std::vector<Action> actions_;
};

// A generation without a cache of Winnow's: buffers, kv_append, attention over a prompt and over single tokens in
// several formats, rows from format to format, events.
class AttentionScript : public Script {
public:
    explicit AttentionScript(const std::string& backend);

private:
    void add_buffers();
    void add_formats(size_t pair);
    void add_rows();
    void add_waiting_results();
    void add_events();
    int32_t dequantize(winnow_event** event = nullptr);
    int32_t make_buffer(winnow_buffer*& buffer, uint64_t bytes);
    int32_t append(size_t index, int64_t first, int64_t tokens);
    int32_t attend(size_t index, int64_t queries, int64_t keys);

    struct Pair {
        uint32_t k, v;
        winnow_buffer *k_rows = nullptr, *v_rows = nullptr;
    };
    std::vector<Pair> pairs_{{WINNOW_TYPE_F16, WINNOW_TYPE_F16}, {WINNOW_TYPE_Q8_0, WINNOW_TYPE_Q4_0}};
    winnow_buffer *rows_ = nullptr, *imported_ = nullptr;
    winnow_event* event_ = nullptr;
    std::vector<char> host_memory_, read_;
    HostTensor k_, v_, indices_, q_, out_, one_q_, one_out_, dense_;
    std::string dequantized_; // what dense_ has to become
};

// The life of a cache of two layers: created, reserved, a prompt and single tokens until tokens are evicted, edits, a
// file, another configuration, and its end.
class CacheScript : public Script {
public:
    explicit CacheScript(const std::string& backend);

private:
    struct StepArgs {
        int64_t layer, tokens;
        uint64_t seed;
        bool scores = false;
        bool waits_at_once = true; // for an event of its own, else with finish
        int64_t others = 0;        // of the tokens the last so many are sequence 1's
    };
    Action changing(std::string name, std::function<int32_t()> run);
    void add_step(const StepArgs& args);
    void add_steps();
    void add_looks();
    void add_edits();
    void add_rows();
    void add_exact_rows();
    void add_files();
    int32_t create();
    int32_t step(const StepArgs& args);
    std::string portrait() const;
    std::string observed() const;
    void save();
    void recover();
    int32_t set_config(const char* config);

    TemporaryFolder folder_;
    winnow_cache* cache_ = nullptr;
    const char *config_ = nullptr, *saved_config_ = nullptr; // of the cache, and as it was saved
    StateInMemory state_;
    std::vector<float> out_, scores_;
    HostTensor numbers_, k_rows_, v_rows_, held_, exact_k_, exact_v_;
};

} // namespace winnow::faults
