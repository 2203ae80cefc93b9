// What no kernel can do better than, of a device, measured by plain OpenCL kernels in the same turns as what is
// compared with it: reading, multiply-adds, conversions, and a launch that does nothing. The device outlives
// them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "harness.hpp"

namespace winnow::bench {

class PlainDevice;

// Reads all bytes of some memory: the limit for everything that has to read them.
class ReadLimit {
public:
    ReadLimit(const PlainDevice& device, const std::vector<const Memory*>& memory);
    ~ReadLimit();
    void run(uint32_t times = 1); // in one launch for each memory
    // Throws std::runtime_error where a run leaves out bytes: the xor of all words that it reads is not the memory's.
    void check();

private:
    struct State;
    std::unique_ptr<State> state_;
};

// The arithmetic of f32 out of registers, and of f16 out of the first cache.
class Peaks {
public:
    explicit Peaks(const PlainDevice& device);
    ~Peaks();
    void multiply_add(); // multiply_adds() of them
    void convert();      // conversions() from f16 to f32, with a multiply-add each
    void launch_nothing();
    double multiply_adds() const;
    double conversions() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace winnow::bench
