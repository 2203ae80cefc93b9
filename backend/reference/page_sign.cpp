// r = R(mean of a page's live rows) less the head's center; its signs, and the mean of |r|. With codebooks the
// centroids nearest to A times that mean.
#include "reference/page_sign.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/element.hpp"
#include "reference/page_index.hpp"
#include "reference/rotation.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::reference {
namespace {

constexpr double largest_half = 65504;

std::vector<double> mean_of(const Tensor& k, int64_t head, const std::vector<int64_t>& rows) {
    std::vector<double> mean(static_cast<size_t>(k.shape[3]), 0);
    for (const int64_t row : rows) {
        const std::vector<double> each = slot_row(k, {}, head, row);
        for (size_t e = 0; e < mean.size(); ++e) mean[e] += each[e] / static_cast<double>(rows.size());
    }
    return mean;
}

std::vector<int64_t> live_rows(const Segment& cold, int64_t head, int64_t first, int64_t end) {
    std::vector<int64_t> live;
    for (int64_t row = first; row < std::min(end, cold.slots()); ++row)
        if (is_live(entry(cold.tokens, head, row))) live.push_back(row);
    return live;
}

void set_center(const Tensor& centers, int64_t head, std::vector<double> mean) {
    rotate(mean.data(), static_cast<int64_t>(mean.size()));
    for (size_t e = 0; e < mean.size(); ++e) {
        const double number = std::isnan(mean[e]) ? 0 : std::clamp(mean[e], -largest_half, largest_half);
        store(Type::f16, address(centers, 0, head, 0, static_cast<int64_t>(e)), number);
    }
}

Signature signature_from(std::vector<double> mean, const std::vector<double>& center, bool has_rows) {
    Signature signature{std::vector<bool>(mean.size(), false), 0};
    if (!has_rows) return signature;
    rotate(mean.data(), static_cast<int64_t>(mean.size()));
    for (size_t e = 0; e < mean.size(); ++e) {
        const double r = mean[e] - center[e];
        signature.signs[e] = r >= 0;
        signature.factor += std::abs(r) / static_cast<double>(mean.size());
    }
    signature.factor = std::isnan(signature.factor) ? 0 : std::min(signature.factor, largest_half);
    return signature;
}

std::vector<int> codes_from(const HeadCodebooks& codebooks, const std::vector<double>& mean, bool has_rows) {
    const std::vector<double> y = codebooks.times(CodebookMatrix::of_keys, mean);
    std::vector<int> codes;
    for (size_t first = 0; first < y.size(); first += static_cast<size_t>(centroid_elements)) {
        int nearest = 0;
        double least = std::numeric_limits<float>::max();
        for (int code = 0; has_rows && code < centroids; ++code) {
            double distance = 0;
            for (size_t e = first; e < first + static_cast<size_t>(centroid_elements); ++e)
                distance += std::pow(y[e] - codebooks.centroid(e, code), 2);
            if (!(distance < least)) continue;
            least = distance;
            nearest = code;
        }
        codes.push_back(nearest);
    }
    return codes;
}

} // namespace

void page_sign(const PageSign& args) {
    const PageIndex& index = args.index;
    for (int64_t head = 0; head < args.cold.kv_heads(); ++head) {
        for (int64_t frame = 0; frame < index.frames.shape[3]; ++frame) {
            const int32_t page = entry(index.frames, head, frame);
            if (!args.keeps_frames && page >= args.first && page < args.end) free_frame(index, args.hot, head, frame);
        }
        std::optional<HeadCodebooks> codebooks;
        if (index.kind() == SignatureKind::codes) codebooks.emplace(index, head, args.cold.k.shape[3]);
        if (index.centers && args.center_end > 0)
            set_center(index.centers, head,
                       mean_of(args.cold.k, head, live_rows(args.cold, head, 0, args.center_end - args.first_slot)));
        const std::vector<double> center = center_of(index, head, args.cold.k.shape[3]);
        for (int64_t page = args.first; page < args.end; ++page) {
            const int64_t first = page * index.page_slots - args.first_slot;
            const std::vector<int64_t> live = live_rows(args.cold, head, first, first + index.page_slots);
            const std::vector<double> mean = mean_of(args.cold.k, head, live);
            if (codebooks)
                set_codes(index, head, page, codes_from(*codebooks, mean, !live.empty()));
            else
                set_signature(index, head, page, signature_from(mean, center, !live.empty()));
        }
    }
}

} // namespace winnow::reference
