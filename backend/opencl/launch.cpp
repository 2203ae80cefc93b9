// How a kernel with its arguments comes to run: on one worker queue, or divided among all.
#include "opencl/launch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "device/clock.hpp"
#include "opencl/warm_up.hpp"

namespace winnow::opencl {
namespace {

// A worker queue takes part after part until none is left, so that a thread which comes late does not hold up the
// others.
constexpr size_t parts_per_queue = 4;

void set_argument(const Kernel::Instance& instance, cl_uint index, size_t size, const void* value,
                  const Kernel& kernel) {
    const cl_int code = clSetKernelArg(instance.kernel(), index, size, value);
    if (code != CL_SUCCESS)
        throw_cl_error(code, "clSetKernelArg", "argument " + std::to_string(index) + " of " + kernel.label);
}

// Launches that are not over keep the memory of their parameters.
void set_params(const WorkerQueue& worker, bool in_memory, const Arguments& arguments, Kernel::Instance& instance) {
    if (!in_memory) return set_argument(instance, 0, arguments.params_size, arguments.params, arguments.kernel);
    cl_int code = CL_SUCCESS;
    const cl_mem memory = clCreateBuffer(worker.context(), CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                         arguments.params_size, const_cast<void*>(arguments.params), &code);
    if (code != CL_SUCCESS) throw_cl_error(code, "clCreateBuffer", "parameters of " + arguments.kernel.label);
    cl::Memory made(memory, false);
    set_argument(instance, 0, sizeof memory, &memory, arguments.kernel);
    instance.params_memory = std::move(made);
}

// Sets what differs from the last launch of this kernel on this worker queue.
void set_arguments(const WorkerQueues& workers, size_t worker, const Arguments& arguments, cl_uint group_base) {
    Kernel& kernel = arguments.kernel;
    Kernel::Instance& instance = kernel.instances[worker];
    // False until all are set: after a failure nothing of what is remembered counts.
    const bool has_arguments = std::exchange(instance.has_arguments, false);
    if (!has_arguments || instance.params.size() != arguments.params_size ||
        std::memcmp(instance.params.data(), arguments.params, arguments.params_size) != 0) {
        set_params(workers.all[worker], workers.has_params_in_memory || arguments.are_params_in_memory, arguments,
                   instance);
        const auto bytes = static_cast<const std::byte*>(arguments.params);
        instance.params.assign(bytes, bytes + arguments.params_size);
    }
    const bool is_known = has_arguments && instance.memory_epoch == workers.memory_epoch;
    instance.memory.resize(arguments.memory.size());
    cl_uint index = 0;
    for (const Memory* memory : arguments.memory) {
        if (!is_known || instance.memory[index] != memory) {
            const cl_mem object = memory == nullptr ? nullptr : memory->on(worker);
            set_argument(instance, index + 1, sizeof object, &object, kernel);
            instance.memory[index] = memory;
        }
        ++index;
    }
    instance.memory_epoch = workers.memory_epoch;
    if (!has_arguments || instance.group_base != group_base) {
        set_argument(instance, index + 1, sizeof group_base, &group_base, kernel);
        instance.group_base = group_base;
    }
    instance.has_arguments = true;
}

void enqueue(const WorkerQueues& workers, size_t worker, cl_command_queue queue, const Arguments& arguments,
             const Grid& grid, cl_uint group_base, size_t group_count, cl_event* event = nullptr) {
    set_arguments(workers, worker, arguments, group_base);
    const std::array<size_t, 3> global{group_count * grid.group_size[0], grid.groups[1] * grid.group_size[1],
                                       grid.groups[2] * grid.group_size[2]};
    const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
    const cl_kernel kernel = arguments.kernel.instances[worker].kernel();
    const cl_int code = clEnqueueNDRangeKernel(queue, kernel, dimensions, nullptr, global.data(),
                                               grid.group_size.data(), 0, nullptr, event);
    if (code != CL_SUCCESS) throw_cl_error(code, "clEnqueueNDRangeKernel", arguments.kernel.label);
}

// The groups that one launch may have at most; larger grids are cut.
size_t most_groups(const WorkerQueues& workers, const Grid& grid) {
    if (!workers.quirks.has(Quirk::warm_up)) return grid.groups[0];
    return std::max<size_t>(1, warm_up_width / grid.group_size[0]);
}

// See warm_up.hpp. On a queue of its own: the host's may be waiting for something that comes after this call.
void warm_up(const WorkerQueues& workers, size_t worker, const Arguments& arguments, const Grid& grid) {
    Kernel::Instance& instance = arguments.kernel.instances[worker];
    if (instance.warm_up_group_size == grid.group_size) return;
    const WarmUp warm_up(arguments.kernel.label);
    const cl::CommandQueue queue = make_queue(workers.all[worker]);
    Work work(queue());
    enqueue(workers, worker, queue(), arguments, grid, warm_up_base, most_groups(workers, grid));
    work.finish();
    instance.warm_up_group_size = grid.group_size;
}

// A launch cut into parts, which the worker queues take one after the other.
struct Division {
    const WorkerQueues& workers;
    const Arguments& arguments;
    const Grid& grid;
    size_t groups_per_part;
    std::atomic<size_t> next_group{0};

