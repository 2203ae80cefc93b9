// Plain OpenCL kernels that compute and read next to nothing, or do nothing at all.
#include <algorithm>
#include <chrono>
#include <limits>

#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

constexpr double long_enough = 1e-3; // seconds of a launch, beside which starting it is little
constexpr cl_uint most_rounds = 1u << 30;
constexpr int tries = 3;                   // of a number of rounds: a single launch may have to wait for something else
constexpr size_t bytes_in_cache = 8 << 10; // of f16
constexpr size_t vectors_of_a_round = 12;  // of multiply_add, and a work-item

double shortest_seconds_of(const std::function<void()>& run) {
    double shortest = std::numeric_limits<double>::infinity();
    for (int each = 0; each < tries; ++each) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        shortest = std::min(shortest, time.count());
    }
    return shortest;
}

} // namespace

struct Peaks::State {
    const PlainDevice& device;
    size_t width, vectors;
    struct Kernels { // of a queue
        OwnedMemory sink, halves;
        OwnedKernel multiply_add, convert, nothing;
    };
    std::vector<Kernels> kernels;
    cl_uint multiply_add_rounds = 1, convert_rounds = 1;

    double work_items() const { return static_cast<double>(device.queues().size() * device.groups() * device.items()); }
    void run(OwnedKernel Kernels::*kernel, cl_uint rounds) const {
        device.run(
            [&](size_t i) { device.queues()[i].enqueue(kernels[i].*kernel, rounds, device.groups(), device.items()); });
    }
    // How many make a launch long enough.
    cl_uint find_rounds(OwnedKernel Kernels::*kernel) const {
        run(kernel, 1);
        cl_uint rounds = 16;
        while (shortest_seconds_of([&] { run(kernel, rounds); }) < long_enough && rounds < most_rounds) rounds *= 2;
        return rounds;
    }
};

Peaks::Peaks(const PlainDevice& device) : state_(std::make_unique<State>(State{device, 0, 0, {}})) {
    State& state = *state_;
    state.width = device.is_cpu() ? 16 : 4;
    state.vectors = bytes_in_cache / (2 * state.width);
    for (const PlainQueue& queue : device.queues()) {
        State::Kernels& its = state.kernels.emplace_back();
        const size_t floats = device.groups() * device.items() * state.width;
        std::vector<cl_half> ones(bytes_in_cache / sizeof(cl_half), 0x3c00);
        its.sink = queue.memory(CL_MEM_READ_WRITE, floats * sizeof(float));
        its.halves = queue.memory(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes_in_cache, ones.data());
        const cl_mem sink = its.sink.get(), halves = its.halves.get();
        const cl_uint rounds = 1, vectors = static_cast<cl_uint>(state.vectors);
        const float factor = 0.75f, addend = 0.125f; // sums stay as large as they are
        its.multiply_add = queue.kernel("multiply_add", rounds, factor, addend, sink);
        its.convert = queue.kernel("convert", rounds, factor, halves, vectors, sink);
        its.nothing = queue.kernel("nothing", sink);
    }
    state.multiply_add_rounds = state.find_rounds(&State::Kernels::multiply_add);
    state.convert_rounds = state.find_rounds(&State::Kernels::convert);
}

Peaks::~Peaks() = default;

void Peaks::multiply_add() { state_->run(&State::Kernels::multiply_add, state_->multiply_add_rounds); }
void Peaks::convert() { state_->run(&State::Kernels::convert, state_->convert_rounds); }

void Peaks::launch_nothing() {
    const PlainDevice& device = state_->device;
    device.run([&](size_t i) {
        device.queues()[i].enqueue(state_->kernels[i].nothing, device.compute_units(), device.items());
    });
}

double Peaks::multiply_adds() const {
    return state_->work_items() * static_cast<double>(vectors_of_a_round * state_->width) *
           static_cast<double>(state_->multiply_add_rounds);
}

// A group goes through all vectors in each round.
double Peaks::conversions() const {
    return state_->work_items() / static_cast<double>(state_->device.items()) *
           static_cast<double>(state_->vectors * state_->width) * static_cast<double>(state_->convert_rounds);
}

} // namespace winnow::bench
