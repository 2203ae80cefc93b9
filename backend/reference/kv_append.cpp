// cache[b, h, row_indices[b % ib, h % ih, t], :] = src[b, h, t, :], rounding to the cache's format.
#include "reference/operations.hpp"

#include <vector>

#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

void append(const AppendRows& rows) {
    const Tensor& src = rows.src;
    const Tensor& cache = rows.cache;
    std::vector<double> row(static_cast<size_t>(src.shape[3]));
    for (int64_t batch = 0; batch < src.shape[0]; ++batch)
        for (int64_t head = 0; head < src.shape[1]; ++head)
            for (int64_t token = 0; token < src.shape[2]; ++token) {
                const int64_t slot = row_index(rows.row_indices, batch, head, token);
                if (slot < 0 || slot >= cache.shape[2]) continue;
                decode_row(src.type, row_address(src, batch, head, token), src.shape[3], row.data());
                encode_row(cache.type, row_address(cache, batch, head, slot), src.shape[3], row.data(), rows.norm);
            }
}

} // namespace

void require_supported(const KvAppend& args) {
    const auto require_side = [](const AppendRows& rows, const char* src, const char* cache) {
        if (!rows) return;
        require_rows(rows.src, src);
        require_rows(rows.cache, cache);
    };
    require_side(args.k, "kv_append: k_src", "kv_append: k_cache");
    require_side(args.v, "kv_append: v_src", "kv_append: v_cache");
}

void kv_append(const KvAppend& args) {
    if (args.k) append(args.k);
    if (args.v) append(args.v);
}

} // namespace winnow::reference
