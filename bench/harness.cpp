// Backend, memory and timing of the benchmarks.
#include "harness.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>

namespace winnow::bench {
namespace {

// As large as a huge page: like the memory that Winnow allocates itself, what is measured lies in huge ones.
constexpr size_t page = size_t{2} << 20;

// A float in [-1, 1] whose upper bits are right in f16 and bf16 too.
uint16_t half_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) < 0x38800000u) return 0; // what would be denormal in f16
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | ((bits & 0x7fffffffu) - 0x38000000u) >> 13);
}

void fill(void* data, uint32_t type, uint64_t size) {
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
    const uint64_t element = type_size(type);
    for (uint64_t i = 0; i < size / element; ++i) {
        const float x = distribution(random);
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        const uint16_t half = type == WINNOW_TYPE_F16 ? half_of(x) : static_cast<uint16_t>(bits >> 16);
        if (element == sizeof x) {
            std::memcpy(static_cast<char*>(data) + i * element, &x, element);
        } else {
            std::memcpy(static_cast<char*>(data) + i * element, &half, element);
        }
    }
}

void* allocate_pages(uint64_t size) {
    const uint64_t rounded = (size + page - 1) / page * page;
    void* data = std::aligned_alloc(page, rounded);
    if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(data, rounded, MADV_HUGEPAGE);
#endif
    return data;
}

void WINNOW_CALL on_team(void* user_data, uint32_t count, winnow_task task, void* task_data) {
    [[maybe_unused]] const int threads = static_cast<int>(*static_cast<const uint32_t*>(user_data));
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
    for (uint32_t i = 0; i < count; ++i) task(task_data, i);
}

// The threads that ggml computes with, in the way in which hosts/ggml hands them over.
void lend_threads(const Options& options, winnow_context_desc& desc) {
    offer_host_threads(options.threads);
    desc.parallel_for = on_team;
    desc.parallel_user_data = const_cast<uint32_t*>(&options.threads);
}

} // namespace

void offer_host_threads(uint32_t threads) {
    std::string devices;
    for (uint32_t i = 0; i < threads; ++i) devices += "basic ";
    setenv("POCL_DEVICES", (devices + "pthread").c_str(), 0);
}

void on_threads(uint32_t threads, const std::function<void(uint32_t)>& task) {
    std::exception_ptr failure;
    std::mutex mutex;
    const auto run = [&](uint32_t i) {
        try {
            task(i);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
        }
    };
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static, 1)
#endif
    for (uint32_t i = 0; i < threads; ++i) run(i);
    if (failure) std::rethrow_exception(failure);
}

bool can_lend_threads() {
#ifdef _OPENMP
    return true;
#else
    return false;
#endif
}

Backend::Backend(const Options& options) : opened_(options.backend) {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = options.device.empty() ? nullptr : options.device.c_str();
    desc.variants = options.variants.empty() ? nullptr : options.variants.c_str();
    desc.log = log;
    desc.log_user_data = this;
    desc.log_level = WINNOW_LOG_INFO;
    if (options.host_threads) lend_threads(options, desc);
    context_ = opened_.make_context(desc);
    info_.struct_size = sizeof info_;
    api().context_info(context(), &info_);
}

void WINNOW_CALL Backend::log(void* backend, int32_t level, const char* text) {
    auto& self = *static_cast<Backend*>(backend);
    if (level <= WINNOW_LOG_WARNING) std::fprintf(stderr, "winnow-bench: %s\n", text);
    const std::lock_guard lock(self.messages_mutex_);
    self.messages_.emplace_back(text);
}

std::vector<std::string> Backend::messages() const {
    const std::lock_guard lock(messages_mutex_);
    return messages_;
}

void Backend::check(int32_t status) {
    if (status != WINNOW_OK) throw std::runtime_error(api().context_message(context()));
}

std::string Backend::variant(const winnow_sdpa_desc& desc) {
    char answer[512] = "";
    check(api().supports(context(), WINNOW_OPERATION_SDPA, &desc, answer, sizeof answer));
    return answer;
}

void Backend::run(const winnow_sdpa_desc& desc) {
    check(api().sdpa(context(), &desc, nullptr));
    check(api().finish(context()));
}

void Backend::run(const winnow_kv_append_desc& desc) {
    check(api().kv_append(context(), &desc, nullptr));
    check(api().finish(context()));
}

void Backend::run(const winnow_kv_requantize_desc& desc) {
    check(api().kv_requantize(context(), &desc, nullptr));
    check(api().finish(context()));
}

void Backend::run(const winnow_kv_dequantize_desc& desc) {
    enqueue(desc);
    check(api().finish(context()));
}

