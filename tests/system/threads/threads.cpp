// Eight threads, each with contexts of its own, do at once what one of them did alone, and get the same. Built with
// -fsanitize=thread, so that whatever they share without a lock is reported.
//
//     winnow-threads BACKEND [DEVICE]          all threads, each its own contexts
//     winnow-threads --race BACKEND [DEVICE]   two threads on one context, which is forbidden: has to be reported
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "saved_state.hpp"
#include "temporary_folder.hpp"
#include "winnow_loader.h"

namespace {

constexpr int thread_count = 8;
constexpr int64_t heads = 2, size = 64, tokens = 40;

const winnow_api* api = nullptr;
const winnow_cache_api* caches = nullptr;
const char* device = nullptr;
std::string folder; // for saved caches

void WINNOW_CALL log_nothing(void* user_data, int32_t, const char* text) {
    auto& count = *static_cast<size_t*>(user_data); // the context's thread alone calls
    count += std::strlen(text);
}

class Context {
public:
    Context() {
        winnow_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.device = device;
        desc.log = log_nothing;
        desc.log_user_data = &logged_;
        desc.log_level = WINNOW_LOG_DEBUG;
        char message[512] = "";
        if (api->context_create(&desc, &context_, message, sizeof message) != WINNOW_OK)
            throw std::runtime_error(message);
    }
    ~Context() { api->context_destroy(context_); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    operator winnow_context*() const { return context_; }
    void ok(int32_t status) const {
        if (status != WINNOW_OK) throw std::runtime_error(api->context_message(context_));
    }

private:
    winnow_context* context_ = nullptr;
    size_t logged_ = 0;
};

winnow_tensor tensor_of(uint32_t type, std::array<int64_t, 4> shape, void* data, winnow_buffer* buffer = nullptr) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.data = data;
    tensor.buffer = buffer;
    std::copy(shape.begin(), shape.end(), tensor.shape);
    uint64_t row = 0;
    api->row_bytes(type, shape[3], &row, nullptr, 0);
    tensor.stride[3] = type < WINNOW_TYPE_Q8_0 ? static_cast<int64_t>(row) / shape[3] : 0;
    tensor.stride[2] = static_cast<int64_t>(row);
    for (int axis = 1; axis >= 0; --axis) tensor.stride[axis] = tensor.stride[axis + 1] * shape[axis + 1];
    return tensor;
}

std::vector<float> numbers(int64_t count, unsigned seed) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
        seed = seed * 1664525u + 1013904223u;
        value = static_cast<float>(seed >> 20) / 2048 - 1;
    }
    return values;
}

// Appends to a packed cache of the host's, attends to it, waits for an event.
void rows(const Context& context, unsigned seed, std::vector<float>& results) {
    uint64_t row = 0;
    api->row_bytes(WINNOW_TYPE_Q8_0, size, &row, nullptr, 0);
    winnow_buffer_desc buffer_desc{};
    buffer_desc.struct_size = sizeof buffer_desc;
    buffer_desc.kind = WINNOW_BUFFER_ALLOCATE;
    buffer_desc.size = row * heads * tokens;
    winnow_buffer* buffer = nullptr;
    context.ok(api->buffer_create(context, &buffer_desc, &buffer));
    std::vector<float> source = numbers(heads * tokens * size, seed), q = numbers(2 * heads * size, seed + 1);
    std::vector<int32_t> indices(tokens);
    for (int64_t t = 0; t < tokens; ++t) indices[static_cast<size_t>(t)] = static_cast<int32_t>(tokens - 1 - t);
    const winnow_tensor src = tensor_of(WINNOW_TYPE_F32, {1, heads, tokens, size}, source.data());
    const winnow_tensor cache = tensor_of(WINNOW_TYPE_Q8_0, {1, heads, tokens, size}, nullptr, buffer);
    const winnow_tensor places = tensor_of(WINNOW_TYPE_I32, {1, 1, 1, tokens}, indices.data());
    winnow_kv_append_desc append{};
    append.struct_size = sizeof append;
    append.k_src = &src;
    append.k_cache = &cache;
    append.k_row_indices = &places;
    context.ok(api->kv_append(context, &append, nullptr));
    std::vector<float> output(q.size());
    const winnow_tensor query = tensor_of(WINNOW_TYPE_F32, {1, 2 * heads, 1, size}, q.data());
    const winnow_tensor out = tensor_of(WINNOW_TYPE_F32, {1, 2 * heads, 1, size}, output.data());
    winnow_sdpa_desc sdpa{};
    sdpa.struct_size = sizeof sdpa;
    sdpa.q = &query;
    sdpa.k = sdpa.v = &cache;
    sdpa.out = &out;
    winnow_event* event = nullptr;
    context.ok(api->sdpa(context, &sdpa, &event));
    context.ok(api->event_wait(event));
    context.ok(api->event_destroy(event));
    context.ok(api->finish(context));
    results.insert(results.end(), output.begin(), output.end());
    context.ok(api->buffer_destroy(buffer));
}

