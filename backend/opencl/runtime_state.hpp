// What a Runtime consists of; the parts that launch, copy and allocate share it.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "opencl/awaited.hpp"
#include "opencl/deferred_append.hpp"
#include "opencl/launch_times.hpp"
#include "opencl/memory.hpp"
#include "opencl/programs.hpp"
#include "opencl/runtime.hpp"
#include "opencl/transfers.hpp"
#include "opencl/worker_queues.hpp"

namespace winnow::opencl {

struct RuntimeState {
    explicit RuntimeState(const DeviceRequest& request, const VariantOptions& forced = {});
    ~RuntimeState();

    // Launches what is deferred.
    void launch_deferred();
    // Waits for all that was enqueued. The worker queues after the first are idle between operations. Where that throws
    // nothing is lost: the next wait gives the host's tensors their results. What failed while it ran is `failure`.
    void wait();
    // The same, and throws what has failed meanwhile, once.
    void finish();
    const char* why_waits(bool in_host_memory, bool marks_event) const; // of an Operation: Device::why_waits
    bool has_imported_some_of(const PageRange& range) const {
        return std::any_of(imported.begin(), imported.end(),
                           [&](const PageRange& other) { return other.meets(range); });
    }
    // CPU devices use host memory as their own: nothing is copied, and imports may be kept.
    bool is_host_memory() const { return capabilities.zero_copy && capabilities.type == WINNOW_DEVICE_CPU; }

    Runtime* owner = nullptr; // who launches what is deferred; without one nothing is
    Log log;
    winnow_parallel_for parallel_for;
    void* parallel_user_data;
    WorkerQueues workers;
    Programs programs;
    LaunchTimes times;
    Capabilities capabilities;
    Tuning tuning;
    ImportCache imports;
    std::vector<PageRange> imported; // by buffers of the interface, where imports are not kept
    Transfers transfers{*this};      // where host memory is copied

    struct Scratch {
        std::unique_ptr<HostPages> pages; // behind `memory`, where that is host memory
        std::unique_ptr<Memory> memory;
        uint64_t size = 0;
    };
    std::array<Scratch, 4> scratch;
    std::vector<Scratch> retired; // memory that what runs may still use; gone with the next wait

    // After a launch that failed halfway: counters in scratch memory may be left above zero.
    void retire_scratch();

    DeferredAppend deferred;
    // Events of the host's, which what is pending waits for.
    std::vector<std::shared_ptr<const Awaited>> awaited;
    std::optional<std::string> failure; // of what the next finish would take for done
    // Forgets those that are over; one that failed is a failure.
    void drop_awaited();
    bool is_pending = false; // something is deferred, or was enqueued on the first worker queue and not waited for
    uint64_t launches = 0;
    uint64_t host_copies = 0;
};

// What a device says of itself, without a context, but for what the quirks say.
Capabilities told_capabilities(const DeviceEntry& entry, const Quirks& quirks);

// What was found out about the device, by queries and, for zero_copy, by a probe: a kernel that works on host memory.
// With `copies` nothing is tried, and zero_copy is false.
Capabilities probe_capabilities(WorkerQueues& workers, Programs& programs, bool copies);

// A buffer of the interface. bind() of an Operation reads where it lies.
class ClBuffer final : public Buffer {
public:
    // place: CL_MEM_ALLOC_HOST_PTR, or 0.
    static std::unique_ptr<ClBuffer> allocate(RuntimeState& state, uint64_t size, uint8_t filling = 0,
                                              cl_mem_flags place = 0);
    static std::unique_ptr<ClBuffer> import_host(RuntimeState& state, void* data, uint64_t size);
    static std::unique_ptr<ClBuffer> import_cl_mem(RuntimeState& state, cl_mem memory, uint64_t offset, uint64_t size);
    ~ClBuffer() override;

    uint64_t size() const override { return size_; }
    void write(uint64_t offset, const void* data, uint64_t size) override;
    void read(uint64_t offset, void* data, uint64_t size) override;
    std::pair<void*, uint64_t> cl_memory() override;

    const Memory* memory() const { return memory_.get(); }
    uint64_t offset() const { return offset_; } // of the buffer's first byte in memory()

private:
    ClBuffer(RuntimeState& state, uint64_t size) : state_(state), size_(size) {}

    RuntimeState& state_;
    uint64_t size_;
    uint64_t offset_ = 0;
    std::unique_ptr<HostPages> pages_; // owned memory behind memory_, or null
    std::unique_ptr<Memory> memory_;
    std::byte* host_ = nullptr;   // the bytes themselves, where the host may touch them
    std::byte* mirror_ = nullptr; // imported host memory that the device cannot reach, of which memory_ is a copy
};

// Copies between host and the first worker queue's memory, waiting for what was enqueued before and for the copy.
void copy_to_device(RuntimeState& state, const Memory& memory, uint64_t offset, const void* data, uint64_t size);
void copy_from_device(RuntimeState& state, const Memory& memory, uint64_t offset, void* data, uint64_t size);
// Fills with a byte, in order on the first worker queue.
void enqueue_fill(RuntimeState& state, const Memory& memory, uint64_t size, uint8_t filling);

} // namespace winnow::opencl
