// One operation: its memory bound, its kernels launched, its results brought back.
#include <cstring>
#include <utility>

#include "opencl/launch.hpp"
#include "opencl/runtime_state.hpp"

namespace winnow::opencl {
namespace {

class ClEvent final : public Event {
public:
    ClEvent(RuntimeState& state, ::cl_event event) : state_(state), event_(event) {}
    void wait() override {
        const ::cl_event event = event_();
        const cl_int code = clWaitForEvents(1, &event);
        if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) status(); // which may say more
        check(code, "clWaitForEvents");
    }
    bool is_complete() override {
        if (!is_flushed_) {
            check(clFlush(state_.workers.front().queue()), "clFlush"); // or it might never begin
            is_flushed_ = true;
        }
        return status() == CL_COMPLETE;
    }
    void* cl_event() override { return event_(); }

private:
    // Throws where the operation failed.
    cl_int status() {
        cl_int status = CL_QUEUED;
        check(clGetEventInfo(event_(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
              "clGetEventInfo");
        if (status >= 0) return status;
        state_.retire_scratch();
        try {
            throw_cl_error(status, "the operation behind the event");
        } catch (const Error& error) {
            throw after_a_change(error);
        }
    }

    RuntimeState& state_;
    cl::Event event_;
    bool is_flushed_ = false;
};

// Runs what follows the first change of an operation.
template <class Action>
void after_the_beginning(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        throw after_a_change(error);
    }
}

} // namespace

// The device's copy of host memory, or its import, for the time of one operation.
struct Operation::Staged {
    Tensor tensor;
    PageRange pages; // of an import
    std::unique_ptr<Memory> memory;
    bool is_copy;
    bool is_written;

    // Row by row, because what lies between the rows may be another tensor's.
    void copy_out(RuntimeState& state) const {
        std::vector<std::byte> bytes(tensor.extent());
        copy_from_device(state, *memory, 0, bytes.data(), bytes.size());
        const uint64_t row_size = row_bytes(tensor.type, tensor.shape[3]);
        for (int64_t a = 0; a < tensor.shape[0]; ++a)
            for (int64_t b = 0; b < tensor.shape[1]; ++b)
                for (int64_t c = 0; c < tensor.shape[2]; ++c) {
                    const int64_t at = a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2];
                    std::memcpy(tensor.data + tensor.offset + at, bytes.data() + at, row_size);
                }
        ++state.host_copies;
    }
};

Operation::Operation(Runtime& runtime) : Operation(runtime.state()) {}
Operation::Operation(RuntimeState& state) : state_(state) {
    state_.launch_deferred();
    state_.imports.sweep();
}

Operation::~Operation() {
    // After a failure between a launch and complete(): nothing may use the operation's memory any more.
    if (!is_running_ && staged_.empty()) return;
    for (const WorkerQueue& worker : state_.workers.all) clFinish(worker.queue());
}

Bound Operation::bind(const Tensor& tensor, Access access) {
    if (!tensor) return {};
    if (tensor.buffer != nullptr) {
        const auto& buffer = static_cast<const ClBuffer&>(*tensor.buffer);
        return {buffer.memory(), buffer.offset() + tensor.offset};
    }
    std::byte* first = tensor.data + tensor.offset;
    const uint64_t size = tensor.extent();
    const PageRange range(first, size);
    const auto offset = static_cast<uint64_t>(first - static_cast<std::byte*>(range.data()));
    if (state_.is_host_memory()) return {&state_.imports.get(range), offset};
    if (state_.capabilities.zero_copy) {
        // What two memory objects over the same host memory do is undefined, and in place dst lies in src.
        for (const Staged& staged : staged_) {
            if (staged.pages.covers(range)) return {staged.memory.get(), offset + (range.begin - staged.pages.begin)};
        }
        staged_.push_back(
            {tensor, range, std::make_unique<Memory>(state_.workers, range.data(), range.size()), false, false});
        return {staged_.back().memory.get(), offset};
    }
    staged_.push_back({tensor, range, std::make_unique<Memory>(state_.workers, size), true, access != Access::read});
    if (access != Access::write) {
        copy_to_device(state_, *staged_.back().memory, 0, first, size);
        ++state_.host_copies;
    }
    return {staged_.back().memory.get(), 0};
}

void Operation::launch(Kernel& kernel, const void* params, size_t params_size, std::span<const Memory* const> memory,
                       const Grid& grid) {
    if (kernel.argument_count != memory.size() + 2)
        throw Error(WINNOW_ERROR_INTERNAL, kernel.label + " takes " + std::to_string(kernel.argument_count) +
                                               " arguments, its launcher gives " + std::to_string(memory.size() + 2));
    if (params_size + memory.size() * sizeof(cl_mem) + sizeof(cl_uint) > most_argument_bytes)
        throw Error(WINNOW_ERROR_INTERNAL,
                    kernel.label + " has more than " + std::to_string(most_argument_bytes) + " bytes of arguments");
    try {
        run(state_, {kernel, params, params_size, memory}, grid, is_running_);
    } catch (...) {
        if (!is_running_) throw;
        state_.is_pending = true; // a part of it may be running
        state_.retire_scratch();
        after_the_beginning([] { throw; });
    }
    ++state_.launches;
    if (!std::exchange(kernel.is_launched, true)) state_.log(WINNOW_LOG_DEBUG, "first launch of " + kernel.label);
}

std::unique_ptr<Event> Operation::complete(bool want_event) {
    std::unique_ptr<Event> made;
    after_the_beginning([&] {
        for (const Staged& staged : staged_)
            if (staged.is_copy && staged.is_written) staged.copy_out(state_);
        if (!staged_.empty()) {
            state_.is_pending = true;
            state_.finish();
            staged_.clear();
        }
        if (!want_event) return;
        is_running_ = true; // what the event would tell of, also where that was launched before this operation
        cl_event event = nullptr;
        check(clEnqueueMarkerWithWaitList(state_.workers.front().queue(), 0, nullptr, &event),
              "clEnqueueMarkerWithWaitList");
        state_.is_pending = true;
        made = std::make_unique<ClEvent>(state_, event);
    });
    is_running_ = false;
    return made;
}

} // namespace winnow::opencl
