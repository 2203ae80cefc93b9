// Buffers of the interface: allocated, imported from the host, imported from OpenCL.
#include <cstring>

#include "opencl/runtime_state.hpp"

namespace winnow::opencl {
namespace {

// Checks a blocking copy, which waits for the launches before it and may report that one of them failed.
void check_copy(RuntimeState& state, cl_int code, const char* call) {
    if (code != CL_SUCCESS) state.retire_scratch();
    check(code, call);
}

void check_is_undivided(const RuntimeState& state) {
    if (state.workers.is_divided())
        throw Error(WINNOW_ERROR_UNSUPPORTED, "a context that computes on the host's threads (parallel_for) has no "
                                              "single cl_context to which a cl_mem could belong");
}

} // namespace

void copy_to_device(RuntimeState& state, const Memory& memory, uint64_t offset, const void* data, uint64_t size) {
    check_copy(state,
               clEnqueueWriteBuffer(state.workers.front().queue(), memory.on(0), CL_TRUE, offset, size, data, 0,
                                    nullptr, nullptr),
               "clEnqueueWriteBuffer");
}

void copy_from_device(RuntimeState& state, const Memory& memory, uint64_t offset, void* data, uint64_t size) {
    check_copy(state,
               clEnqueueReadBuffer(state.workers.front().queue(), memory.on(0), CL_TRUE, offset, size, data, 0, nullptr,
                                   nullptr),
               "clEnqueueReadBuffer");
}

void enqueue_fill(RuntimeState& state, const Memory& memory, uint64_t size, uint8_t filling) {
    check(clEnqueueFillBuffer(state.workers.front().queue(), memory.on(0), &filling, sizeof filling, 0, size, 0,
                              nullptr, nullptr),
          "clEnqueueFillBuffer");
    state.is_pending = true;
}

std::unique_ptr<ClBuffer> ClBuffer::allocate(RuntimeState& state, uint64_t size, uint8_t filling, cl_mem_flags place) {
    std::unique_ptr<ClBuffer> buffer(new ClBuffer(state, size));
    if (state.is_host_memory()) {
        buffer->pages_ = std::make_unique<HostPages>(size);
        if (filling != 0) std::memset(buffer->pages_->data(), filling, size);
        buffer->memory_ = std::make_unique<Memory>(state.workers, buffer->pages_->data(), size);
        buffer->host_ = buffer->pages_->data();
    } else {
        buffer->memory_ = std::make_unique<Memory>(state.workers, size, place);
        enqueue_fill(state, *buffer->memory_, size, filling);
    }
    return buffer;
}

std::unique_ptr<ClBuffer> ClBuffer::import_host(RuntimeState& state, void* data, uint64_t size) {
    std::unique_ptr<ClBuffer> buffer(new ClBuffer(state, size));
    const PageRange range(data, size);
    // Of two buffers on one page the second one has a copy, as where the device cannot reach it.
    if (state.capabilities.zero_copy && !state.has_imported_some_of(range)) {
        buffer->memory_ = std::make_unique<Memory>(state.workers, range.data(), range.size());
        if (!state.is_host_memory()) state.imported.push_back(range);
        buffer->host_ = static_cast<std::byte*>(data);
        buffer->offset_ = static_cast<uint64_t>(buffer->host_ - static_cast<std::byte*>(range.data()));
    } else {
        buffer->memory_ = std::make_unique<Memory>(state.workers, size);
        buffer->mirror_ = static_cast<std::byte*>(data);
        state.finish(); // what is still to come there comes before
        copy_to_device(state, *buffer->memory_, 0, data, size);
        ++state.host_copies;
    }
    return buffer;
}

std::unique_ptr<ClBuffer> ClBuffer::import_cl_mem(RuntimeState& state, cl_mem memory, uint64_t offset, uint64_t size) {
    const auto invalid = [](const std::string& text) { throw Error(WINNOW_ERROR_INVALID_ARGUMENT, "cl_mem " + text); };
    cl_context context = nullptr;
    cl_mem_object_type type = 0;
    size_t whole = 0;
    check_host_object(clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof(cl_context), &context, nullptr),
                      "clGetMemObjectInfo", "cl_mem is no valid memory object");
    check(clGetMemObjectInfo(memory, CL_MEM_TYPE, sizeof type, &type, nullptr), "clGetMemObjectInfo");
    check(clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof whole, &whole, nullptr), "clGetMemObjectInfo");
    if (context != state.workers.front().context()) invalid("belongs to another cl_context than this context's");
    if (type != CL_MEM_OBJECT_BUFFER) invalid("is an image or a pipe; expected a buffer");
    if (offset > whole || size > whole - offset)
        invalid("has " + std::to_string(whole) + " bytes; offset " + std::to_string(offset) + " and size " +
                std::to_string(size) + " reach beyond");
    check_is_undivided(state);
    std::unique_ptr<ClBuffer> buffer(new ClBuffer(state, size));
    buffer->memory_ = std::make_unique<Memory>(state.workers, memory);
    buffer->offset_ = offset;
    return buffer;
}

ClBuffer::~ClBuffer() {
    try {
        state_.wait();
    } catch (const std::exception& error) { // what may still be used is kept, if there is memory to note it
        try {
            state_.retired.push_back({std::move(pages_), std::move(memory_), size_});
            state_.log(WINNOW_LOG_ERROR, std::string("while waiting to release a buffer: ") + error.what());
        } catch (const std::bad_alloc&) {
        }
    }
    if (host_ != nullptr) std::erase(state_.imported, PageRange(host_, size_));
}

void ClBuffer::write(uint64_t offset, const void* data, uint64_t size) {
    if (host_ != nullptr) {
        state_.finish();
        if (host_ + offset != data) std::memmove(host_ + offset, data, size);
        return;
    }
    state_.finish(); // `data` may be what is still to come
    if (mirror_ != nullptr) {
        if (mirror_ + offset != data) std::memmove(mirror_ + offset, data, size);
        ++state_.host_copies;
    }
    copy_to_device(state_, *memory_, offset_ + offset, data, size);
}

void ClBuffer::read(uint64_t offset, void* data, uint64_t size) {
    if (host_ != nullptr) {
        state_.finish();
        if (host_ + offset != data) std::memmove(data, host_ + offset, size);
        return;
    }
    state_.finish(); // as a wait, which gives the host's tensors what is still to come
    copy_from_device(state_, *memory_, offset_ + offset, data, size);
    if (mirror_ != nullptr) ++state_.host_copies;
}

std::pair<void*, uint64_t> ClBuffer::cl_memory() {
    check_is_undivided(state_);
    return {memory_->on(0), offset_};
}

} // namespace winnow::opencl
