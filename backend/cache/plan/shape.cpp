// Sums over layers.
#include "cache/plan/shape.hpp"

#include <set>

#include "cache/plan/bytes.hpp"

namespace winnow::cache {

std::vector<int64_t> Shape::unlike_layers() const {
    std::vector<int64_t> firsts;
    std::set<LayerShape> seen;
    for (int64_t number = 0; number < layer_count(); ++number)
        if (seen.insert(layer(number)).second) firsts.push_back(number);
    return firsts;
}

uint64_t full_bytes(const LayerShape& shape, int64_t tokens) {
    const auto row = 2 * static_cast<uint64_t>(shape.head_size + shape.v_head_size);
    return checked_product(checked_product(row, static_cast<uint64_t>(tokens)), static_cast<uint64_t>(shape.kv_heads));
}

uint64_t full_bytes(const Shape& shape, int64_t tokens) {
    uint64_t all = 0;
    for (const LayerShape& each : shape.layers) all = checked_sum(all, full_bytes(each, tokens));
    return all;
}

} // namespace winnow::cache
