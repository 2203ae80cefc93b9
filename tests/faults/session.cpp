// Contexts and tensors.
#include "session.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

namespace winnow::faults {

uint64_t digest(const void* data, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (size_t at = 0; at < size; ++at) hash = (hash ^ static_cast<const unsigned char*>(data)[at]) * 0x100000001b3u;
    return hash;
}

std::vector<float> numbers(size_t count, uint64_t seed) {
    std::vector<float> values(count);
    uint64_t state = seed * 2 + 1;
    for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = static_cast<float>(static_cast<int32_t>(state >> 32)) / 2147483648.0f;
    }
    return values;
}

Session::~Session() {
    if (context_ != nullptr) api().context_destroy(context_);
}

int32_t Session::create(bool with_host_threads) {
    logged.clear();
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.log_level = WINNOW_LOG_DEBUG;
    desc.log_user_data = this;
    desc.log = [](void* self, int32_t, const char* text) { static_cast<Session*>(self)->logged.emplace_back(text); };
    if (is_timed) desc.launched = [](void*, const winnow_launch*) {};
    if (with_host_threads) {
        desc.parallel_for = [](void*, uint32_t count, winnow_task task, void* data) {
            std::vector<std::jthread> others;
            for (uint32_t i = 1; i < count; ++i) others.emplace_back(task, data, i);
            if (count > 0) task(data, 0);
        };
    }
    char message[4096] = "";
    const int32_t status = api().context_create(&desc, &context_, message, sizeof message);
    creation_message_ = message;
    return status;
}

int32_t Session::destroy() { return api().context_destroy(std::exchange(context_, nullptr)); }

std::string Session::message() const {
    return context_ == nullptr ? creation_message_ : api().context_message(context_);
}

HostTensor::HostTensor(uint32_t type, int64_t heads, int64_t rows, int64_t columns) {
    const int64_t element = type == WINNOW_TYPE_F16 ? 2 : 4;
    bytes_.resize(static_cast<size_t>(element * heads * rows * columns));
    tensor_.struct_size = sizeof tensor_;
    tensor_.type = type; // of four bytes, or F16
    tensor_.data = bytes_.data();
    const int64_t shape[] = {1, heads, rows, columns};
    std::copy_n(shape, 4, tensor_.shape);
    tensor_.stride[3] = element;
    for (int axis = 2; axis >= 0; --axis) tensor_.stride[axis] = tensor_.stride[axis + 1] * shape[axis + 1];
}

void HostTensor::fill(uint64_t seed) {
    const std::vector<float> values = numbers(bytes_.size() / 4, seed);
    std::memcpy(bytes_.data(), values.data(), bytes_.size());
}

void HostTensor::count_from(int32_t at) {
    for (size_t byte = 0; byte < bytes_.size(); byte += 4, ++at) std::memcpy(bytes_.data() + byte, &at, 4);
}

void HostTensor::set(const std::vector<int32_t>& values) {
    std::memcpy(bytes_.data(), values.data(), std::min(bytes_.size(), 4 * values.size()));
}

void HostTensor::poison() { std::fill(bytes_.begin(), bytes_.end(), '\x55'); }

std::vector<float> HostTensor::floats() const {
    std::vector<float> values(bytes_.size() / 4);
    std::memcpy(values.data(), bytes_.data(), bytes_.size());
    return values;
}

winnow_tensor buffer_tensor(const winnow_api& api, winnow_buffer* buffer, uint32_t type, int64_t heads, int64_t rows,
                            int64_t columns) {
    uint64_t row = 0, element = 0;
    api.row_bytes(type, columns, &row, nullptr, 0);
    if (type <= WINNOW_TYPE_BOOL) api.row_bytes(type, 1, &element, nullptr, 0);
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = type;
    tensor.buffer = buffer;
    const int64_t shape[] = {1, heads, rows, columns};
    const auto bytes = static_cast<int64_t>(row);
    const int64_t stride[] = {heads * rows * bytes, rows * bytes, bytes, static_cast<int64_t>(element)};
    std::copy_n(shape, 4, tensor.shape);
    std::copy_n(stride, 4, tensor.stride);
    return tensor;
}

} // namespace winnow::faults
