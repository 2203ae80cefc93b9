// The operations a device must offer. backend/api translates the C table into calls of this interface; opencl/ and
// reference/ implement it. Nothing here knows OpenCL, and nothing here knows the C structs' versions.
//
// Arguments arrive validated: shapes agree, strides are legal, memory is present and large enough. What is left to an
// implementation is whether *it* can do the work; it says so by throwing Error with the reason.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/format.hpp"
#include "winnow.h"

namespace winnow {

// A failure on its way to the C boundary: a status of winnow.h and a text for people.
class Error : public std::runtime_error {
public:
    Error(int32_t status, const std::string& text) : std::runtime_error(text), status_(status) {}
    int32_t status() const noexcept { return status_; }

private:
    int32_t status_;
};

// WINNOW_ERROR_OUT_OF_MEMORY says that nothing has changed: what fails of lack of memory after the first change is a
// failure of the device.
inline Error after_a_change(const Error& error) {
    return error.status() == WINNOW_ERROR_OUT_OF_MEMORY ? Error(WINNOW_ERROR_DEVICE, error.what()) : error;
}

// What a process is told that cannot use what the process it was forked from has.
inline Error forked_error() {
    return {
        WINNOW_ERROR_UNSUPPORTED,
        "this process was forked from one that had used OpenCL, whose driver's threads it does not have: fork before "
        "the first use of this backend, or start another program in the child (exec)"};
}

// A defect: only a backend that is_opencl is asked for OpenCL's objects.
inline Error no_opencl() { return {WINNOW_ERROR_INTERNAL, "this device has no OpenCL"}; }

// Memory a tensor can lie in. Its size is fixed; reading and writing wait for work enqueued before.
class Buffer {
public:
    virtual ~Buffer() = default;
    virtual uint64_t size() const = 0;
    virtual void write(uint64_t offset, const void* data, uint64_t size) = 0;
    virtual void read(uint64_t offset, void* data, uint64_t size) = 0;
    virtual std::pair<void*, uint64_t> cl_memory() { throw no_opencl(); } // borrowed, and the byte where it begins
};

// A point in the order of a device's work.
class Event {
public:
    virtual ~Event() = default;
    virtual void wait() = 0;
    virtual void* cl_event() { throw no_opencl(); } // borrowed
};

// A strided view, axes outermost first, strides in bytes. Absent when type is none. Lies in a buffer, or else at data.
struct Tensor {
    Type type = Type::none;
    Buffer* buffer = nullptr;
    std::byte* data = nullptr;
    uint64_t offset = 0;
    std::array<int64_t, 4> shape{};
    std::array<int64_t, 4> stride{};

    explicit operator bool() const noexcept { return type != Type::none; }
    // Bytes from the view's first to one past its last.
    uint64_t extent() const noexcept {
        uint64_t last = 0;
        for (int axis = 0; axis < 3; ++axis)
            last += static_cast<uint64_t>(shape[axis] - 1) * static_cast<uint64_t>(stride[axis]);
        return last + row_bytes(type, shape[3]);
    }
    // Bytes of its rows, without what lies between them; 0 of an absent one.
    uint64_t stored_bytes() const noexcept {
        return static_cast<uint64_t>(shape[0] * shape[1] * shape[2]) * row_bytes(type, shape[3]);
    }
};

// An element of indices or token ids, I32 or I64.
inline int64_t load_index(Type type, const std::byte* at) {
    if (type == Type::i32) {
        int32_t index = 0;
        std::memcpy(&index, at, sizeof index);
        return index;
    }
    int64_t index = 0;
    std::memcpy(&index, at, sizeof index);
    return index;
}

// An entry of a slot map is negative where the slot is free; else the token id, and a flag for an anchor.
// A token id is the token's position, or the host's cell where the host has cells.
inline constexpr int32_t free_slot = -1;
inline constexpr uint8_t free_slot_byte = 0xff; // every byte of it
inline constexpr int32_t anchor_flag = 1 << 30; // token ids are below it

// Rows of K and V in one format each, for every KV head or for those of `heads`: of a host's keys and values, or of one
// layer of one sequence of a cache, whose batch is 1.
struct Segment {
    Tensor k;          // [batch, kv_heads, slots, head_size], any storage format
    Tensor v;          // [batch, kv_heads, slots, v_head_size], any storage format
    Tensor tokens;     // I32 [batch, kv_heads, 1, slots]: the slot map; absent: slot j has token j
    Tensor importance; // F32 [1, kv_heads, 1, slots], or absent: the policy needs none
    Tensor k_mean;     // F32 [1, kv_heads, 1, head_size], or absent; rows of K are stored less this
    Tensor v_mean;     // F32 [1, kv_heads, 1, v_head_size], or absent; rows of V are stored less this
    // In an attention k and v may be of some KV heads alone, in their order: bit h for head h; 0: of all. The rows of
    // the others are then in further segments, which share the slots of the one before: `tokens` and what is beside it
    // are the same there.
    uint64_t heads = 0;
    bool shares_slots = false;

