// What the launchers of kernels (sdpa_vector.cpp, kv_append.cpp, ...) see of OpenCL: capabilities, kernels made on
// demand, memory bound to arguments, and the launch itself. A launcher chooses a variant, fills a parameter struct and
// calls Operation; which queue, thread and import of host memory that means is decided here.
//
//     Kernel& kernel = runtime.kernel("sdpa_vector.cl", "sdpa_vector", options);
//     Operation operation(runtime);
//     const Bound q = operation.bind(args.q, Access::read);
//     params.q_offset = q.offset; ...
//     operation.launch(kernel, params, {q.memory, ...}, Grid{.groups = {n, 1, 1}, .work = multiply_adds});
//     return operation.complete(want_event);
//
// The arguments of every kernel are, in this order:
//     0        the parameter struct, by value; or a pointer to it where the device takes too little by value, or where
//              the launch says so (kernels/sdpa_entries.h)
//     1 .. n   memory, in the order given to launch(); nullptr arrives as a NULL pointer
//     n + 1    uint group_base: the group's number is get_group_id(0) + group_base
// A group_base of 0xffffffff asks for nothing: every kernel begins by returning then (warm_up.hpp says what for).
// group_base is how one operation is divided among several devices without a global offset: no group may assume that
// the groups of one get_num_groups(0) are all there are (put the count into the parameters), nor wait for another
// group. The devices are cores of one CPU then, so that atomics of device scope reach from one to the other.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "device/device.hpp"
#include "opencl/cl.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

// What was found out about the device; variants are chosen by this alone.
struct Capabilities {
    uint32_t type = 0;          // WINNOW_DEVICE_*
    uint32_t compute_units = 1; // that work at once on one operation: of the device, or the number of worker queues
    uint64_t max_allocation_size = 0;
    uint64_t local_memory_size = 0; // bytes of a work-group
    uint64_t max_group_size = 1;    // work-items
    // Subgroups, whose work-items run together and exchange numbers: the sum of the sizes 16, 32 and 64 that there are.
    uint32_t subgroup_sizes = 0;
    bool takes_ptx = false;        // its compiler takes the assembler of NVIDIA's GPUs, by which they exchange
    bool has_tensor_cores = false; // a subgroup multiplies small matrices in one instruction
    bool takes_barriers = true;    // its compiler copes with kernels of many work-items and many barriers
    // Operations, or single kernels of them, that groups of many work-items get wrong (self_test.hpp).
    std::vector<std::string_view> wrong_in_groups;
    Quirks quirks;                    // of its driver, which what is above goes by, too: what a refusal names
    bool zero_copy = false;           // host memory is used where it lies (probed)
    bool has_hosts_addresses = false; // and has the same addresses there, so that a kernel may be told where it is
    bool single_launch = false;       // device-scope acquire/release atomics: the last group may combine
};

enum class Access { read, write, read_write };

class Memory; // what a pointer argument points to; opaque, because each worker queue has a cl_mem of its own for it

// Memory as a kernel argument: the pointer argument, and the tensor's first byte relative to it. The pointer is aligned
// to at least 128 bytes; the offset need not be aligned to more than the element.
struct Bound {
    const Memory* memory = nullptr;
    uint64_t offset = 0; // bytes
};

struct Grid {
    std::array<size_t, 3> groups{1, 1, 1};
    std::array<size_t, 3> group_size{1, 1, 1};
    // About how many multiply-adds the launch costs: small ones are not worth waking a second thread. 0: small.
    uint64_t work = 0;
    uint64_t bytes = 0; // that it reads and writes, as winnow_launch has them; 0: not counted
};

class Kernel; // one entry point of one specialised program; lives as long as the Runtime
class Runtime;
struct RuntimeState;

// One call of the interface: binds its tensors, launches one kernel or several, completes. Copies host memory in where
// the device cannot reach it, and out, which is over with the next wait. Not to be kept beyond the call.
class Operation {
public:
    explicit Operation(Runtime& runtime);
    explicit Operation(RuntimeState& state);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // An absent tensor gives {nullptr, 0}. Use read_write for a tensor that is written in part only (rows by index);
    // the gaps between the rows of a strided tensor survive in any case.
    Bound bind(const Tensor& tensor, Access access);

    template <typename Params>
    void launch(Kernel& kernel, const Params& params, std::initializer_list<const Memory*> memory, const Grid& grid) {
        static_assert(std::is_trivially_copyable_v<Params>);
        launch(kernel, &params, sizeof params, {memory.begin(), memory.size()}, grid);
    }
    void launch(Kernel& kernel, const void* params, size_t params_size, std::span<const Memory* const> memory,
                const Grid& grid, bool are_params_in_memory = false);

    // Begins to copy out what has to be, and gives the event if one is wanted (null otherwise), after a wait then.
    std::unique_ptr<Event> complete(bool want_event);

private:
    struct Staged; // host memory brought to the device for this operation
    Bound bind_copy(const Tensor& tensor, Access access);
    void end_copies(bool waits);

    RuntimeState& state_;
    bool is_running_ = false;    // something was enqueued, and complete() has not come to its end
    uint64_t first_fetch_ = 0;   // of its own, by number
    std::vector<Staged> staged_; // stays empty, and without allocation, where imports of host memory are kept
};

class Runtime {
public:
    // Chooses the device (or takes the host's objects), probes it and makes the queues. Throws NOT_FOUND,
    // INVALID_ARGUMENT, DEVICE.
    explicit Runtime(const DeviceRequest& request, const VariantOptions& forced = {});
    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    const Capabilities& capabilities() const;
    // Throws UNSUPPORTED where no memory object of the device can hold the tensor, wherever it lies. Nothing is said of
    // an absent one. name: of the tensor, in the message.
    void check_extent(const Tensor& tensor, const char* name) const;
    void info(winnow_device_info& out) const;                     // all but struct_size and kernel_shape
    void stats(winnow_stats& out) const;                          // launches, programs, copies
    const std::string& slot_shape() const { return slot_shape_; } // that is forced; empty: none

    // The kernel `name` of the embedded file `file` ("sdpa_vector.cl") built with `options` ("-DHEAD_SIZE=64 ...";
    // -cl-std is added, the newest language of the device); compiled or loaded at its first use. A lookup hashes the
    // three strings (about 0.1 us), so where the options string is costly to make, keep the reference: it stays valid
    // as long as the Runtime. Throws DEVICE with the build log.
    Kernel& kernel(std::string_view file, std::string_view name, std::string_view options);

    // Device memory for a kernel's partial results, at least `bytes` large, zeroed when it is made and handed out again
    // at each call with what the last launch left in it: a counter in it has to be put back to zero by the group that
    // used it last. Each `slot` (0 to 3) is a memory of its own. Growing it gives a new, zeroed one.
    const Memory* scratch(uint64_t bytes, int slot = 0);

    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling = 0, cl_mem_flags place = 0);
    std::unique_ptr<Buffer> import_host(void* data, uint64_t size);
    std::unique_ptr<Buffer> import_cl_mem(void* memory, uint64_t offset, uint64_t size);

    void flush();
    void finish();
    void wait_cl_event(void* event);

    // The parts, for who includes runtime_state.hpp: the runtime itself and its tests.
    RuntimeState& state() { return *state_; }
    const RuntimeState& state() const { return *state_; }

private:
    std::unique_ptr<RuntimeState> state_;
    std::string slot_shape_;
};

} // namespace winnow::opencl
