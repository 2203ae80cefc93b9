// What the device can do: what it says, and for zero copy, what it does.
#include "opencl/runtime_state.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::opencl {
namespace {

constexpr std::string_view probe_source = R"(
kernel void winnow_probe(global uint* memory) {
    memory[1] = memory[0] + 1u;
    *(global ulong*)(memory + 2) = (ulong)memory;
}
)";

// Runs a kernel on host memory twice, with a change by the host between, and without mapping. Only what is there
// afterwards counts.
void probe_host_memory(WorkerQueues& workers, Programs& programs, Capabilities& found) {
    const WorkerQueue& worker = workers.front();
    if (device_value<cl_bool>(worker.device, CL_DEVICE_HOST_UNIFIED_MEMORY) != CL_TRUE) return;
    Kernel& kernel = programs.kernel_of_source("probe", probe_source, "winnow_probe", {});
    // A queue of its own: a host's queue may be waiting for something that comes after this call.
    const cl::CommandQueue queue = make_queue(worker);

    const HostPages pages(1);
    const PageRange range(pages.data(), 1);
    const Memory memory(workers, range.data(), range.size());
    Work work(queue());
    auto words = reinterpret_cast<volatile cl_uint*>(pages.data());
    cl_mem argument = memory.on(0);
    check(clSetKernelArg(kernel.instances[0].kernel(), 0, sizeof argument, &argument), "clSetKernelArg");
    for (const cl_uint value : {41u, 7u}) {
        words[0] = value;
        const size_t one = 1;
        check(
            clEnqueueNDRangeKernel(queue(), kernel.instances[0].kernel(), 1, nullptr, &one, &one, 0, nullptr, nullptr),
            "clEnqueueNDRangeKernel");
        work.finish();
        if (words[1] != value + 1) return;
    }
    uint64_t address = 0;
    std::memcpy(&address, pages.data() + 8, sizeof address);
    found.zero_copy = true;
    found.has_hosts_addresses = found.type == WINNOW_DEVICE_CPU && address == reinterpret_cast<uintptr_t>(pages.data());
}

#ifndef CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV
#define CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV 0x4000
#endif
#ifndef CL_DEVICE_WARP_SIZE_NV
#define CL_DEVICE_WARP_SIZE_NV 0x4003
#endif
#ifndef CL_DEVICE_SUB_GROUP_SIZES_INTEL
#define CL_DEVICE_SUB_GROUP_SIZES_INTEL 0x4108
#endif

constexpr uint32_t offered_subgroups = 16 | 32 | 64; // sizes that kernels are written for

// NVIDIA's driver has no subgroups, but its compiler takes the instructions by which the lanes of a warp exchange.
void find_subgroups(Capabilities& found, cl_device_id device) {
    const std::string extensions = device_text(device, CL_DEVICE_EXTENSIONS);
    if (has_word(extensions, "cl_nv_device_attribute_query") && has_word(extensions, "cl_nv_compiler_options")) {
        found.subgroup_sizes = device_value<cl_uint>(device, CL_DEVICE_WARP_SIZE_NV) & offered_subgroups;
        found.takes_ptx = true;
        found.has_tensor_cores = device_value<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV) >= 8;
    } else if (has_word(extensions, "cl_khr_subgroup_shuffle") &&
               has_word(extensions, "cl_intel_required_subgroup_size") && device_version(device) >= 200) {
        size_t bytes = 0;
        if (clGetDeviceInfo(device, CL_DEVICE_SUB_GROUP_SIZES_INTEL, 0, nullptr, &bytes) != CL_SUCCESS) return;
        std::vector<size_t> sizes(bytes / sizeof(size_t));
        if (clGetDeviceInfo(device, CL_DEVICE_SUB_GROUP_SIZES_INTEL, bytes, sizes.data(), nullptr) != CL_SUCCESS)
            return;
        for (const size_t size : sizes) found.subgroup_sizes |= static_cast<uint32_t>(size) & offered_subgroups;
    }
}

} // namespace

Capabilities told_capabilities(const DeviceEntry& entry, const Quirks& quirks) {
    Capabilities found;
    found.type = entry.info.type;
    found.compute_units = entry.info.compute_units;
    found.max_allocation_size = entry.info.max_allocation_size;
    found.local_memory_size = device_value<cl_ulong>(entry.devices.front(), CL_DEVICE_LOCAL_MEM_SIZE);
    found.max_group_size = device_value<size_t>(entry.devices.front(), CL_DEVICE_MAX_WORK_GROUP_SIZE);
    found.quirks = quirks;
    found.takes_barriers = !quirks.has(Quirk::no_barriers);
    find_subgroups(found, entry.devices.front());
    found.single_launch = (entry.info.capabilities & WINNOW_CAPABILITY_SINGLE_LAUNCH) != 0;
    return found;
}

Capabilities probe_capabilities(WorkerQueues& workers, Programs& programs, bool copies) {
    Capabilities found = told_capabilities(workers.entry, workers.quirks);
    if (workers.entry.is_multiple()) found.compute_units = static_cast<uint32_t>(workers.all.size());
    if (!copies) probe_host_memory(workers, programs, found);
    return found;
}

} // namespace winnow::opencl
