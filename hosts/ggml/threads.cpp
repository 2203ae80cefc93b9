// The OpenMP team of the host, used through the runtime's own entry points: compiling with -fopenmp would bind this
// library to one OpenMP runtime, and load it into hosts that have none or another.
#include "threads.hpp"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <thread>

namespace winnow::ggml {

namespace {

// What GCC emits for "omp parallel num_threads(n)", and two functions of OpenMP's; LLVM's runtime offers all three as
// well.
void (*gomp_parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
int (*thread_number)() = nullptr;
int (*team_size)() = nullptr;

// Beyond this, memory bandwidth is what limits attention, and each device costs a driver some memory.
constexpr unsigned max_devices = 32;

bool find_runtime(const char* name) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return false;
    // The library stays referenced: its functions are kept.
    gomp_parallel = reinterpret_cast<decltype(gomp_parallel)>(dlsym(library, "GOMP_parallel"));
    thread_number = reinterpret_cast<decltype(thread_number)>(dlsym(library, "omp_get_thread_num"));
    team_size = reinterpret_cast<decltype(team_size)>(dlsym(library, "omp_get_num_threads"));
    if (gomp_parallel && thread_number && team_size) return true;
    gomp_parallel = nullptr;
    dlclose(library);
    return false;
}

struct Share {
    winnow_task task;
    void* task_data;
    uint32_t count;
};

void run_share(void* data) {
    const Share& share = *static_cast<const Share*>(data);
    // The team may be smaller than was asked for.
    const uint32_t threads = static_cast<uint32_t>(team_size());
    for (uint32_t i = static_cast<uint32_t>(thread_number()); i < share.count; i += threads)
        share.task(share.task_data, i);
}

} // namespace

void prepare_threads() {
    bool found = false;
    for (const char* name : {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"})
        found = found || find_runtime(name);
    if (!found || std::getenv("POCL_DEVICES")) return;
    // PoCL calls its in-thread driver "basic" until 3.1 and "cpu-minimal" from 4.0 on, and passes over names it does
    // not know. Its threaded driver is kept for those who choose it.
    std::string devices;
    const unsigned processors = std::clamp(std::thread::hardware_concurrency(), 1u, max_devices);
    for (const char* name : {"basic", "cpu-minimal"})
        for (unsigned i = 0; i < processors; ++i) devices += std::string(name) + ' ';
    devices += "pthread cpu";
    setenv("POCL_DEVICES", devices.c_str(), 0);
}

bool have_team() { return gomp_parallel != nullptr; }

void WINNOW_CALL run_on_team(void* user_data, uint32_t count, winnow_task task, void* task_data) {
    // Always as many threads as ggml uses, or the runtime would resize its team twice per layer.
    const uint32_t threads =
        static_cast<uint32_t>(std::max(1, static_cast<const std::atomic<int>*>(user_data)->load()));
    if (count < 2 || threads < 2) {
        for (uint32_t i = 0; i < count; ++i) task(task_data, i);
        return;
    }
    Share share{task, task_data, count};
    gomp_parallel(run_share, &share, threads, 0);
}

} // namespace winnow::ggml
