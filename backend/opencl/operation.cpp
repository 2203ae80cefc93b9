// One operation: its memory bound, its kernels launched (on one lane, or divided among all), its results brought back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "opencl/state.hpp"

namespace winnow::opencl {
namespace {

// About 10 microseconds of one core; below that, handing work to another thread costs more than it gives.
constexpr uint64_t divided_work = 200'000;
// A lane takes part after part until none is left, so that a thread which comes late does not hold up the others.
constexpr size_t parts_per_lane = 4;

struct Arguments {
    Kernel& kernel;
    const void* params;
    size_t params_size;
    std::initializer_list<const Memory*> memory;
};

void set_argument(const Kernel::Instance& instance, cl_uint index, size_t size, const void* value,
                  const Kernel& kernel) {
    const cl_int code = clSetKernelArg(instance.kernel(), index, size, value);
    if (code != CL_SUCCESS)
        throw_cl_error(code, "clSetKernelArg", "argument " + std::to_string(index) + " of " + kernel.label);
}

// Sets what differs from the last launch of this kernel on this lane.
void set_arguments(const Lanes& lanes, size_t lane, const Arguments& arguments, cl_uint group_base) {
    Kernel& kernel = arguments.kernel;
    Kernel::Instance& instance = kernel.instances[lane];
    if (!instance.has_arguments || instance.params.size() != arguments.params_size ||
        std::memcmp(instance.params.data(), arguments.params, arguments.params_size) != 0) {
        set_argument(instance, 0, arguments.params_size, arguments.params, kernel);
        const auto bytes = static_cast<const std::byte*>(arguments.params);
        instance.params.assign(bytes, bytes + arguments.params_size);
    }
    const bool is_known = instance.has_arguments && instance.memory_epoch == lanes.memory_epoch;
    instance.memory.resize(arguments.memory.size());
    cl_uint index = 0;
    for (const Memory* memory : arguments.memory) {
        if (!is_known || instance.memory[index] != memory) {
            const cl_mem object = memory == nullptr ? nullptr : memory->on(lane);
            set_argument(instance, index + 1, sizeof object, &object, kernel);
            instance.memory[index] = memory;
        }
        ++index;
    }
    instance.memory_epoch = lanes.memory_epoch;
    if (!instance.has_arguments || instance.group_base != group_base) {
        set_argument(instance, index + 1, sizeof group_base, &group_base, kernel);
        instance.group_base = group_base;
    }
    instance.has_arguments = true;
}

void enqueue(const Lanes& lanes, size_t lane, const Arguments& arguments, const Grid& grid, size_t first_group,
             size_t group_count) {
    set_arguments(lanes, lane, arguments, static_cast<cl_uint>(first_group));
    const std::array<size_t, 3> global{group_count * grid.group_size[0], grid.groups[1] * grid.group_size[1],
                                       grid.groups[2] * grid.group_size[2]};
    const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
    Kernel::Instance& instance = arguments.kernel.instances[lane];
    const cl_int code = clEnqueueNDRangeKernel(lanes.all[lane].queue(), instance.kernel(), dimensions, nullptr,
                                               global.data(), grid.group_size.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) throw_cl_error(code, "clEnqueueNDRangeKernel", arguments.kernel.label);
    instance.has_run = true;
}

// A launch cut into parts, which the lanes take one after the other.
struct Division {
    const Lanes& lanes;
    const Arguments& arguments;
    const Grid& grid;
    size_t groups_per_part;
    std::atomic<size_t> next_group{0};
    std::atomic_flag has_failed = ATOMIC_FLAG_INIT;
    std::exception_ptr failure{}; // of whoever set has_failed