void Backend::look_at_event(const std::function<void(void*)>& look) const {
    constexpr int64_t size = 16; // of the shortest row
    float row[size] = {};
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = row;
    for (int64_t& each : tensor.shape) each = 1;
    for (int64_t& each : tensor.stride) each = sizeof row;
    tensor.shape[3] = size;
    tensor.stride[3] = sizeof row[0];
    winnow_hadamard_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = desc.dst = &tensor;
    winnow_event* made = nullptr;
    if (api().hadamard(context(), &desc, &made) != WINNOW_OK) return;
    const std::unique_ptr<winnow_event, int32_t(WINNOW_CALL*)(winnow_event*)> event(made, api().event_destroy);
    api().event_wait(made);
    void* handle = nullptr;
    const winnow_opencl_api* const opencl = opened_.opencl();
    if (opencl != nullptr && opencl->get_event(made, &handle) == WINNOW_OK) look(handle);
}

winnow_cache* Backend::make_cache(const winnow_cache_desc& desc) {
    winnow_cache* cache = nullptr;
    check(caches().create(context(), &desc, &cache));
    return cache;
}

winnow_cache_stats Backend::estimate(const winnow_cache_desc& desc, int64_t tokens) {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    check(caches().estimate(context(), &desc, tokens, &stats));
    return stats;
}

void Backend::destroy(winnow_cache* cache) { caches().destroy(cache); }

void Backend::run(winnow_cache* cache, const winnow_cache_step_desc& desc) {
    check(caches().step(cache, &desc, nullptr));
    check(api().finish(context()));
}

void Backend::enqueue(winnow_cache* cache, const winnow_cache_step_desc& desc) {
    check(caches().step(cache, &desc, nullptr));
}

void Backend::finish() { check(api().finish(context())); }

uint64_t Backend::launches() {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    check(api().context_stats(context(), &stats));
    return stats.kernel_launches;
}

void Backend::copy(winnow_cache* cache, int64_t from, int64_t to) {
    check(caches().copy(cache, from, to));
    check(api().finish(context()));
}

void Backend::truncate(winnow_cache* cache, int64_t sequence, int64_t length) {
    check(caches().truncate(cache, sequence, length));
    check(api().finish(context()));
}
void Backend::remove(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end) {
    check(caches().remove(cache, sequence, begin, end));
    check(api().finish(context()));
}

void Backend::shift(winnow_cache* cache, int64_t sequence, int64_t delta) {
    check(caches().shift(cache, sequence, 0, -1, delta));
    check(api().finish(context()));
}

winnow_cache_stats Backend::stats(winnow_cache* cache) {
    winnow_cache_stats stats{};
    stats.struct_size = sizeof stats;
    check(caches().stats(cache, -1, &stats));
    return stats;
}

void Backend::run(const winnow_hadamard_desc& desc) {
    check(api().hadamard(context(), &desc, nullptr));
    check(api().finish(context()));
}

bool Backend::can(const winnow_kv_dequantize_desc& desc) {
    return api().supports(context(), WINNOW_OPERATION_KV_DEQUANTIZE, &desc, nullptr, 0) == WINNOW_OK;
}

void Backend::enqueue(const winnow_kv_dequantize_desc& desc) { check(api().kv_dequantize(context(), &desc, nullptr)); }

uint64_t Backend::row_bytes(uint32_t type, int64_t elements) {
    uint64_t bytes = 0;
    char message[256] = "";
    if (api().row_bytes(type, elements, &bytes, message, sizeof message) != WINNOW_OK)
        throw std::runtime_error(message);
    return bytes;
}

Memory::Memory(Backend& backend, uint32_t type, int64_t elements)
    : backend_(backend), type_(type), size_(static_cast<uint64_t>(elements) * type_size(type)),
      data_(allocate_pages(size_)) {
    fill(data_, type, size_);
    import();
}

Memory::Memory(Backend& backend, uint32_t type, int64_t rows, int64_t elements_of_a_row)
    : backend_(backend), type_(type), size_(static_cast<uint64_t>(rows) * backend.row_bytes(type, elements_of_a_row)),
      data_(allocate_pages(size_)) {
    if (!is_packed(type)) fill(data_, type, size_);
    import();
    if (is_packed(type)) fill_packed(rows, elements_of_a_row);
}

void Memory::import() {
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = WINNOW_BUFFER_IMPORT_HOST;
    desc.size = size_;
    desc.host_data = data_;
    const int32_t status = backend_.api().buffer_create(backend_.context(), &desc, &buffer_);
    if (status != WINNOW_OK) std::free(data_);
    backend_.check(status);
}

