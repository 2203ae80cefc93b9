// dst[b, h, r, :] = src[b, h, r, :] for the rows that are asked for.
#include "reference/operations.hpp"

#include <vector>

#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow::reference {

void require_supported(const KvRequantize& args) {
    require_rows(args.src, "kv_requantize: src");
    require_rows(args.dst, "kv_requantize: dst");
}

// A row is read whole before it is written, so dst may lie on src.
void kv_requantize(const KvRequantize& args) {
    const auto& [batches, heads, slots, elements] = args.src.shape;
    const int64_t rows = args.row_indices ? args.row_indices.shape[3] : slots;
    std::vector<double> row(static_cast<size_t>(elements));
    for (int64_t batch = 0; batch < batches; ++batch)
        for (int64_t head = 0; head < heads; ++head)
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t slot = row_index(args.row_indices, batch, head, i);
                if (slot < 0 || slot >= slots) continue;
                decode_row(args.src.type, row_address(args.src, batch, head, slot), elements, row.data());
                encode_row(args.dst.type, row_address(args.dst, batch, head, slot), elements, row.data(), args.norm);
            }
}

} // namespace winnow::reference
