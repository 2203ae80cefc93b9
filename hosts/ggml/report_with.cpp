// Reading back what every head holds costs time and text, so it is done on demand.
#include "report_with.hpp"

#include <string_view>

#include "environment.hpp"

namespace winnow::ggml {

bool reports(const char* word) {
    for (std::string_view rest = variable("WINNOW_REPORT_WITH"); !rest.empty();) {
        const size_t end = rest.find(',');
        if (rest.substr(0, end) == word) return true;
        rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
    return false;
}

ResidentCells resident_cells(const CacheHandle& cache) {
    const CacheShape& shape = cache.shape();
    ResidentCells streams(static_cast<size_t>(shape.streams()));
    for (size_t stream = 0; stream < streams.size(); ++stream) {
        streams[stream].resize(shape.layers().size());
        for (size_t layer = 0; layer < streams[stream].size(); ++layer) {
            for (int64_t head = 0; head < shape.kv_heads(); ++head)
                streams[stream][layer].push_back(
                    cache.cells_of(static_cast<int64_t>(stream), static_cast<int64_t>(layer), head));
        }
    }
    return streams;
}

} // namespace winnow::ggml
