// Reading back what every head holds costs time and text, so it is done on demand.
#include "report_with.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace winnow::ggml {

bool reports(const char* word) {
    const char* const list = std::getenv("WINNOW_REPORT_WITH");
    for (std::string_view rest = list ? list : ""; !rest.empty();) {
        const size_t end = rest.find(',');
        if (rest.substr(0, end) == word) return true;
        rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
    return false;
}

std::string resident_cells(Context& context, winnow_cache* cache, const CacheShape& shape) {
    std::vector<int32_t> cells;
    const auto of_head = [&](int64_t stream, int64_t layer, int64_t head) {
        const auto look = [&](uint64_t capacity) {
            uint64_t count = 0;
            cells.resize(capacity);
            const int32_t status = context.api().cache_positions(
                cache, stream, layer, head, capacity > 0 ? cells.data() : nullptr, capacity, &count);
            if (status != WINNOW_OK) throw std::runtime_error(context.message());
            return count;
        };
        look(look(0));
        std::string out = "[";
        for (const int32_t cell : cells) {
            if (out.size() > 1) out += ',';
            out += std::to_string(cell);
        }
        out += ']';
        return out;
    };
    const auto array = [](int64_t count, auto&& element) {
        std::string out = "[";
        for (int64_t i = 0; i < count; ++i) {
            if (i > 0) out += ", ";
            out += element(i);
        }
        out += ']';
        return out;
    };
    return array(shape.streams, [&](int64_t stream) {
        return array(shape.layers, [&](int64_t layer) {
            return array(shape.kv_heads, [&](int64_t head) { return of_head(stream, layer, head); });
        });
    });
}

} // namespace winnow::ggml
