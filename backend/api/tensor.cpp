// Checks of one view: what its type, shape, strides and memory have to be for the layers below to trust it.
#include "api/tensor.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <tuple>

#include "api/structs.hpp"

namespace winnow {

namespace api {
namespace {

Type checked_type(uint32_t given, const TensorRules& rules) {
    const auto allowed = std::find(rules.types.begin(), rules.types.end(), static_cast<Type>(given));
    if (allowed != rules.types.end()) return *allowed;
    std::string expected;
    for (const Type type : rules.types) expected += (expected.empty() ? "" : ", ") + std::string(type_name(type));
    const char* const known = type_name(static_cast<Type>(given));
    invalid(std::string(rules.name) + ".type is " + std::to_string(given) + " (" + known + "), expected one of " +
            expected);
}

void check_layout(const Tensor& tensor, const TensorRules& rules) {
    const bool packed = is_packed(tensor.type);
    const auto unit = static_cast<int64_t>(alignment(tensor.type));
    for (int axis = 0; axis < 4; ++axis) {
        const auto axis_name = [&](const char* field) {
            return std::string(rules.name) + field + std::to_string(axis) + "]";
        };
        const int64_t length = tensor.shape[axis];
        const int64_t stride = tensor.stride[axis];
        if (length < 1 || length > std::numeric_limits<int32_t>::max()) {
            invalid(axis_name(".shape[") + " is " + std::to_string(length) + ", expected 1 to 2147483647");
        }
        if (stride < 0) invalid(axis_name(".stride[") + " is " + std::to_string(stride) + ", expected at least 0");
        if (length == 1 || (packed && axis == 3)) continue; // never used; has to be 0, see below
        if (stride % unit != 0) {
            invalid(axis_name(".stride[") + " is " + std::to_string(stride) + ", expected a multiple of " +
                    std::to_string(unit) + ", the alignment of " + type_name(tensor.type));
        }
    }
    const int64_t elements = tensor.shape[3];
    const auto element = static_cast<int64_t>(type_size(tensor.type)); // 0 where packed
    if (elements > 1 && tensor.stride[3] != element) {
        invalid(std::string(rules.name) + ".stride[3] is " + std::to_string(tensor.stride[3]) + ", expected " +
                std::to_string(element) + (packed ? ": the row is packed" : ": rows are contiguous"));
    }
    if (elements % row_multiple(tensor.type) != 0) {
        invalid(std::string(rules.name) + ".shape[3] is " + std::to_string(elements) + ", expected a multiple of " +
                std::to_string(row_multiple(tensor.type)) + " for " + type_name(tensor.type));
    }
    __int128 extent = row_bytes(tensor.type, elements);
    for (int axis = 0; axis < 3; ++axis) {
        extent += static_cast<__int128>(tensor.shape[axis] - 1) * tensor.stride[axis];
    }
    if (extent > std::numeric_limits<int64_t>::max()) {
        invalid(std::string(rules.name) + " spans more than 2^63 bytes by its shape and strides");
    }
}

void check_memory(const winnow_tensor& desc, const Tensor& tensor, const TensorRules& rules) {
    const uint64_t unit = alignment(tensor.type);
    uint64_t first = 0;
    if (desc.buffer != nullptr) {
        if (desc.data != nullptr)
            invalid(std::string(rules.name) + " has both a buffer and data, expected one of them");
        if (tensor.buffer == nullptr) invalid(std::string(rules.name) + ".buffer is not a buffer of this context");
        const uint64_t size = tensor.buffer->size();
        const uint64_t extent = tensor.extent();
        if (extent > size || tensor.offset > size - extent) {
            invalid(std::string(rules.name) + " begins at byte " + std::to_string(tensor.offset) + " and spans " +
                    std::to_string(extent) + " bytes, expected to lie in a buffer of " + std::to_string(size) +
                    " bytes");
        }
        first = desc.buffer->misalignment + tensor.offset;
    } else {
        if (desc.data == nullptr) invalid(std::string(rules.name) + " has neither a buffer nor data");
        const uint64_t behind = std::numeric_limits<uint64_t>::max() - reinterpret_cast<uintptr_t>(desc.data);
        if (tensor.offset > behind || tensor.extent() > behind - tensor.offset) {
            invalid(std::string(rules.name) + ".offset is " + std::to_string(tensor.offset) +
                    ", which leads beyond the last address");
        }
        first = reinterpret_cast<uintptr_t>(desc.data) + tensor.offset;
    }
    if (first % unit != 0) {
        invalid(std::string(rules.name) + " begins at an address that is not a multiple of " + std::to_string(unit) +
                ", the alignment of " + type_name(tensor.type));
    }
}

// The view's place in a memory both views can be compared in, and whether it covers all bytes of its extent.
struct Range {
    const void* memory;
    uint64_t begin;
    uint64_t end;
    bool dense;
};

Range range_of(const Tensor& tensor) {
    const uint64_t begin =
        tensor.buffer != nullptr ? tensor.offset : reinterpret_cast<uintptr_t>(tensor.data) + tensor.offset;
    const uint64_t extent = tensor.extent();
    uint64_t bytes = row_bytes(tensor.type, tensor.shape[3]);
    for (int axis = 0; axis < 3; ++axis) {
        if (tensor.stride[axis] != 0) bytes *= static_cast<uint64_t>(tensor.shape[axis]);
    }
    return {tensor.buffer, begin, begin + extent, bytes == extent};
}

bool have_memory(const Tensor& a, const Tensor& b) {
    const auto has_memory = [](const Tensor& tensor) { return tensor.buffer != nullptr || tensor.data != nullptr; };
    return has_memory(a) && has_memory(b);
}

} // namespace

// An element that two indices reach would be written twice, in no order.
void check_no_self_overlap(const Tensor& tensor, const char* name, const char* rows) {
    std::array<int, 3> axes = {0, 1, 2};
    std::sort(axes.begin(), axes.end(), [&](int a, int b) { return tensor.stride[a] < tensor.stride[b]; });
    auto reach = static_cast<int64_t>(row_bytes(tensor.type, tensor.shape[3]));
    for (const int axis : axes) {
        if (tensor.shape[axis] == 1) continue;
        if (tensor.stride[axis] < reach) {
            invalid(std::string(name) + ".stride[" + std::to_string(axis) + "] is " +
                    std::to_string(tensor.stride[axis]) + ", expected at least " + std::to_string(reach) + ": " + rows +
                    " must not overlap");
        }
        reach += (tensor.shape[axis] - 1) * tensor.stride[axis];
    }
}

Tensor to_tensor(const winnow_context& context, const winnow_tensor* desc, const TensorRules& rules, Memory memory) {
    if (desc == nullptr) return {};
    const winnow_tensor given = read_struct(desc, rules.name);
    Tensor tensor;
    tensor.type = checked_type(given.type, rules);
    std::copy(std::begin(given.shape), std::end(given.shape), tensor.shape.begin());
    std::copy(std::begin(given.stride), std::end(given.stride), tensor.stride.begin());
    tensor.offset = given.offset;
    check_layout(tensor, rules);
    // The stride of an axis of length 1 is never used; one value for it lets the layers below compare and cache.
    for (int axis = 0; axis < 4; ++axis) {
        if (tensor.shape[axis] == 1) tensor.stride[axis] = 0;
    }
    if (rules.access == Access::output) check_no_self_overlap(tensor, rules.name, "rows of an output");
    if (memory == Memory::optional && given.buffer == nullptr && given.data == nullptr) return tensor;
    if (given.buffer != nullptr && context.buffers.contains(given.buffer)) tensor.buffer = given.buffer->buffer.get();
    tensor.data = static_cast<std::byte*>(given.data);
    check_memory(given, tensor, rules);
    return tensor;
}

Tensor to_required_tensor(const winnow_context& context, const winnow_tensor* desc, const TensorRules& rules,
                          Memory memory) {
    if (desc == nullptr) invalid(std::string(rules.name) + " is NULL");
    return to_tensor(context, desc, rules, memory);
}

std::string shape_text(const Tensor& tensor) {
    std::string text = "[";
    for (int axis = 0; axis < 4; ++axis) text += (axis ? ", " : "") + std::to_string(tensor.shape[axis]);
    return text + "]";
}

bool certainly_overlap(const Tensor& a, const Tensor& b) {
    if (!have_memory(a, b)) return false;
    const Range first = range_of(a);
    const Range second = range_of(b);
    return first.memory == second.memory && first.dense && second.dense && first.begin < second.end &&
           second.begin < first.end;
}

void expect_apart(const std::vector<NamedTensor>& outputs, const std::vector<NamedTensor>& inputs) {
    struct Place {
        Range range;
        const NamedTensor* of;
        bool is_output;
    };
    std::vector<Place> places;
    places.reserve(outputs.size() + inputs.size());
    for (const std::vector<NamedTensor>* side : {&outputs, &inputs})
        for (const NamedTensor& each : *side) {
            if (each.tensor.buffer == nullptr && each.tensor.data == nullptr) continue;
            const Range range = range_of(each.tensor);
            if (range.dense) places.push_back({range, &each, side == &outputs});
        }
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
        return std::tie(a.range.memory, a.range.begin) < std::tie(b.range.memory, b.range.begin);
    });
    std::array<const Place*, 2> last{}; // of the inputs and of the outputs so far: what ends last
    for (const Place& place : places) {
        for (const Place* before : last) {
            if (before == nullptr || !(place.is_output || before->is_output)) continue;
            if (before->range.memory != place.range.memory || before->range.end <= place.range.begin) continue;
            const bool is_first = place.is_output && (!before->is_output || place.of > before->of);
            const NamedTensor &output = is_first ? *place.of : *before->of, &other = is_first ? *before->of : *place.of;
            invalid(std::string(output.name) + " overlaps " + other.name +
                    (std::string_view(output.name) == other.name ? " of another entry" : ""));
        }
        const Place*& its = last.at(static_cast<size_t>(place.is_output));
        if (its == nullptr || its->range.memory != place.range.memory || its->range.end < place.range.end) its = &place;
    }
}

bool begin_together(const Tensor& a, const Tensor& b) {
    if (!have_memory(a, b)) return false;
    const Range first = range_of(a);
    const Range second = range_of(b);
    return first.memory == second.memory && first.begin == second.begin;
}

bool certainly_share_a_byte(const Tensor& a, const Tensor& b) {
    return begin_together(a, b) || certainly_overlap(a, b);
}

} // namespace api
} // namespace winnow
