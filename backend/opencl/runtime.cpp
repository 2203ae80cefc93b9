// Construction, queries, scratch memory and synchronisation. Launching is in operation.cpp.
#include "opencl/runtime.hpp"

#include <utility>

#include "opencl/compiler_pages.hpp"
#include "opencl/launchers.hpp"
#include "opencl/runtime_state.hpp"

namespace winnow::opencl {

RuntimeState::RuntimeState(const DeviceRequest& request, const VariantOptions& forced)
    : log(request.log), parallel_for(request.parallel_for), parallel_user_data(request.parallel_user_data),
      workers(open_worker_queues(request, forced)), programs(workers, log, forced.optimizes), times(request),
      capabilities(probe_capabilities(workers, programs, forced.copies)),
      tuning(tuning_of(workers.entry.info, forced.tuning, log)), imports(workers) {
    if (!capabilities.zero_copy && workers.is_divided()) { // memory that is copied is of one queue
        workers.all.resize(1);
        capabilities.compute_units = 1;
    }
    if (forced.copies_apart) transfers.stand_apart();
    const winnow_device_info& info = workers.entry.info;
    log(WINNOW_LOG_INFO,
        std::string("device ") + info.name + " of " + info.platform +
            (workers.is_divided() ? ", on " + std::to_string(workers.all.size()) + " host threads" : "") +
            (capabilities.zero_copy ? ", host memory is used in place" : ", host memory is copied") +
            (capabilities.single_launch ? "" : ", no device-scope atomics") +
            (workers.has_params_in_memory ? ", kernels' parameters in memory" : ""));
}

RuntimeState::~RuntimeState() {
    // Kernels may still be using what the members release; an error changes nothing about that.
    bool has_failed = false;
    for (const WorkerQueue& worker : workers.all) has_failed = clFinish(worker.queue()) != CL_SUCCESS || has_failed;
    if (!has_failed) transfers.deliver(); // where the wait before this one failed
    times.deliver();
}

void RuntimeState::launch_deferred() {
    if (!deferred.is_deferred()) return;
    deferred.launched(*this, [&] { launch_deferred_append(*owner, deferred.args()); });
}

void RuntimeState::wait() {
    if (!is_pending) return;
    launch_deferred();
    const cl_int code = clFinish(workers.front().queue());
    if (code != CL_SUCCESS) retire_scratch();
    check(code, "clFinish");
    drop_awaited();
    is_pending = false;
    transfers.deliver();
    times.deliver();
    retired.clear();
}

void RuntimeState::drop_awaited() {
    for (size_t i = awaited.size(); i-- > 0;) {
        const cl_int status = awaited[i]->status();
        if (status > CL_COMPLETE) continue;
        if (status < 0) failure = failed_event_text(status);
        awaited.erase(awaited.begin() + static_cast<ptrdiff_t>(i));
    }
}

void RuntimeState::finish() {
    wait();
    if (failure) throw Error(WINNOW_ERROR_DEVICE, *std::exchange(failure, std::nullopt));
}

void RuntimeState::retire_scratch() {
    for (Scratch& one : scratch)
        if (one.memory != nullptr) retired.push_back(std::exchange(one, Scratch{}));
}

Runtime::Runtime(const DeviceRequest& request, const VariantOptions& forced)
    : state_(std::make_unique<RuntimeState>(request, forced)),
      slot_shape_(forced.slot_shape.empty() ? forced.shape : forced.slot_shape) {
    state_->owner = this;
}
Runtime::~Runtime() = default;

const Capabilities& Runtime::capabilities() const { return state_->capabilities; }

void Runtime::check_extent(const Tensor& tensor, const char* name) const {
    if (!tensor) return;
    const uint64_t limit = state_->capabilities.max_allocation_size;
    const uint64_t extent = tensor.extent();
    const uint64_t around = 2 * page_size(); // host memory is imported from a page's beginning to a page's end
    if (extent <= limit && around <= limit - extent) return;
    throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(name) + " spans " + std::to_string(extent) +
                                              " bytes; the device's limit for one buffer is " + std::to_string(limit) +
                                              ", and an import may take " + std::to_string(around) +
                                              " more, because it covers whole pages");
}