// Appends the same block of random rows again and again.
void Memory::fill_packed(int64_t rows, int64_t elements_of_a_row) {
    const int64_t block = std::min<int64_t>(rows, 4096);
    const Memory source(backend_, WINNOW_TYPE_F32, block * elements_of_a_row);
    const Memory indices(backend_, WINNOW_TYPE_I32, block);
    const winnow_tensor from = source.tensor(1, 1, block, elements_of_a_row);
    const winnow_tensor to = tensor(1, 1, rows, elements_of_a_row);
    const winnow_tensor index = indices.tensor(1, 1, 1, block);
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = &from;
    desc.k_cache = &to;
    desc.k_row_indices = &index;
    for (int64_t first = 0; first < rows; first += block) {
        // An index past the last row is padding.
        std::iota(static_cast<int32_t*>(indices.data()), static_cast<int32_t*>(indices.data()) + block,
                  static_cast<int32_t>(first));
        backend_.run(desc);
    }
}

Memory::~Memory() {
    backend_.api().buffer_destroy(buffer_);
    std::free(data_);
}

winnow_tensor Memory::tensor(int64_t a, int64_t b, int64_t c, int64_t d) const {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type_;
    tensor.buffer = buffer_;
    const int64_t shape[4] = {a, b, c, d};
    std::copy_n(shape, 4, tensor.shape);
    tensor.stride[3] = static_cast<int64_t>(type_size(type_)); // 0 of a packed row
    int64_t stride = static_cast<int64_t>(backend_.row_bytes(type_, d));
    for (int axis = 2; axis >= 0; --axis) {
        tensor.stride[axis] = stride;
        stride *= shape[axis];
    }
    return tensor;
}

// A peer's threads may still spin after its turn, waiting for more: who comes next does not pay for that.
constexpr auto rest_before_a_turn = std::chrono::milliseconds(10);
constexpr int runs_of_a_turn = 3; // at least: the first one wakes the machine up
constexpr double seconds_of_a_turn = 0.005;

std::vector<double> take_turns(const std::vector<std::function<void()>>& all, double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    std::vector<double> best(all.size(), std::numeric_limits<double>::infinity());
    for (const auto& each : all) each(); // compiles, and touches the memory
    const Clock::time_point begin = Clock::now();
    do {
        for (size_t i = 0; i < all.size(); ++i) {
            std::this_thread::sleep_for(rest_before_a_turn);
            const Clock::time_point turn = Clock::now();
            for (int run = 0; run < runs_of_a_turn || since(turn) < seconds_of_a_turn; ++run) {
                const Clock::time_point start = Clock::now();
                all[i]();
                best[i] = std::min(best[i], since(start));
            }
        }
    } while (since(begin) < seconds);
    return best;
}

std::vector<std::vector<double>> take_rounds(const std::vector<Turn>& all, double seconds) {
    using Clock = std::chrono::steady_clock;
    constexpr int runs = 3; // of a turn; the first finds another's rows in the processor's cache
    const auto since = [](Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    for (const Turn& each : all) each.run(); // compiles, and touches the memory
    std::vector<std::vector<double>> rounds;
    const Clock::time_point begin = Clock::now();
    do {
        std::vector<double>& times = rounds.emplace_back(all.size(), std::numeric_limits<double>::infinity());
        for (size_t turn = 0; turn < all.size(); ++turn) {
            const size_t i = rounds.size() % 2 == 1 ? turn : all.size() - 1 - turn;
            for (int run = 0; run < (all[i].is_once ? 1 : runs); ++run) {
                const Clock::time_point start = Clock::now();
                all[i].run();
                times[i] = std::min(times[i], since(start));
            }
        }
    } while (since(begin) < seconds);
    return rounds;
}

Quartiles quartiles(std::vector<double> values) {
    if (values.empty()) throw std::invalid_argument("quartiles of no values");
    std::sort(values.begin(), values.end());
    const auto at = [&](double part) {
        return values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
    };
    return {at(.25), at(.5), at(.75)};
}

std::string with_spread(const Quartiles& values, int digits) {
    return fixed(values.middle, digits) + " (" + fixed((values.high - values.low) / 2, digits) + ")";
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16];
    std::tm local{};
    std::strftime(text, sizeof text, "%Y-%m-%d", localtime_r(&now, &local));
    return text;
}

void print_row(const std::vector<std::string>& cells, int width) {
    for (size_t i = 0; i < cells.size(); ++i) std::printf("%*s", i == 0 ? -38 : width, cells[i].c_str());
    std::printf("\n");
    std::fflush(stdout);
}

std::string fixed(double value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

} // namespace winnow::bench
