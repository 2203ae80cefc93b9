// mu and sigma of the absolute values of a head first, then what is below the threshold.
#include "reference/operations.hpp"

#include <algorithm>
#include <cmath>

#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

// What is done with an element: its type, where it lies, and its absolute value.
template <typename Use>
void each_element(const SlotZero& args, Tensor Segment::*side, int64_t head, const Use& use) {
    for (const Segment& segment : args.segments) {
        const Tensor& rows = segment.*side;
        if (!segment.tokens || !is_floating(rows.type)) continue;
        for (int64_t slot = 0; slot < segment.slots(); ++slot) {
            const int32_t its = entry(segment.tokens, head, slot);
            if (!is_live(its)) continue;
            const int32_t id = token_id_of(its);
            if ((args.positions ? entry(args.positions, 0, id) : id) < args.sink) continue;
            for (int64_t d = 0; d < rows.shape[3]; ++d) {
                std::byte* const at = address(rows, 0, head, slot, d);
                const double magnitude = std::fabs(load(rows.type, at));
                if (std::isfinite(magnitude)) use(rows.type, at, magnitude);
            }
        }
    }
}

void zero_side(const SlotZero& args, Tensor Segment::*side, double scale, int64_t head) {
    double count = 0, sum = 0, squares = 0;
    each_element(args, side, head, [&](Type, const std::byte*, double magnitude) {
        ++count;
        sum += magnitude;
    });
    if (count == 0) return;
    const double mu = sum / count;
    each_element(args, side, head,
                 [&](Type, const std::byte*, double magnitude) { squares += (magnitude - mu) * (magnitude - mu); });
    const double threshold = std::max(std::sqrt(squares / count) / 2, mu) * scale;
    each_element(args, side, head, [&](Type type, std::byte* at, double magnitude) {
        if (magnitude != 0 && magnitude < threshold) store(type, at, 0);
    });
}

} // namespace

void slot_zero(const SlotZero& args) {
    for (const auto& [side, scale] : {std::pair{&Segment::k, args.k_scale}, std::pair{&Segment::v, args.v_scale}})
        for (int64_t head = 0; scale > 0 && !args.segments.empty() && head < args.segments[0].kv_heads(); ++head)
            zero_side(args, side, scale, head);
}

} // namespace winnow::reference
