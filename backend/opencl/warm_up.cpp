// The one-at-a-time rule of warm-up launches, and the count of kernels that had one.
#include "opencl/warm_up.hpp"

#include <atomic>
#include <functional>
#include <unordered_set>

namespace winnow::opencl {
namespace {

constexpr size_t most_kernels = 100; // of 128, because others in this process may use PoCL too

// One mutex serves the whole process, as PoCL's table of kernels does.
std::mutex& mutex() {
    static std::mutex instance;
    return instance;
}
std::atomic<size_t> kernel_count{0};

} // namespace

WarmUp::WarmUp(std::string_view kernel) : guard_(mutex()) {
    static std::unordered_set<size_t> kernels; // the same kernel in another context or worker queue is no other one
    kernels.insert(std::hash<std::string_view>()(kernel));
    kernel_count = kernels.size();
}

bool WarmUp::is_crowded() { return kernel_count > most_kernels; }

} // namespace winnow::opencl
