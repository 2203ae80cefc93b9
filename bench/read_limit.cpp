// A plain OpenCL kernel that reads memory and does nothing with it.
#include <algorithm>

#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {

struct ReadLimit::State {
    const PlainDevice& device;
    struct Part {
        OwnedMemory memory;
        OwnedKernel kernel;
    };
    struct Share { // of a queue
        OwnedMemory sink;
        std::vector<Part> parts;
    };
    std::vector<Share> shares;
};

ReadLimit::ReadLimit(const PlainDevice& device, const std::vector<const Memory*>& memory)
    : state_(std::make_unique<State>(State{device, {}})) {
    const size_t queues = device.queues().size(), groups = device.groups();
    const size_t bytes_of_a_load = device.is_cpu() ? 64 : 16;
    // A device with memory of its own reads a copy there.
    const cl_mem_flags place = device.is_cpu() ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR;
    for (size_t i = 0; i < queues; ++i) {
        const PlainQueue& queue = device.queues()[i];
        State::Share& share = state_->shares.emplace_back();
        share.sink = queue.memory(CL_MEM_READ_WRITE, groups * sizeof(cl_uint));
        for (const Memory* each : memory) {
            const size_t begin = each->size() * i / queues / 64 * 64, end = each->size() * (i + 1) / queues / 64 * 64;
            const size_t size = i + 1 == queues ? each->size() - begin : end - begin;
            State::Part& part = share.parts.emplace_back();
            part.memory = queue.memory(CL_MEM_READ_ONLY | place, size, static_cast<char*>(each->data()) + begin);
            // read_all takes the number of a group's loads, read_abreast that of all.
            const cl_ulong count = size / (device.is_cpu() ? groups : 1) / bytes_of_a_load;
            const cl_mem from = part.memory.get(), sink = share.sink.get();
            part.kernel = queue.kernel(device.is_cpu() ? "read_all" : "read_abreast", cl_uint{1}, from, count, sink);
        }
    }
}

ReadLimit::~ReadLimit() = default;

void ReadLimit::run(uint32_t times) {
    const PlainDevice& device = state_->device;
    device.run([&](size_t i) {
        for (const State::Part& part : state_->shares[i].parts)
            device.queues()[i].enqueue(part.kernel, times, device.groups(), device.items());
    });
}

} // namespace winnow::bench
