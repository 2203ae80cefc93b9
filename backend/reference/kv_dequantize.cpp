// dst[b, h, i, :] = src[b, h, row_indices[b % ib, h % ih, i], :], and zeros where there is no such row.
#include "reference/operations.hpp"

#include <algorithm>
#include <vector>

#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow::reference {

void require_supported(const KvDequantize& args) {
    require_rows(args.src, "kv_dequantize: src");
    require_rows(args.dst, "kv_dequantize: dst");
}

void kv_dequantize(const KvDequantize& args) {
    const int64_t slots = args.src.shape[2];
    const auto& [batches, heads, rows, elements] = args.dst.shape;
    std::vector<double> row(static_cast<size_t>(elements));
    for (int64_t batch = 0; batch < batches; ++batch)
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t slot = row_index(args.row_indices, batch, head, i);
                if (slot < 0 || slot >= slots)
                    std::fill(row.begin(), row.end(), 0);
                else
                    decode_row(args.src.type, row_address(args.src, batch, head, slot), elements, row.data());
                encode_row(args.dst.type, row_address(args.dst, batch, head, i), elements, row.data(), Norm::plain);
            }
}

} // namespace winnow::reference
