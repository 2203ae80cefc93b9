// One operation: its memory bound, its kernels launched, its results brought back.
#include <cstring>
#include <utility>

#include "opencl/launch.hpp"
#include "opencl/state.hpp"

namespace winnow::opencl {
namespace {

class ClEvent final : public Event {
public:
    ClEvent(::cl_event event, cl_command_queue queue) : event_(event), queue_(queue, true) {}
    void wait() override {
        const ::cl_event event = event_();
        check(clWaitForEvents(1, &event), "clWaitForEvents");
    }
    bool is_complete() override {
        if (!is_flushed_) {
            check(clFlush(queue_()), "clFlush"); // or it might never begin
            is_flushed_ = true;
        }
        cl_int status = CL_QUEUED;
        check(clGetEventInfo(event_(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
              "clGetEventInfo");
        if (status < 0) throw_cl_error(status, "the operation behind the event");
        return status == CL_COMPLETE;
    }
    void* cl_event() override { return event_(); }

private:
    cl::Event event_;
    cl::CommandQueue queue_;
    bool is_flushed_ = false;
};

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
Operation::Operation(RuntimeState& state) : state_(state) { state_.imports.sweep(); }

Operation::~Operation() {
    // After a failure between a launch and complete(): nothing may use the staged memory any more.
    if (!staged_.empty()) clFinish(state_.lanes.front().queue());
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
            {tensor, range, std::make_unique<Memory>(state_.lanes, range.data(), range.size()), false, false});
        return {staged_.back().memory.get(), offset};
    }
    staged_.push_back({tensor, range, std::make_unique<Memory>(state_.lanes, size), true, access != Access::read});
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
    try {
        run(state_, {kernel, params, params_size, memory}, grid);
    } catch (...) {
        state_.is_pending = true; // a part of it may be running
        state_.retire_scratch();
        throw;
    }
    ++state_.launches;
    if (!std::exchange(kernel.is_launched, true)) state_.log(WINNOW_LOG_DEBUG, "first launch of " + kernel.label);
}

std::unique_ptr<Event> Operation::complete(bool want_event) {
    for (const Staged& staged : staged_)
        if (staged.is_copy && staged.is_written) staged.copy_out(state_);
    if (!staged_.empty()) {
        state_.is_pending = true;
        state_.finish();
        staged_.clear();
    }
    if (!want_event) return nullptr;
    const cl_command_queue queue = state_.lanes.front().queue();
    cl_event event = nullptr;
    check(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event), "clEnqueueMarkerWithWaitList");
    state_.is_pending = true;
    return std::make_unique<ClEvent>(event, queue);
}

} // namespace winnow::opencl