void step(const Context& context, winnow_cache* cache, int64_t count, unsigned seed, std::vector<float>& results) {
    std::vector<float> k = numbers(heads * count * size, seed), q = numbers(2 * heads * count * size, seed + 1);
    std::vector<float> output(q.size());
    const winnow_tensor rows = tensor_of(WINNOW_TYPE_F32, {1, heads, count, size}, k.data());
    const winnow_tensor query = tensor_of(WINNOW_TYPE_F32, {1, 2 * heads, count, size}, q.data());
    const winnow_tensor out = tensor_of(WINNOW_TYPE_F32, {1, 2 * heads, count, size}, output.data());
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k = desc.v = &rows;
    desc.q = &query;
    desc.out = &out;
    context.ok(caches->step(cache, &desc, nullptr));
    context.ok(api->finish(context));
    results.insert(results.end(), output.begin(), output.end());
}

winnow_cache* new_cache(const Context& context) {
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = "h2o:budget=32,residual=8,sink=2,cadence=4,k=q8_0,v=q8_0";
    desc.layers = 1;
    desc.kv_num_heads = heads;
    desc.q_num_heads = 2 * heads;
    desc.head_size = size;
    desc.context = 200;
    winnow_cache* cache = nullptr;
    context.ok(caches->create(context, &desc, &cache));
    return cache;
}

// A cache that forgets, is saved, and goes on in another context.
void forgetting(unsigned seed, int number, std::vector<float>& results) {
    const std::string path = folder + "/" + std::to_string(number);
    {
        const Context context;
        winnow_cache* const cache = new_cache(context);
        step(context, cache, 30, seed, results);
        for (unsigned at = 0; at < 6; ++at) step(context, cache, 1, seed + 7 * at, results);
        context.ok(winnow::save_state(*caches, cache, path));
        context.ok(caches->destroy(cache));
    }
    const Context context;
    winnow_cache* const cache = new_cache(context);
    context.ok(winnow::load_state(*caches, cache, path));
    for (unsigned at = 0; at < 6; ++at) step(context, cache, 1, seed + 11 * at, results);
    std::array<int64_t, 64> positions{};
    winnow_cache_tokens look{};
    look.struct_size = sizeof look;
    look.capacity = positions.size();
    look.positions = positions.data();
    context.ok(caches->tokens(cache, 0, 0, 1, &look));
    for (uint64_t at = 0; at < look.count; ++at) results.push_back(static_cast<float>(positions.at(at)));
    context.ok(caches->destroy(cache));
}

std::vector<float> work(int number) {
    std::vector<float> results;
    const auto seed = static_cast<unsigned>(1000 * number);
    for (unsigned round = 0; round < 2; ++round) {
        rows(Context(), seed + round, results);
        forgetting(seed + 500 + round, number, results);
    }
    return results;
}

bool run_all() {
    std::vector<std::vector<float>> together(thread_count);
    std::atomic<int> failures{0};
    std::atomic<int> waiting{thread_count}; // so that all of them begin at once
    std::vector<std::thread> threads;
    for (int number = 0; number < thread_count; ++number)
        threads.emplace_back([&, number] {
            --waiting;
            while (waiting > 0) std::this_thread::yield();
            try {
                together[static_cast<size_t>(number)] = work(number);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "thread %d: %s\n", number, error.what());
                ++failures;
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (int number = 0; number < thread_count && failures == 0; ++number) {
        const std::vector<float> alone = work(number);
        const std::vector<float>& other = together[static_cast<size_t>(number)];
        if (alone.size() == other.size() && std::memcmp(alone.data(), other.data(), 4 * alone.size()) == 0) continue;
        std::fprintf(stderr, "thread %d has other results among others than alone\n", number);
        ++failures;
    }
    return failures == 0;
}

// The host's mistake that the sanitizer has to see through the driver's suppressions: one thread looks at the counts
// that a call in another one changes.
void race() {
    const Context context;
    std::vector<float> results;
    std::thread other([&] { rows(context, 1, results); });
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    for (int looks = 0; looks < 100; ++looks) context.ok(api->context_stats(context, &stats));
    other.join();
}

} // namespace

int main(int argc, char** argv) {
    const bool is_race = argc > 1 && std::strcmp(argv[1], "--race") == 0;
    const char* const backend = argc > 1 + is_race ? argv[1 + is_race] : nullptr;
    device = argc > 2 + is_race ? argv[2 + is_race] : nullptr;
    winnow_library library{};
    char message[1024] = "";
    if (winnow_library_open(backend, nullptr, &library, message, sizeof message) != WINNOW_OK) {
        std::fprintf(stderr, "%s\n", message);
        return 1;
    }
    api = library.api;
    caches = library.caches;
    if (caches == nullptr) throw std::runtime_error("the backend has no caches");
    const winnow::TemporaryFolder files;
    folder = files.path();
    bool is_right = true;
    try {
        is_race ? race() : static_cast<void>(is_right = run_all());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        is_right = false;
    }
    if (is_right) std::puts("every thread has what it has alone");
    return is_right ? 0 : 1;
}
