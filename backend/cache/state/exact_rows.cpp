// A host's rows and a segment's, as bytes.
#include "cache/state/exact_rows.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include <xxhash.h>

namespace winnow::cache {

void ExactRows::check(const Tensor& tensor, const char* name) {
    if (tensor.type != Type::f16 && tensor.type != Type::bf16)
        refuse(std::string(name) + " is " + type_name(tensor.type) + ", expected F16 or BF16 for exact rows");
    if (tensor.stride[3] != 2)
        refuse(std::string(name) + ".stride[3] is " + std::to_string(tensor.stride[3]) +
               ", expected 2 for exact rows: elements one after the other");
}

ExactRows::ExactRows(const Tensor& tensor, const char* name) : tensor_(tensor) {
    check(tensor, name);
    bytes_.resize(static_cast<size_t>(heads() * count() * 2 * size()));
    for (int64_t head = 0; head < heads(); ++head)
        for (int64_t token = 0; token < count(); ++token) {
            const std::span<std::byte> to = row(head, token);
            if (tensor_.buffer != nullptr)
                tensor_.buffer->read(offset_of(head, token), to.data(), to.size());
            else
                std::memcpy(to.data(), tensor_.data + offset_of(head, token), to.size());
        }
}

void ExactRows::store() const {
    for (int64_t head = 0; head < heads(); ++head)
        for (int64_t token = 0; token < count(); ++token) {
            const std::byte* from = bytes_.data() + (head * count() + token) * 2 * size();
            if (tensor_.buffer != nullptr)
                tensor_.buffer->write(offset_of(head, token), from, static_cast<uint64_t>(2 * size()));
            else
                std::memcpy(tensor_.data + offset_of(head, token), from, static_cast<size_t>(2 * size()));
        }
}

ExactRows ExactRows::part(int64_t first, int64_t size) const {
    ExactRows made;
    made.tensor_ = tensor_;
    made.tensor_.shape[3] = size;
    made.tensor_.offset += static_cast<uint64_t>(2 * first);
    for (int64_t row = 0; row < heads() * count(); ++row) {
        const auto from = bytes_.begin() + 2 * (row * this->size() + first);
        made.bytes_.insert(made.bytes_.end(), from, from + 2 * size);
    }
    return made;
}

bool ExactRows::is_nan(int64_t head, int64_t token) {
    uint16_t element = 0;
    std::memcpy(&element, row(head, token).data(), sizeof element);
    return (element & 0x7fffU) > (tensor_.type == Type::f16 ? 0x7c00U : 0x7f80U);
}

Tensor ExactRows::tensor() {
    Tensor plain = tensor_;
    plain.buffer = nullptr;
    plain.data = bytes_.data();
    plain.offset = 0;
    plain.stride = {heads() * count() * 2 * size(), count() * 2 * size(), 2 * size(), 2};
    return plain;
}

uint64_t ExactRows::offset_of(int64_t head, int64_t token) const {
    return tensor_.offset + static_cast<uint64_t>(head * tensor_.stride[1] + token * tensor_.stride[2]);
}

void SlotBytes::read(std::span<const int32_t> slots) {
    bytes_.clear();
    int32_t last = -1;
    first_ = std::numeric_limits<int32_t>::max();
    for (const int32_t slot : slots) {
        if (slot < 0) continue;
        first_ = std::min(first_, slot);
        last = std::max(last, slot);
    }
    if (last < 0) return;
    bytes_.resize(static_cast<size_t>(last - first_ + 1) * row_);
    buffer_->read(begin_ + static_cast<uint64_t>(first_) * row_, bytes_.data(), bytes_.size());
}

uint64_t digest_of(const Geometry& geometry, int64_t layer) {
    const LayerShape& shape = geometry.shape(layer);
    std::string text = without_folder(geometry.config());
    for (const int64_t number :
         {geometry.layers(), shape.kv_heads, shape.head_size, shape.v_head_size, geometry.context(), shape.q_heads,
          geometry.request().cells, geometry.plan().layer_tokens[static_cast<size_t>(layer)], layer,
          // And what other layers have a say in.
          geometry.residual(), geometry.cadence(), geometry.recall(layer).frames})
        text.append(" ").append(std::to_string(number));
    return XXH3_64bits(text.data(), text.size());
}

} // namespace winnow::cache
