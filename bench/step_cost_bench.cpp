// What a step costs where its kernels have next to nothing to do: so few keys that the host's work is what is measured,
// beside the launch of a kernel that does nothing, which no step can do without. All calls wait for their results.
#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "attention.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t head_size = 64, kv_heads = 1, group = 1;
constexpr int64_t tokens = 16; // of a cache
constexpr int runs = 16;       // of a turn
constexpr int width = 15;      // of the table's columns

struct Call {
    std::string operation, config;
    std::function<void()> run, prepare = [] {}; // `prepare` is not timed
    double seconds = std::numeric_limits<double>::infinity();
};

// The shortest time of each.
void measure(std::vector<Call>& calls, double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    for (Call& call : calls) { // compiles
        call.prepare();
        call.run();
    }
    const Clock::time_point begin = Clock::now();
    do {
        for (Call& call : calls)
            for (int run = 0; run < runs; ++run) {
                call.prepare();
                const Clock::time_point start = Clock::now();
                call.run();
                call.seconds = std::min(call.seconds, since(start));
            }
    } while (since(begin) < seconds);
}

class NoWork {
public:
    explicit NoWork(std::unique_ptr<PlainDevice> device)
        : device_(std::move(device)), sink_(queue().memory(CL_MEM_READ_WRITE, sizeof(float) * device_->items())) {
        const cl_mem sink = sink_.get();
        kernel_ = queue().kernel("nothing", sink);
    }
    void run() {
        queue().enqueue(kernel_, 1, device_->items());
        queue().finish();
    }

private:
    const PlainQueue& queue() const { return device_->queues().front(); }

    std::unique_ptr<PlainDevice> device_;
    OwnedMemory sink_;
    OwnedKernel kernel_;
};

class AppendedToken {
public:
    explicit AppendedToken(Backend& backend)
        : backend_(backend), source_(backend, WINNOW_TYPE_F32, kv_heads * head_size),
          cache_(backend, WINNOW_TYPE_F16, kv_heads * tokens, head_size), index_(backend, WINNOW_TYPE_I32, 1),
          source_tensor_(source_.tensor(1, kv_heads, 1, head_size)),
          cache_tensor_(cache_.tensor(1, kv_heads, tokens, head_size)), index_tensor_(index_.tensor(1, 1, 1, 1)) {
        *static_cast<int32_t*>(index_.data()) = 0;
        desc_.struct_size = sizeof desc_;
        desc_.k_src = &source_tensor_;
        desc_.k_cache = &cache_tensor_;
        desc_.k_row_indices = &index_tensor_;
    }
    void run() { backend_.run(desc_); }

private:
    Backend& backend_;
    Memory source_, cache_, index_;
    winnow_tensor source_tensor_, cache_tensor_, index_tensor_;
    winnow_kv_append_desc desc_{};
};

// A cache of one layer that has `tokens` or one more.
class SmallCache {
public:
    SmallCache(Backend& backend, const AttentionSizes& sizes, const std::string& config)
        : backend_(backend), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * head_size),
          kv_(backend, WINNOW_TYPE_F32, kv_heads * head_size),
          out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * head_size),
          q_tensor_(q_.tensor(1, sizes.q_heads(), 1, head_size)), kv_tensor_(kv_.tensor(1, kv_heads, 1, head_size)),
          out_tensor_(out_.tensor(1, sizes.q_heads(), 1, head_size)),
          cache_(backend.make_cache(layer_of(sizes, config, 1 << 20))) {
        for (int64_t token = 0; token < tokens; ++token) append();
    }
    ~SmallCache() { backend_.destroy(cache_); }
    SmallCache(const SmallCache&) = delete;
    SmallCache& operator=(const SmallCache&) = delete;

    void append() { step(true, false); }
    void attend() { step(false, true); }
    void decode() { step(true, true); }
    void take_back() { backend_.truncate(cache_, 0, tokens); } // what was appended beyond the first tokens

private:
    void step(bool appends, bool attends) {
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        if (appends) desc.k = desc.v = &kv_tensor_;
        if (attends) {
            desc.q = &q_tensor_;
            desc.out = &out_tensor_;
        }
        backend_.run(cache_, desc);
    }

    Backend& backend_;
    Memory q_, kv_, out_;
    winnow_tensor q_tensor_, kv_tensor_, out_tensor_;
    winnow_cache* cache_;
};

} // namespace

nlohmann::json bench_step_cost(const Options& options, Backend& backend) {
    const AttentionSizes sizes{kv_heads, group, 1, 1, head_size, WINNOW_TYPE_F16, WINNOW_TYPE_F16};
    Attention attention(backend, sizes);
    AppendedToken token(backend);
    std::vector<Call> calls{{"sdpa", "", [&] { attention.run(); }}, {"kv_append", "", [&] { token.run(); }}};
    std::vector<std::unique_ptr<SmallCache>> caches;
    for (const char* policy : {"none:", "window:budget=1024,", "winnow:budget=1024,", "h2o:budget=1024,"})
        for (const char* rest : {"sink=4", "k=q8_0,v=f16,residual=8"}) { // all tokens are dense, or some are packed
            const std::string config = std::string(policy) + rest;
            SmallCache* const cache = caches.emplace_back(std::make_unique<SmallCache>(backend, sizes, config)).get();
            const auto take_back = [=] { cache->take_back(); };
            calls.push_back({"append", config, [=] { cache->append(); }, take_back});
            calls.push_back({"attend", config, [=] { cache->attend(); }, take_back});
            calls.push_back({"append and attend", config, [=] { cache->decode(); }, take_back});
        }
    std::unique_ptr<NoWork> nothing;
    if (auto device = PlainDevice::of(options, backend)) {
        nothing = std::make_unique<NoWork>(std::move(device));
        calls.push_back({"empty launch", "", [&] { nothing->run(); }});
    }
    measure(calls, options.seconds * static_cast<double>(calls.size()));

    nlohmann::json rows = nlohmann::json::array();
    print_row({"step_cost: one token, " + std::to_string(tokens) + " in the cache", "us", "above empty, us"}, width);
    for (const Call& call : calls) {
        const std::string name = call.config.empty() ? call.operation : call.config + " " + call.operation;
        std::vector<std::string> cells{name, fixed(call.seconds * 1e6, 2)};
        nlohmann::json row{{"operation", call.operation}, {"config", call.config}, {"seconds", call.seconds}};
        if (nothing) {
            cells.push_back(fixed((call.seconds - calls.back().seconds) * 1e6, 2));
            row["empty_launch_seconds"] = calls.back().seconds;
        }
        print_row(cells, width);
        rows.push_back(std::move(row));
    }
    return rows;
}

} // namespace winnow::bench
