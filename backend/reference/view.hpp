// Where the elements of a tensor lie in host memory: the only place where the reference turns indices into addresses.
#pragma once

#include <cstring>

#include "device/device.hpp"

namespace winnow::reference {

// Host memory, our own or borrowed.
class HostBuffer : public Buffer {
public:
    explicit HostBuffer(uint64_t size); // zeroed
    HostBuffer(void* borrowed, uint64_t size) : data_(static_cast<std::byte*>(borrowed)), size_(size) {}

    uint64_t size() const override { return size_; }
    void write(uint64_t offset, const void* data, uint64_t size) override;
    void read(uint64_t offset, void* data, uint64_t size) override;
    std::byte* data() const { return data_; }

private:
    std::unique_ptr<std::byte[]> owned_;
    std::byte* data_;
    uint64_t size_;
};

inline std::byte* address(const Tensor& tensor, int64_t a, int64_t b, int64_t c, int64_t d) {
    std::byte* base = tensor.buffer ? static_cast<HostBuffer*>(tensor.buffer)->data() : tensor.data;
    return base + tensor.offset + a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2] +
           d * tensor.stride[3];
}

// A row of any storage format is one run of bytes.
inline std::byte* row_address(const Tensor& tensor, int64_t a, int64_t b, int64_t c) {
    return address(tensor, a, b, c, 0);
}

// indices[batch % its batch, head % its heads, 0, i]; without indices, i.
inline int64_t row_index(const Tensor& indices, int64_t batch, int64_t head, int64_t i) {
    if (!indices) return i;
    return load_index(indices.type, address(indices, batch % indices.shape[0], head % indices.shape[1], 0, i));
}

} // namespace winnow::reference
