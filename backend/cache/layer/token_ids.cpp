// I32 or I64, in a buffer or at an address.
#include "cache/layer/token_ids.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "cache/plan/config_value.hpp"

namespace winnow::cache {

std::vector<int32_t> read_token_ids(const Tensor& tensor, const char* name, int64_t limit) {
    if (!tensor) return {};
    const auto count = static_cast<size_t>(tensor.shape[3]);
    const size_t size = type_size(tensor.type);
    std::vector<std::byte> bytes(count * size);
    if (tensor.buffer != nullptr)
        tensor.buffer->read(tensor.offset, bytes.data(), bytes.size());
    else
        std::memcpy(bytes.data(), tensor.data + tensor.offset, bytes.size());
    std::vector<int32_t> token_ids(count);
    for (size_t i = 0; i < count; ++i) {
        const int64_t token_id = load_index(tensor.type, bytes.data() + i * size);
        if (token_id < 0 || token_id >= limit)
            refuse(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(token_id) +
                   ", expected 0 to " + std::to_string(limit - 1));
        token_ids[i] = static_cast<int32_t>(token_id);
    }
    std::vector<int32_t> sorted = token_ids;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end())
        refuse(std::string(name) + " has " + std::to_string(*twice) + " twice, expected each once");
    return token_ids;
}

} // namespace winnow::cache