    int64_t slots() const { return k.shape[2]; }
    int64_t kv_heads() const { return heads != 0 ? tokens.shape[1] : k.shape[1]; }
    bool has_rows_of(int64_t head) const { return heads == 0 || (heads >> head & 1) != 0; }
    // Where a head's rows are along k.shape[1].
    int64_t rows_of_head(int64_t head) const {
        return heads == 0 ? head : std::popcount(heads & ((uint64_t{1} << head) - 1));
    }
};
// Without those that share slots: what knows maps and columns, and no rows.
std::vector<Segment> with_own_slots(const std::vector<Segment>& segments);
int64_t slots_in(const std::vector<Segment>& segments); // those that are shared count once
// Of heads [first, first + count) alone; `segment` has their rows.
Segment heads_of(Segment segment, int64_t first, int64_t count);
Tensor heads_of(Tensor tensor, int64_t first, int64_t count); // may be absent

// Positions are sums of numbers within this; far from overflow, so that every kernel's comparison stays plain.
inline constexpr int64_t position_limit = int64_t{1} << 48;

enum class Scores : uint32_t { none, raw, softcapped, biased, probs };

// Attention in parts: one softmax over the keys of several launches. What the rows have so far lies in memory that is
// the device's own affair.
struct Carry {
    Tensor rows;         // F32 [1, q_heads, q_len, carried_floats], or absent: one launch has all keys
    bool joins = false;  // earlier launches left something there: it is joined
    bool leaves = false; // later ones follow: the rows are left there, and out, head_sink and row_stats wait for them
    explicit operator bool() const noexcept { return static_cast<bool>(rows); }
};

// winnow_sdpa_desc, checked: see there for shapes and formulas. There is one softmax across all segments. What a slot
// map has for a slot stands in the place of the key's index: in causality, window, ALiBi, and as the mask's column;
// free slots are not seen. scores_out, F32 [batch, q_heads, q_len, slots], has the segments' slots one after another.
// Of several segments scores_mode is none or biased, and batch is 1.
struct Sdpa {
    Tensor q, out;
    std::vector<Segment> segments; // 1 to 4 that have slots; the first has rows of all heads
    Tensor mask, mask_slopes, alibi_slopes, head_sink;
    Tensor scores_out, row_stats;
    Scores scores_mode = Scores::none;
    float scale = 0; // never 0 here: the default is resolved
    float softcap = 0;
    bool is_causal = false;
    int64_t q_offset = 0;
    Tensor kv_lengths, q_offsets; // I32 or I64 [1, 1, 1, batch], or absent; of one segment
    int64_t window_left = 0;
    int64_t window_right = 0;
    float v_threshold = 0;
    Tensor v_rows_skipped;
    Carry carry; // where it is there, the segments have some of the keys alone

    int64_t batch() const { return q.shape[0]; }
    int64_t q_heads() const { return q.shape[1]; }
    int64_t q_len() const { return q.shape[2]; }
    int64_t head_size() const { return q.shape[3]; }
    int64_t kv_heads() const { return segments.front().kv_heads(); }
    int64_t kv_len() const { return slots_in(segments); }
    int64_t v_head_size() const { return segments.front().v.shape[3]; }
    // Entries of q's batch that share one of k and v.
    int64_t kv_share() const { return batch() / segments.front().k.shape[0]; }
    int64_t group() const { return q_heads() / kv_heads(); }
};

// One side of winnow_kv_append_desc. Absent when cache is.
struct AppendRows {
    Tensor src, cache, row_indices;
    Norm norm = Norm::corrected;
    explicit operator bool() const noexcept { return static_cast<bool>(cache); }
};

struct KvAppend {
    AppendRows k, v;
};

// How messages call the tensors of a side. Literals: they become text only where something failed.
struct AppendNames {
    const char* src;
    const char* cache;
    const char* row_indices;
};
inline constexpr AppendNames append_k_names = {"kv_append: k_src", "kv_append: k_cache", "kv_append: k_row_indices"};
inline constexpr AppendNames append_v_names = {"kv_append: v_src", "kv_append: v_cache", "kv_append: v_row_indices"};

// winnow_kv_requantize_desc, checked. Without row_indices every row is meant.
struct KvRequantize {
    Tensor src, dst, row_indices;
    Norm norm = Norm::corrected;
};

// winnow_kv_dequantize_desc, checked. Without row_indices every row is meant.
struct KvDequantize {
    Tensor src, dst, row_indices;
};

// winnow_hadamard_desc, checked.
struct Hadamard {
    Tensor src, dst;
    bool inverse = false;
};

// slots.hpp
struct SlotAppend;
struct SlotAccumulate;
struct SlotAttend;
struct SlotScores;
struct SlotEvict;
struct SlotEdit;
struct SlotCompact;
struct SlotCopy;
struct SlotZero;

// pages.hpp
struct PageSign;
struct PagePick;

using Log = std::function<void(int32_t level, const std::string& text)>;

// What a context is made from.
struct DeviceRequest {
    std::string device; // winnow_context_desc.device
    void* cl_context = nullptr;
    void* cl_device_id = nullptr;
    void* cl_command_queue = nullptr;
    std::string variants;
    uint32_t max_threads = 0;
    winnow_parallel_for parallel_for = nullptr;
    void* parallel_user_data = nullptr;
    winnow_launch_callback launched = nullptr;
    void* launched_user_data = nullptr;
    Log log; // never empty
};

class Device {
public:
    virtual ~Device() = default;
    virtual void info(winnow_device_info& out) const = 0; // all fields but struct_size
    virtual void stats(winnow_stats& out) const = 0;      // the fields it counts: launches, programs, copies

