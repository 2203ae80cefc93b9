// One operation: its memory bound, its kernels launched, its results brought back.
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "opencl/launch.hpp"
#include "opencl/runtime_state.hpp"

namespace winnow::opencl {
namespace {

class ClEvent final : public Event {
public:
    ClEvent(RuntimeState& state, ::cl_event event)
        : state_(state), event_(event), awaited_(state.awaited), failure_(state.failure) {}
    void wait() override {
        const ::cl_event event = event_();
        const cl_int code = clWaitForEvents(1, &event);
        if (code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) throw_failure(); // which may say more
        check(code, "clWaitForEvents");
        check_awaited();
    }
    void* cl_event() override { return event_(); }

private:
    // Throws where the operation failed.
    void throw_failure() {
        const cl_int status = status_of(event_());
        if (status >= 0) return;
        state_.retire_scratch();
        try {
            throw_cl_error(status, "the operation behind the event");
        } catch (const Error& error) {
            // What came after it and has no event may have failed with it.
            if (state_.transfers.are_any_coming()) state_.failure = error.what();
            throw after_a_change(error);
        }
    }

    // Throws where something failed that the operation waited for.
    void check_awaited() const {
        if (failure_) throw Error(WINNOW_ERROR_DEVICE, *failure_);
        for (const auto& each : awaited_)
            if (const cl_int status = each->status(); status < 0)
                throw Error(WINNOW_ERROR_DEVICE, failed_event_text(status));
    }

    RuntimeState& state_;
    cl::Event event_;
    std::vector<std::shared_ptr<const Awaited>> awaited_; // of state_, when the event was made
    std::optional<std::string> failure_;
};

// A device may take fewer work-items of a kernel than of others, for its registers.
void check_group_size(const RuntimeState& state, const Kernel& kernel, const Grid& grid) {
    const size_t items = grid.group_size[0] * grid.group_size[1] * grid.group_size[2];
    if (items == 1) return;
    size_t most = 0;
    check(clGetKernelWorkGroupInfo(kernel.instances.front().kernel(), state.workers.front().device,
                                   CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, nullptr),
          "clGetKernelWorkGroupInfo");
    if (items > most)
        throw Error(WINNOW_ERROR_DEVICE, "the device takes " + std::to_string(most) + " work-items of " + kernel.label +
                                             " in a group, and it has " + std::to_string(items));
}

// Runs what follows the first change of an operation.
template <class Action>
void after_the_beginning(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        throw after_a_change(error);
    } catch (const std::bad_alloc&) {
        throw after_a_change(Error(WINNOW_ERROR_OUT_OF_MEMORY, "out of host memory"));
    }
}

} // namespace

// The device's copy of host memory, or its import, for the time of one operation.
struct Operation::Staged {
    Tensor tensor;
    std::optional<PageRange> pages; // of an import
    std::unique_ptr<Memory> memory; // or of a copy that has no place
    Transfers::Place place{};
    bool is_written = false; // of a copy

    void copy_out(RuntimeState& state) const {
        std::vector<std::byte> bytes(tensor.extent());
        copy_from_device(state, *memory, 0, bytes.data(), bytes.size());
        ++state.host_copies;
        copy_rows(tensor, bytes.data());
    }
};

// What waits: run_divided; places of copies that are taken, and imports for one operation; end_copies.
const char* RuntimeState::why_waits(bool in_host_memory, bool marks_event) const {
    if (workers.is_divided()) return "the context computes on the host's threads; make it without parallel_for";
    if (in_host_memory && !is_host_memory())
        return "a tensor is in host memory, which the device does not use as its own; put all of them into buffers";
    if (marks_event && transfers.are_any_coming())
        return "an event waits for outputs of earlier calls that are still to come to host memory; call finish before";
    return nullptr;
}

Operation::Operation(Runtime& runtime) : Operation(runtime.state()) {}
Operation::Operation(RuntimeState& state) : state_(state) {
    state_.launch_deferred();
    state_.imports.sweep();
    state_.transfers.begin();
    first_fetch_ = state_.transfers.next_fetch();
}

