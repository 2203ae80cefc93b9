// A backend as the tests of this folder have it: the shared object, a context on it, what it logged, and the tensors of
// calls. Nothing here knows which call is to fail.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "open_backend.hpp"
#include "winnow.h"

namespace winnow::faults {

// What a test holds against what it was: a number for so many bytes.
uint64_t digest(const void* data, size_t size);
template <typename T>
std::string digest(const std::vector<T>& values) {
    return std::to_string(digest(values.data(), values.size() * sizeof(T)));
}

// Numbers between -1 and 1, the same for the same seed.
std::vector<float> numbers(size_t count, uint64_t seed);

class Session {
public:
    explicit Session(const std::string& backend) : opened_(backend) {} // throws what OpenBackend throws
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const winnow_api& api() const { return opened_.api(); }
    const winnow_cache_api& caches() const { return opened_.caches(); }
    const winnow_opencl_api& opencl() const { return *opened_.opencl(); } // of a backend with OpenCL
    // The context, NULL where there is none. A failure leaves its text in message().
    winnow_context* context() const { return context_; }
    // with_host_threads: threads of this program's carry the work, where a device lets them.
    int32_t create(bool with_host_threads = false);
    int32_t destroy();
    std::string message() const;
    std::vector<std::string> logged; // since the context was created
    bool is_timed = false;           // contexts tell of their launches

private:
    tools::OpenBackend opened_;
    winnow_context* context_ = nullptr;
    std::string creation_message_;
};

// A dense tensor in the host's memory.
class HostTensor {
public:
    HostTensor(uint32_t type, int64_t heads, int64_t rows, int64_t columns);
    HostTensor(const HostTensor&) = delete;
    HostTensor& operator=(const HostTensor&) = delete;

    static constexpr uint32_t f32 = WINNOW_TYPE_F32;
    void fill(uint64_t seed);                     // F32: numbers
    void count_from(int32_t at);                  // I32
    void set(const std::vector<int32_t>& values); // I32
    void poison();                                // so that what is not written shows
    std::string digest() const { return faults::digest(bytes_); }
    std::vector<float> floats() const;
    const winnow_tensor* get() const { return &tensor_; }

private:
    winnow_tensor tensor_{};
    std::vector<char> bytes_;
};

// [1, heads, rows, columns] of any storage format without gaps, in a buffer.
winnow_tensor buffer_tensor(const winnow_api& api, winnow_buffer* buffer, uint32_t type, int64_t heads, int64_t rows,
                            int64_t columns);

} // namespace winnow::faults
