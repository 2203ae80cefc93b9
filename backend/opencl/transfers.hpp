// Host memory on its way to a device that cannot reach it, and back. What the tensors of one launch need goes over in
// one copy, out of memory that the driver may read without asking the system (pinned); results come back into such
// memory, and reach the host's tensors with the next wait. So operations that follow each other wait for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "opencl/cl.hpp"
#include "opencl/memory.hpp"

namespace winnow::opencl {

struct RuntimeState;

class Transfers {
public:
    explicit Transfers(RuntimeState& state) : state_(state) {}
    ~Transfers();
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;

    // As many bytes of the device and beside it.
    struct Place {
        const Memory* memory = nullptr;
        uint64_t offset = 0;
        std::byte* host = nullptr;
    };

    // From now on every tensor is copied by itself, in memory of its size, so that a simulator sees who leaves it.
    void stand_apart() { is_pooled_ = false; }

    // An operation begins, and those before it have taken all that they need.
    void begin() { begins_ = true; }
    // Aligned to 128 bytes, for the operation that began last. None where there is no room for so many bytes beside
    // what it has taken: such memory is copied by itself.
    // What the host writes into a place that is an input goes over with the next send().
    std::optional<Place> take(uint64_t size, bool is_input);
    // Enqueues the copy of the inputs that were taken since the last call.
    void send();
    // Enqueues the copy back of a tensor that lies there.
    void fetch(const Tensor& tensor, const Place& place);
    // All copies have ended: gives the tensors what was fetched. A wait that failed delivers nothing and drops nothing,
    // because it can be repeated.
    void deliver();
    // Every fetch has a number, and this is the next one's. After a call that failed the host may free its tensors:
    // what was fetched for it, from a number on, is not delivered any more.
    uint64_t next_fetch() const { return next_fetch_; }
    void drop_from(uint64_t fetch);
    // Whether some of these bytes are still to be delivered.
    bool are_coming(const void* data, uint64_t size) const;
    bool are_any_coming() const { return !fetched_.empty(); }

private:
    struct Fetched {
        Tensor tensor;
        const std::byte* from;
        uint64_t number;
    };
    void allocate();

    RuntimeState& state_;
    std::unique_ptr<Memory> device_;
    std::unique_ptr<Memory> pinned_;
    std::byte* host_ = nullptr; // pinned_, mapped for as long as there is one
    uint64_t next_ = 0;         // what lies before it is taken by inputs
    uint64_t sent_ = 0;         // and was sent up to here
    uint64_t outputs_ = 0;      // bytes at the end that are taken by outputs
    bool begins_ = true;        // the operation has taken nothing yet
    bool is_pooled_ = true;
    uint64_t next_fetch_ = 0;
    std::vector<Fetched> fetched_; // in the order of their numbers
};

// Copies a tensor in the host's memory row by row, because what lies between the rows may be another tensor's. `from`
// has its extent.
void copy_rows(const Tensor& tensor, const std::byte* from);

} // namespace winnow::opencl
