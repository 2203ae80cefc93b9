// cache[b, h, row_indices[b % ib, h % ih, t], :] = src[b, h, t, :], rounding to the cache's format.
#include "reference/kv_append.hpp"

#include <cstring>

#include "reference/element.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

int64_t row_index(const Tensor& indices, int64_t batch, int64_t head, int64_t token) {
    const std::byte* at = address(indices, batch % indices.shape[0], head % indices.shape[1], 0, token);
    if (indices.type == Type::i32) {
        int32_t index = 0;
        std::memcpy(&index, at, sizeof index);
        return index;
    }
    int64_t index = 0;
    std::memcpy(&index, at, sizeof index);
    return index;
}

void append(const AppendRows& rows) {
    const Tensor& src = rows.src;
    const Tensor& cache = rows.cache;
    for (int64_t batch = 0; batch < src.shape[0]; ++batch)
        for (int64_t head = 0; head < src.shape[1]; ++head)
            for (int64_t token = 0; token < src.shape[2]; ++token) {
                const int64_t slot = row_index(rows.row_indices, batch, head, token);
                if (slot < 0 || slot >= cache.shape[2]) continue;
                for (int64_t d = 0; d < src.shape[3]; ++d)
                    store(cache.type, address(cache, batch, head, slot, d),
                          load(src.type, address(src, batch, head, token, d)));
            }
}

} // namespace

std::string validate_kv_append(const KvAppend& args) {
    for (const AppendRows* rows : {&args.k, &args.v})
        if (*rows)
            for (Type type : {rows->src.type, rows->cache.type})
                if (!is_floating(type)) refuse_type(type);
    return "reference";
}

void kv_append(const KvAppend& args) {
    if (args.k) append(args.k);
    if (args.v) append(args.v);
}

} // namespace winnow::reference