void Runtime::info(winnow_device_info& out) const {
    const uint32_t struct_size = out.struct_size;
    out = state_->workers.entry.info;
    out.struct_size = struct_size;
    out.compute_units = state_->capabilities.compute_units;
    out.capabilities &= ~WINNOW_CAPABILITY_UNIFIED_MEMORY;
    if (state_->capabilities.zero_copy) out.capabilities |= WINNOW_CAPABILITY_UNIFIED_MEMORY;
}

void Runtime::stats(winnow_stats& out) const {
    out.kernel_launches = state_->launches;
    out.programs_built = state_->programs.built();
    out.programs_loaded = state_->programs.loaded();
    out.host_copies = state_->host_copies;
}

Kernel& Runtime::kernel(std::string_view file, std::string_view name, std::string_view options) {
    return state_->programs.kernel(file, name, options);
}

const Memory* Runtime::scratch(uint64_t bytes, int slot) {
    RuntimeState::Scratch& scratch = state_->scratch.at(static_cast<size_t>(slot));
    if (scratch.size >= bytes && scratch.memory != nullptr) return scratch.memory.get();
    RuntimeState::Scratch larger;
    larger.size =
        (bytes + bytes / 2 + 0xffff) & ~uint64_t{0xffff}; // growing token by token does not allocate each time
    if (state_->is_host_memory()) {
        larger.pages = std::make_unique<HostPages>(larger.size);
        larger.memory = std::make_unique<Memory>(state_->workers, larger.pages->data(), larger.size);
    } else {
        larger.memory = std::make_unique<Memory>(state_->workers, larger.size);
        enqueue_fill(*state_, *larger.memory, larger.size, 0);
    }
    // What runs may be using the old one. Waiting for it could be forever: the host's queue may depend on this call.
    if (scratch.memory != nullptr) state_->retired.push_back(std::move(scratch));
    scratch = std::move(larger);
    return scratch.memory.get();
}

std::unique_ptr<Buffer> Runtime::allocate(uint64_t size, uint8_t filling, cl_mem_flags place) {
    return ClBuffer::allocate(*state_, size, filling, place);
}
std::unique_ptr<Buffer> Runtime::import_host(void* data, uint64_t size) {
    return ClBuffer::import_host(*state_, data, size);
}
std::unique_ptr<Buffer> Runtime::import_cl_mem(void* memory, uint64_t offset, uint64_t size) {
    return ClBuffer::import_cl_mem(*state_, static_cast<cl_mem>(memory), offset, size);
}

void Runtime::flush() {
    state_->launch_deferred();
    check(clFlush(state_->workers.front().queue()), "clFlush");
}

void Runtime::finish() {
    state_->finish();
    // A kernel is compiled when it is made, and once more, for its group size, at its first launch.
    if (state_->programs.take_has_made_kernels()) release_compiler_pages();
}

void Runtime::wait_cl_event(void* event) {
    const auto handle = static_cast<cl_event>(event);
    const WorkerQueue& worker = state_->workers.front();
    cl_context context = nullptr;
    check_host_object(clGetEventInfo(handle, CL_EVENT_CONTEXT, sizeof context, &context, nullptr), "clGetEventInfo",
                      "cl_event is no valid event");
    if (context != worker.context())
        throw Error(WINNOW_ERROR_INVALID_ARGUMENT, "cl_event belongs to another cl_context than this context's");
    const cl_int status = status_of(handle);
    if (status < 0) throw Error(WINNOW_ERROR_DEVICE, failed_event_text(status));
    if (status == CL_COMPLETE) return;
    state_->launch_deferred();
    state_->drop_awaited(); // who never calls finish has not more and more of them
    state_->awaited.reserve(state_->awaited.size() + 1);
    state_->awaited.push_back(std::make_shared<const Awaited>(state_->workers, handle));
    state_->is_pending = true;
}

} // namespace winnow::opencl
