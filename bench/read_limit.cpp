// A plain OpenCL kernel that reads memory and does nothing with it.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

// Of all 32-bit words, the last one with zeros behind it.
uint32_t xor_of(const Memory& memory) {
    const char* const bytes = static_cast<const char*>(memory.data());
    uint64_t all = 0, at = 0;
    for (uint64_t word; at < memory.size(); at += sizeof word) {
        word = 0;
        std::memcpy(&word, bytes + at, std::min<uint64_t>(sizeof word, memory.size() - at));
        all ^= word;
    }
    return static_cast<uint32_t>(all ^ all >> 32);
}

} // namespace

struct ReadLimit::State {
    const PlainDevice& device;
    const std::vector<const Memory*> memory;
    struct Part { // of a queue and a memory
        OwnedMemory memory, sink;
        OwnedKernel kernel;
    };
    std::vector<std::vector<Part>> shares; // of a queue
};

ReadLimit::ReadLimit(const PlainDevice& device, const std::vector<const Memory*>& memory)
    : state_(std::make_unique<State>(State{device, memory, {}})) {
    const size_t queues = device.queues().size();
    // A device with memory of its own reads a copy there.
    const cl_mem_flags place = device.is_cpu() ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR;
    for (size_t i = 0; i < queues; ++i) {
        const PlainQueue& queue = device.queues()[i];
        std::vector<State::Part>& share = state_->shares.emplace_back();
        for (const Memory* each : memory) {
            const size_t begin = each->size() * i / queues / 64 * 64, end = each->size() * (i + 1) / queues / 64 * 64;
            const size_t size = i + 1 == queues ? each->size() - begin : end - begin;
            State::Part& part = share.emplace_back();
            part.memory = queue.memory(CL_MEM_READ_ONLY | place, size, static_cast<char*>(each->data()) + begin);
            part.sink = queue.memory(CL_MEM_READ_WRITE, device.groups() * device.items() * sizeof(cl_uint));
            const cl_mem from = part.memory.get(), sink = part.sink.get();
            const char* const name = device.is_cpu() ? "read_all" : "read_abreast";
            part.kernel = queue.kernel(name, cl_uint{1}, from, cl_ulong{size}, sink);
        }
    }
}

ReadLimit::~ReadLimit() = default;

void ReadLimit::run(uint32_t times) {
    const PlainDevice& device = state_->device;
    device.run([&](size_t i) {
        for (const State::Part& part : state_->shares[i])
            device.queues()[i].enqueue(part.kernel, times, device.groups(), device.items());
    });
}

void ReadLimit::check() {
    const PlainDevice& device = state_->device;
    run();
    std::vector<cl_uint> sink(device.groups() * device.items());
    for (size_t each = 0; each < state_->memory.size(); ++each) {
        uint32_t all = 0;
        for (size_t i = 0; i < state_->shares.size(); ++i) {
            device.queues()[i].read(state_->shares[i][each].sink, sink);
            for (const cl_uint x : sink) all ^= x;
        }
        if (all != xor_of(*state_->memory[each])) throw std::runtime_error("the plain read leaves out bytes");
    }
}

} // namespace winnow::bench