Operation::~Operation() {
    // After a failure between a launch and complete(): nothing may use the operation's memory any more.
    if (!is_running_ && staged_.empty()) return;
    for (const WorkerQueue& worker : state_.workers.all) clFinish(worker.queue());
    state_.transfers.drop_from(first_fetch_); // the host may free its tensors
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
        // What two memory objects over the same host memory do is undefined, and in place dst lies in src. Where only
        // the pages at their ends are the same, one of the two is copied.
        bool is_apart = !state_.has_imported_some_of(range);
        for (const Staged& staged : staged_) {
            if (!staged.pages) continue;
            if (staged.pages->covers(range)) return {staged.memory.get(), offset + (range.begin - staged.pages->begin)};
            is_apart = is_apart && !staged.pages->meets(range);
        }
        if (is_apart) {
            if (state_.transfers.are_coming(first, size)) state_.finish(); // from an earlier operation
            staged_.push_back({tensor, range, std::make_unique<Memory>(state_.workers, range.data(), range.size())});
            return {staged_.back().memory.get(), offset};
        }
    }
    return bind_copy(tensor, access);
}

Bound Operation::bind_copy(const Tensor& tensor, Access access) {
    const std::byte* first = tensor.data + tensor.offset;
    const uint64_t size = tensor.extent();
    Staged staged{tensor, {}, nullptr, {}, access != Access::read};
    if (access != Access::write && state_.transfers.are_coming(first, size))
        state_.finish(); // from an earlier operation
    if (const std::optional<Transfers::Place> place = state_.transfers.take(size, access != Access::write)) {
        staged.place = *place;
        if (access != Access::write) std::memcpy(place->host, first, size);
        staged_.push_back(std::move(staged));
        return {place->memory, place->offset};
    }
    staged.memory = std::make_unique<Memory>(state_.workers, size);
    if (access != Access::write) {
        copy_to_device(state_, *staged.memory, 0, first, size);
        ++state_.host_copies;
    }
    staged_.push_back(std::move(staged));
    return {staged_.back().memory.get(), 0};
}

void Operation::launch(Kernel& kernel, const void* params, size_t params_size, std::span<const Memory* const> memory,
                       const Grid& grid, bool are_params_in_memory) {
    if (kernel.argument_count != memory.size() + 2)
        throw Error(WINNOW_ERROR_INTERNAL, kernel.label + " takes " + std::to_string(kernel.argument_count) +
                                               " arguments, its launcher gives " + std::to_string(memory.size() + 2));
    if (!are_params_in_memory && params_size + memory.size() * sizeof(cl_mem) + sizeof(cl_uint) > most_argument_bytes)
        throw Error(WINNOW_ERROR_INTERNAL,
                    kernel.label + " has more than " + std::to_string(most_argument_bytes) + " bytes of arguments");
    if (!kernel.is_launched) check_group_size(state_, kernel, grid);
    state_.transfers.send();
    try {
        run(state_, {kernel, params, params_size, memory, are_params_in_memory}, grid, is_running_);
        ++state_.launches;
        if (!std::exchange(kernel.is_launched, true)) state_.log(WINNOW_LOG_DEBUG, "first launch of " + kernel.label);
    } catch (...) {
        if (!is_running_) throw;
        state_.is_pending = true; // a part of it may be running
        state_.retire_scratch();
        after_the_beginning([] { throw; });
    }
}

// What has a place is nobody's concern any more: inputs were copied, and outputs come with the next wait.
void Operation::end_copies(bool waits) {
    for (const Staged& staged : staged_) {
        waits = waits || staged.memory != nullptr;
        if (staged.is_written && staged.place.host != nullptr) state_.transfers.fetch(staged.tensor, staged.place);
    }
    if (waits && (!staged_.empty() || state_.transfers.are_any_coming())) {
        state_.is_pending = true;
        state_.finish();
    }
    for (const Staged& staged : staged_)
        if (staged.is_written && staged.memory != nullptr) staged.copy_out(state_);
    staged_.clear();
}

std::unique_ptr<Event> Operation::complete(bool want_event) {
    std::unique_ptr<Event> made;
    after_the_beginning([&] {
        end_copies(want_event);
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