    // Takes parts as long as there are any.
    void work_on(size_t worker) {
        const size_t groups = grid.groups[0];
        for (;;) {
            const size_t first = next_group.fetch_add(groups_per_part, std::memory_order_relaxed);
            if (first >= groups) return;
            enqueue(workers, worker, workers.all[worker].queue(), arguments, grid, static_cast<cl_uint>(first),
                    std::min(groups_per_part, groups - first));
            check(clFinish(workers.all[worker].queue()), "clFinish");
        }
    }
};

void run_divided(RuntimeState& state, const Arguments& arguments, const Grid& grid, bool& has_begun) {
    state.finish(); // the other worker queues know nothing of what was enqueued on the first
    const size_t workers = state.workers.all.size();
    const size_t groups = grid.groups[0];
    const size_t useful = static_cast<size_t>(grid.work / state.tuning.divided_work) + 1;
    const size_t parts = std::min({groups, workers * parts_per_queue, std::max(workers, useful)});
    const size_t groups_per_part = std::min((groups + parts - 1) / parts, most_groups(state.workers, grid));
    const size_t used = std::min(workers, parts);
    for (size_t worker = 0; state.workers.quirks.has(Quirk::warm_up) && worker < used; ++worker)
        warm_up(state.workers, worker, arguments, grid);
    Division division{state.workers, arguments, grid, groups_per_part};
    has_begun = true;
    const uint64_t begin_ns = state.times.are_wanted() ? monotonic_ns() : 0;
    run_on_host(state, static_cast<uint32_t>(used), [&](uint32_t worker) { division.work_on(worker); });
    if (state.times.are_wanted()) state.times.tell(arguments.kernel.name.c_str(), grid.bytes, begin_ns, monotonic_ns());
}

void run_on_first_queue(RuntimeState& state, const Arguments& arguments, const Grid& grid, bool& has_begun) {
    if (state.workers.quirks.has(Quirk::warm_up)) warm_up(state.workers, 0, arguments, grid);
    const size_t groups = grid.groups[0];
    const size_t most = most_groups(state.workers, grid);
    const cl_command_queue queue = state.workers.front().queue();
    LaunchTimes::Launch* const times = state.times.begin(arguments.kernel.name.c_str(), grid.bytes);
    for (size_t first = 0; first < groups; first += most) {
        cl_event event = nullptr;
        enqueue(state.workers, 0, queue, arguments, grid, static_cast<cl_uint>(first), std::min(most, groups - first),
                times != nullptr ? &event : nullptr);
        if (times != nullptr) times->add(event);
        has_begun = true;
        state.is_pending = true;
    }
}

} // namespace

void run(RuntimeState& state, const Arguments& arguments, const Grid& grid, bool& has_begun) {
    // Below, handing work to another thread costs more than it gives.
    const bool is_worth_dividing = grid.work >= state.tuning.divided_work && grid.groups[0] > 1;
    if (state.workers.is_divided() && is_worth_dividing && !WarmUp::is_crowded())
        run_divided(state, arguments, grid, has_begun);
    else
        run_on_first_queue(state, arguments, grid, has_begun);
}

uint32_t host_threads(const RuntimeState& state) {
    return state.workers.is_divided() ? static_cast<uint32_t>(state.workers.all.size()) : 1;
}

// Runs task(i) for each i below count in the host's threads, where nothing may be thrown: what was thrown first is,
// once all have ended.
void run_on_host(const RuntimeState& state, uint32_t count, const std::function<void(uint32_t)>& task) {
    struct Tasks {
        const std::function<void(uint32_t)>& task;
        std::atomic_flag has_failed = ATOMIC_FLAG_INIT;
        std::exception_ptr failure{}; // of whoever set has_failed

        static void WINNOW_CALL run(void* data, uint32_t i) {
            auto& tasks = *static_cast<Tasks*>(data);
            try {
                tasks.task(i);
            } catch (...) {
                if (!tasks.has_failed.test_and_set()) tasks.failure = std::current_exception();
            }
        }
    } tasks{task};
    state.parallel_for(state.parallel_user_data, count, &Tasks::run, &tasks);
    if (tasks.has_failed.test()) std::rethrow_exception(tasks.failure);
}

} // namespace winnow::opencl