    // Takes parts as long as there are any, or `limit` of them. Nothing is thrown: this runs in the host's threads.
    void work_on(size_t lane, size_t limit) noexcept {
        const size_t groups = grid.groups[0];
        for (; limit > 0; --limit) {
            const size_t first = next_group.fetch_add(groups_per_part, std::memory_order_relaxed);
            if (first >= groups) return;
            try {
                enqueue(lanes, lane, arguments, grid, first, std::min(groups_per_part, groups - first));
                check(clFinish(lanes.all[lane].queue()), "clFinish");
            } catch (...) {
                if (!has_failed.test_and_set()) failure = std::current_exception();
                return;
            }
        }
    }

    static void task(void* data, uint32_t lane) { static_cast<Division*>(data)->work_on(lane, SIZE_MAX); }
};

void launch_divided(RuntimeState& state, const Arguments& arguments, const Grid& grid) {
    state.finish(); // the other lanes know nothing of what was enqueued on the first
    const size_t lanes = state.lanes.all.size();
    const size_t useful = static_cast<size_t>(grid.work / divided_work) + 1;
    const size_t parts = std::min({grid.groups[0], lanes * parts_per_lane, std::max(lanes, useful)});
    Division division{state.lanes, arguments, grid, (grid.groups[0] + parts - 1) / parts};
    const size_t used = std::min(lanes, parts);
    const auto& instances = arguments.kernel.instances;
    const bool is_first = std::any_of(instances.begin(), instances.begin() + static_cast<std::ptrdiff_t>(used),
                                      [](const Kernel::Instance& instance) { return !instance.has_run; });
    if (is_first) {
        // Drivers finish compiling at the first launch, and not all of them can do that in two threads at once.
        for (size_t lane = 0; division.next_group < grid.groups[0] && !division.has_failed.test(); ++lane)
            division.work_on(lane % used, 1);
    } else {
        state.parallel_for(state.parallel_user_data, static_cast<uint32_t>(used), &Division::task, &division);
    }
    if (division.has_failed.test()) std::rethrow_exception(division.failure);
}

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
    std::unique_ptr<Memory> memory;
    bool is_copy;
    bool is_written;

    // Row by row, because what lies between the rows may be another tensor's.
    void copy_out(RuntimeState& state) const {
        std::vector<std::byte> bytes(tensor.extent());
        copy_from_device(state, *memory, 0, bytes.data(), bytes.size());
        const auto row_size = static_cast<size_t>(tensor.shape[3]) * type_size(tensor.type);
        for (int64_t a = 0; a < tensor.shape[0]; ++a)
            for (int64_t b = 0; b < tensor.shape[1]; ++b)
                for (int64_t c = 0; c < tensor.shape[2]; ++c) {
                    const int64_t at = a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2];
                    std::memcpy(tensor.data + tensor.offset + at, bytes.data() + at, row_size);
                }
        ++state.host_copies;
    }
};

Operation::Operation(Runtime& runtime) : state_(*runtime.state_) { state_.imports.sweep(); }

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
        staged_.push_back({tensor, std::make_unique<Memory>(state_.lanes, range.data(), range.size()), false, false});
        return {staged_.back().memory.get(), offset};
    }
    staged_.push_back({tensor, std::make_unique<Memory>(state_.lanes, size), true, access != Access::read});
    if (access != Access::write) {
        copy_to_device(state_, *staged_.back().memory, 0, first, size);
        ++state_.host_copies;
    }
    return {staged_.back().memory.get(), 0};
}

void Operation::launch(Kernel& kernel, const void* params, size_t params_size,
                       std::initializer_list<const Memory*> memory, const Grid& grid) {
    if (kernel.argument_count != memory.size() + 2)
        throw Error(WINNOW_ERROR_INTERNAL, kernel.label + " takes " + std::to_string(kernel.argument_count) +
                                               " arguments, its launcher gives " + std::to_string(memory.size() + 2));
    const Arguments arguments{kernel, params, params_size, memory};
    if (state_.lanes.is_divided() && grid.work >= divided_work && grid.groups[0] > 1) {
        launch_divided(state_, arguments, grid);
    } else {
        enqueue(state_.lanes, 0, arguments, grid, 0, grid.groups[0]);
        state_.is_pending = true;
    }
    ++state_.launches;
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
