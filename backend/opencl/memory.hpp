// Memory as kernels see it: a cl_mem for each worker queue, made when the worker queue first needs it; the buffers of
// the interface; and the cache of imports that lets host memory be used call after call without creating an object each
// time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "opencl/worker_queues.hpp"

namespace winnow::opencl {

class Memory {
public:
    // Host memory [host, host + size), used where it lies.
    Memory(WorkerQueues& workers, void* host, uint64_t size);
    // Memory of the device, or where `place` says, not initialised. Only where there is one worker queue.
    Memory(WorkerQueues& workers, uint64_t size, cl_mem_flags place = 0);
    // A cl_mem of the host's, retained.
    Memory(WorkerQueues& workers, cl_mem memory);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void* host() const { return host_; } // where host memory begins; NULL of other memory
    // Distinct worker queues may ask at once.
    cl_mem on(size_t worker) const { return objects_[worker]() != nullptr ? objects_[worker]() : import_on(worker); }

private:
    cl_mem import_on(size_t worker) const;

    WorkerQueues& workers_;
    void* host_ = nullptr;
    uint64_t size_ = 0;
    mutable std::vector<cl::Memory> objects_; // one for each worker queue
};

// Zeroed, page-aligned host memory that the system commits when it is touched.
class HostPages {
public:
    explicit HostPages(uint64_t size);
    ~HostPages();
    HostPages(const HostPages&) = delete;
    HostPages& operator=(const HostPages&) = delete;
    std::byte* data() const { return data_; }

private:
    std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

uint64_t page_size();

// The pages that [data, data + size) touches.
struct PageRange {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    PageRange(const void* data, uint64_t size);
    bool operator==(const PageRange&) const = default;
    uint64_t size() const { return end - begin; }
    bool covers(const PageRange& other) const { return begin <= other.begin && other.end <= end; }
    bool meets(const PageRange& other) const { return begin < other.end && other.begin < end; }
    void* data() const { return reinterpret_cast<void*>(begin); }
};

// Imports of host memory, found again by their first page. For CPU devices only: there an import is nothing but a
// pointer and a size, so that keeping one after the host has freed the memory does no harm. Elsewhere a driver pins or
// maps the pages.
class ImportCache {
public:
    explicit ImportCache(WorkerQueues& workers) : workers_(workers) {}
    // Valid until the next sweep() at least.
    const Memory& get(const PageRange& range);
    // Drops what get() replaced; to be called where no operation is being put together.
    void sweep() { replaced_.clear(); }

private:
    // Four ways, 64 sets: a model's layers times its tensors fit, and a lookup reads one cache line or two.
    struct Set {
        std::array<uintptr_t, 4> begin{};
        std::array<uintptr_t, 4> end{};
        std::array<std::unique_ptr<Memory>, 4> memory;
        unsigned next = 0; // the way that goes when all are taken
    };
    WorkerQueues& workers_;
    std::array<Set, 64> sets_;
    std::vector<std::unique_ptr<Memory>> replaced_;
};

} // namespace winnow::opencl
