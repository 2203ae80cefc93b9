// Memory on both sides: inputs take it from its beginning on, and outputs from its end.
#include "opencl/transfers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "opencl/runtime_state.hpp"

namespace winnow::opencl {
namespace {

// Decode steps of a model take some ten kilobytes for a layer, prompts of 512 tokens about one MiB.
constexpr uint64_t pool_size = 8 << 20;
constexpr uint64_t alignment = 128;

} // namespace

Transfers::~Transfers() {
    if (host_ == nullptr) return;
    const cl_command_queue queue = state_.workers.front().queue();
    if (clEnqueueUnmapMemObject(queue, pinned_->on(0), host_, 0, nullptr, nullptr) == CL_SUCCESS) clFinish(queue);
}

void Transfers::allocate() {
    auto device = std::make_unique<Memory>(state_.workers, pool_size);
    auto pinned = std::make_unique<Memory>(state_.workers, pool_size, CL_MEM_ALLOC_HOST_PTR);
    cl_int code = CL_SUCCESS;
    void* host = clEnqueueMapBuffer(state_.workers.front().queue(), pinned->on(0), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                    0, pool_size, 0, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) throw_cl_error(code, "clEnqueueMapBuffer");
    device_ = std::move(device);
    pinned_ = std::move(pinned);
    host_ = static_cast<std::byte*>(host);
}

std::optional<Transfers::Place> Transfers::take(uint64_t size, bool is_input) {
    if (!is_pooled_) return {};
    const uint64_t rounded = (size + alignment - 1) / alignment * alignment;
    // What operations before this one took is free once they have run; it is waited for where half is taken, or where
    // this would not fit.
    const uint64_t taken = next_ + outputs_;
    if (std::exchange(begins_, false) && (!state_.is_pending || taken > pool_size / 2 || rounded > pool_size - taken)) {
        state_.finish();
        next_ = sent_ = outputs_ = 0;
    }
    if (rounded > pool_size - next_ - outputs_) return {};
    if (host_ == nullptr) allocate();
    if (!is_input) outputs_ += rounded;
    const uint64_t offset = is_input ? next_ : pool_size - outputs_;
    if (is_input) next_ += rounded;
    return Place{device_.get(), offset, host_ + offset};
}

void Transfers::send() {
    if (sent_ == next_) return;
    check(clEnqueueWriteBuffer(state_.workers.front().queue(), device_->on(0), CL_FALSE, sent_, next_ - sent_,
                               host_ + sent_, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
    ++state_.host_copies;
    state_.is_pending = true;
    sent_ = next_;
}

void Transfers::fetch(const Tensor& tensor, const Place& place) {
    check(clEnqueueReadBuffer(state_.workers.front().queue(), place.memory->on(0), CL_FALSE, place.offset,
                              tensor.extent(), place.host, 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    ++state_.host_copies;
    state_.is_pending = true;
    fetched_.push_back({tensor, place.host, next_fetch_++});
}

void Transfers::deliver() {
    for (const Fetched& each : fetched_) copy_rows(each.tensor, each.from);
    fetched_.clear();
}

void Transfers::drop_from(uint64_t fetch) {
    std::erase_if(fetched_, [fetch](const Fetched& each) { return each.number >= fetch; });
}

bool Transfers::are_coming(const void* data, uint64_t size) const {
    const auto first = static_cast<const std::byte*>(data);
    return std::any_of(fetched_.begin(), fetched_.end(), [&](const Fetched& each) {
        const std::byte* its = each.tensor.data + each.tensor.offset;
        return its < first + size && first < its + each.tensor.extent();
    });
}

void copy_rows(const Tensor& tensor, const std::byte* from) {
    const uint64_t row_size = row_bytes(tensor.type, tensor.shape[3]);
    for (int64_t a = 0; a < tensor.shape[0]; ++a)
        for (int64_t b = 0; b < tensor.shape[1]; ++b)
            for (int64_t c = 0; c < tensor.shape[2]; ++c) {
                const int64_t at = a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2];
                std::memcpy(tensor.data + tensor.offset + at, from + at, row_size);
            }
}

} // namespace winnow::opencl
