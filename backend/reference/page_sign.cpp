// r = R(mean of a page's live rows) less the head's center; its signs. With codebooks the centroids nearest to A times
// that mean.
#include "reference/operations.hpp"

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

// R(mean of the rows).
std::vector<double> rotated_mean(const Tensor& k, int64_t head, const std::vector<int64_t>& rows) {
    std::vector<double> mean = mean_of(k, head, rows);
    rotate(mean.data(), static_cast<int64_t>(mean.size()));
    return mean;
}

class Signs {
public:
    Signs(const PageSign& args, int64_t head) : args_(args), head_(head) {
        if (args_.center_end > 0) set_center();
        center_ = center_of(args_.index, head_);
    }

    std::vector<bool> of(const std::vector<int64_t>& rows) const {
        std::vector<bool> signs;
        for (const double each : apart(rows)) signs.push_back(!rows.empty() && each >= 0);
        return signs;
    }

private:
    void set_center() {
        const Segment& cold = args_.cold;
        const int64_t end = args_.center_end - args_.first_slot, page_slots = args_.index.page_slots;
        center_ = rotated_mean(cold.k, head_, live_rows(cold, head_, 0, end));
        for (size_t e = 0; e < center_.size(); ++e) set(e, center_[e]);
        center_ = center_of(args_.index, head_);
        double sum = 0, pages = 0;
        for (int64_t row = 0; row < end; row += page_slots) {
            const std::vector<int64_t> rows = live_rows(cold, head_, row, std::min(row + page_slots, end));
            if (rows.empty()) continue;
            const std::vector<double> r = apart(rows);
            for (const double each : r) sum += std::abs(each) / static_cast<double>(r.size());
            ++pages;
        }
        set(center_.size() - 1, sum / std::max(pages, 1.0));
    }

    void set(size_t at, double number) const {
        const double bounded = std::isnan(number) ? 0 : std::clamp(number, -largest_half, largest_half);
        store(Type::f16, address(args_.index.centers, 0, head_, 0, static_cast<int64_t>(at)), bounded);
    }

    // r
    std::vector<double> apart(const std::vector<int64_t>& rows) const {
        std::vector<double> r = rotated_mean(args_.cold.k, head_, rows);
        for (size_t e = 0; e < r.size(); ++e) r[e] -= center_[e];
        return r;
    }

    const PageSign& args_;
    int64_t head_;
    std::vector<double> center_;
};

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
        std::optional<Signs> signs;
        if (index.kind() == SignatureKind::codes)
            codebooks.emplace(index, head, args.cold.k.shape[3]);
        else
            signs.emplace(args, head);
        for (int64_t page = args.first; page < args.end; ++page) {
            const int64_t first = page * index.page_slots - args.first_slot;
            const std::vector<int64_t> live = live_rows(args.cold, head, first, first + index.page_slots);
            if (signs)
                set_signs(index, head, page, signs->of(live));
            else
                set_codes(index, head, page, codes_from(*codebooks, mean_of(args.cold.k, head, live), !live.empty()));
        }
    }
}

} // namespace winnow::reference
