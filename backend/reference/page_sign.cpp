// r = R(mean of a page's live rows); its signs, and the mean of |r|.
#include "reference/page_sign.hpp"

#include <algorithm>
#include <cmath>

#include "reference/page_index.hpp"
#include "reference/rotation.hpp"
#include "reference/slot_rows.hpp"

namespace winnow::reference {
namespace {

constexpr double largest_half = 65504;

Signature signature_from(const Tensor& k, int64_t head, const std::vector<int64_t>& rows) {
    const auto elements = static_cast<size_t>(k.shape[3]);
    Signature signature{std::vector<bool>(elements, false), 0};
    if (rows.empty()) return signature;
    std::vector<double> mean(elements, 0);
    for (const int64_t row : rows) {
        const std::vector<double> each = slot_row(k, {}, head, row);
        for (size_t e = 0; e < elements; ++e) mean[e] += each[e] / static_cast<double>(rows.size());
    }
    rotate(mean.data(), k.shape[3]);
    for (size_t e = 0; e < elements; ++e) {
        signature.signs[e] = mean[e] >= 0;
        signature.factor += std::abs(mean[e]) / static_cast<double>(elements);
    }
    signature.factor = std::isnan(signature.factor) ? 0 : std::min(signature.factor, largest_half);
    return signature;
}

} // namespace

void page_sign(const PageSign& args) {
    const PageIndex& index = args.index;
    for (int64_t head = 0; head < args.cold.kv_heads(); ++head) {
        for (int64_t frame = 0; frame < index.frames.shape[3]; ++frame) {
            const int32_t page = entry(index.frames, head, frame);
            if (page >= args.first && page < args.end) free_frame(index, args.hot, head, frame);
        }
        for (int64_t page = args.first; page < args.end; ++page) {
            std::vector<int64_t> live;
            const int64_t first = page * index.page_slots - args.first_slot;
            for (int64_t row = first; row < std::min(first + index.page_slots, args.cold.slots()); ++row)
                if (is_live(entry(args.cold.tokens, head, row))) live.push_back(row);
            set_signature(index, head, page, signature_from(args.cold.k, head, live));
        }
    }
}

} // namespace winnow::reference