    // Each byte of the memory is `filling`.
    virtual std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) = 0;
    std::unique_ptr<Buffer> allocate(uint64_t size) { return allocate(size, 0); }
    // Of zeros, in memory of the host's that the device reaches, where it has memory of its own.
    virtual std::unique_ptr<Buffer> allocate_beside(uint64_t size) { return allocate(size, 0); }
    virtual std::unique_ptr<Buffer> import_host(void* data, uint64_t size) = 0;
    virtual std::unique_ptr<Buffer> import_cl_mem(void* /*cl_mem*/, uint64_t /*offset*/, uint64_t /*size*/) {
        throw no_opencl();
    }

    // The variant that would run, or throws Error(UNSUPPORTED) with the reason. No side effect; tensors may lack
    // memory.
    virtual std::string validate(const Sdpa& args) const = 0;
    virtual std::string validate(const KvAppend& args) const = 0;
    virtual std::string validate(const KvRequantize& args) const = 0;
    virtual std::string validate(const KvDequantize& args) const = 0;
    virtual std::string validate(const Hadamard& args) const = 0;
    // Throws what `validate` throws, and makes no text of the variant: each step of a cache asks.
    virtual void check(const Sdpa& args) const { validate(args); }

    // Enqueue. With want_event the returned event completes with this operation; otherwise it may be null.
    virtual std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) = 0;
    virtual std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) = 0;
    virtual std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) = 0;
    virtual std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) = 0;
    virtual std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) = 0;
    virtual int64_t carried_floats(int64_t v_head_size) const = 0; // of a row of Carry

    // The operations on slots (slots.hpp) and on pages (pages.hpp).
    virtual void launch(const SlotAppend& args) = 0;
    virtual void launch(const SlotAccumulate& args) = 0;
    virtual void launch(const SlotScores& args) = 0;
    virtual void launch(const SlotEvict& args) = 0;
    virtual void launch(const SlotEdit& args) = 0;
    virtual void launch(const SlotCompact& args) = 0;
    virtual void launch(const SlotCopy& args) = 0;
    virtual void launch(const SlotZero& args) = 0;
    virtual void launch(const PageSign& args) = 0;
    virtual void launch(const PagePick& args) = 0;
    // In as few launches as the device allows; as it is here, in one for each part.
    virtual void attend(const SlotAttend& args);
    // For one layer of several sequences, which share only scratch.
    virtual void attend(std::span<const SlotAttend> all);

    // Why an operation may wait for what was enqueued before it, though its kernels are compiled, and what helps; null:
    // none does. in_host_memory: some tensors are in no buffer; marks_event: an event is asked for.
    virtual const char* why_waits(bool /*in_host_memory*/, bool /*marks_event*/) const { return nullptr; }

    // Runs task(i) once for each i below count and returns when all are done; then throws what one of them threw. Side
    // by side where the host lends threads, as many as host_threads() says; what is enqueued has to be finished before.
    virtual uint32_t host_threads() const { return 1; }
    virtual void run_on_host(uint32_t count, const std::function<void(uint32_t)>& task);

    virtual std::unique_ptr<Event> mark() = 0; // completes with all that was enqueued before
    virtual void flush() = 0;
    virtual void finish() = 0;
    // The same, but what has failed meanwhile is left to the next finish().
    virtual void wait() = 0;
    virtual void wait_cl_event(void* /*cl_event*/) { throw no_opencl(); }
    virtual std::array<uint8_t, 16> cl_device_uuid() const { throw no_opencl(); }

    // Results that a wait still has to bring to the host's memory have numbers, and this is the next one's. After a
    // call that failed the host may free its tensors, so that the results of that call are dropped.
    virtual uint64_t next_result() const { return 0; }
    virtual void drop_results_from(uint64_t /*result*/) {}

    // Whether the device is that of a process that this one was forked from, and cannot be used or released here.
    virtual bool is_of_parent() const { return false; }
};

// A device of the reference, which is a part of every backend: what a self-test holds others to.
std::unique_ptr<Device> make_reference();

// The one backend that is linked into this shared object; opencl/ and reference/ each define these.
namespace backend {
extern const char* const name;
extern const bool is_opencl; // else what has cl in its name is not called
// Every device in the order of its number.
std::vector<winnow_device_info> enumerate();
std::unique_ptr<Device> create(const DeviceRequest& request);
} // namespace backend

} // namespace winnow
