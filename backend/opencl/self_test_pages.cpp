// Pages that are signed, and picked by a query.
#include <algorithm>
#include <numeric>

#include "device/pages.hpp"
#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t page_heads = 2, page_queries = 2, key_size = 32; // query heads of a KV head
constexpr int64_t page_slots = 2, page_count = 45, cold_slots = page_slots * page_count - 1;
constexpr int64_t frame_count = 5, picked = 3, block_words = block_pages * key_size / 32;
constexpr int64_t blocks = (page_count + block_pages - 1) / block_pages;

struct PagesCase {
    CaseNumbers numbers;
    CaseSegment cold{numbers, page_heads, cold_slots, key_size};
    CaseSegment hot{numbers, page_heads, frame_count* page_slots, key_size};
    CaseRows<int32_t> signatures{Type::i32, page_heads, blocks, block_words};
    CaseRows<int32_t> frames{Type::i32, page_heads, 1, frame_count, -1};
    CaseRows<uint16_t> centers{Type::f16, page_heads, 1, key_size + 1};

    PagesCase() {
        for (int64_t head = 0; head < page_heads; ++head) {
            for (int64_t slot = 0; slot < cold_slots; ++slot) // one page is empty, and several are half empty
                if (slot % 7 != 2 && slot / page_slots != 9) cold.tokens.at(head, 0, slot) = static_cast<int32_t>(slot);
            centers.at(head, 0, key_size) = half_bits(1);
        }
    }

    PageIndex index() {
        PageIndex made;
        made.page_slots = page_slots;
        made.signatures = signatures.tensor();
        made.frames = frames.tensor();
        made.centers = centers.tensor();
        return made;
    }

    bool is_live(int64_t head, int64_t slot) { return slot < cold_slots && cold.tokens.at(head, 0, slot) >= 0; }

    // The byte that has the sign of an element of a page.
    uint8_t& signs(int64_t head, int64_t page, int64_t element) {
        auto* const bytes = reinterpret_cast<uint8_t*>(&signatures.at(head, page / block_pages, 0));
        return bytes[element / 8 * block_pages + page % block_pages];
    }
    bool sign(int64_t head, int64_t page, int64_t element) {
        return (signs(head, page, element) >> element % 8 & 1) != 0;
    }
};

double number_of(uint16_t bits) {
    const double size = std::ldexp(1 + (bits & 0x3ff) / 1024.0, (bits >> 10 & 31) - 15);
    return (bits & 0x8000) != 0 ? -size : size;
}

std::vector<double> rotated_mean(PagesCase& problem, int64_t head, int64_t page) {
    std::vector<double> mean(key_size);
    double live = 0;
    for (int64_t slot = page * page_slots; slot < (page + 1) * page_slots; ++slot) {
        if (!problem.is_live(head, slot)) continue;
        ++live;
        for (int64_t e = 0; e < key_size; ++e)
            mean[static_cast<size_t>(e)] += number_of(problem.cold.k.at(head, slot, e));
    }
    for (double& each : mean) each = live > 0 ? each / live : -1; // without rows signs are 0
    if (live > 0) rotate_row(mean);
    return mean;
}

// The pages of the largest scores, in ascending order.
std::vector<int64_t> best_pages(PagesCase& problem, CaseRows<float>& q, double scale, int64_t head) {
    std::vector<double> scores(page_count);
    for (int64_t h = head * page_queries; h < (head + 1) * page_queries; ++h) {
        std::vector<double> query(&q.at(h, 0, 0), &q.at(h, 0, 0) + key_size), z(page_count);
        rotate_row(query);
        double sum = 0;
        for (int64_t page = 0; page < page_count; ++page) {
            if (!problem.is_live(head, page * page_slots) && !problem.is_live(head, page * page_slots + 1)) continue;
            double product = 0;
            for (int64_t e = 0; e < key_size; ++e)
                product += problem.sign(head, page, e) ? query[static_cast<size_t>(e)] : -query[static_cast<size_t>(e)];
            sum += z[static_cast<size_t>(page)] = std::exp(scale * product);
        }
        for (size_t page = 0; page < z.size(); ++page) scores[page] += z[page] / sum;
    }
    std::vector<int64_t> pages(page_count);
    std::iota(pages.begin(), pages.end(), 0);
    std::sort(pages.begin(), pages.end(),
              [&](int64_t a, int64_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
    pages.resize(picked);
    std::sort(pages.begin(), pages.end());
    return pages;
}

} // namespace

std::string test_page_sign(Device& device) {
    PagesCase found;
    for (int32_t& each : found.signatures.values) each = 0x5a5a5a5a;
    for (int64_t head = 0; head < page_heads; ++head) found.frames.at(head, 0, 2) = 7; // whose rows are others now
    for (int32_t& each : found.hot.tokens.values) each = 1;
    CaseRows<int32_t> right_frames(Type::i32, page_heads, 1, frame_count, -1), right_hot = found.hot.tokens;
    for (int64_t head = 0; head < page_heads; ++head)
        for (int64_t i = 0; i < page_slots; ++i) right_hot.at(head, 0, 2 * page_slots + i) = free_slot;
    device.launch(PageSign{found.index(), found.cold.segment(), found.hot.segment(), 0, page_count});
    device.finish();
    for (int64_t head = 0; head < page_heads; ++head)
        for (int64_t page = 0; page < page_count; ++page) {
            const std::vector<double> right = rotated_mean(found, head, page);
            for (int64_t e = 0; e < key_size; ++e) {
                const double its = right[static_cast<size_t>(e)];
                if (std::abs(its) < 1e-3 || found.sign(head, page, e) == (its >= 0)) continue; // or as it was rounded
                return "sign " + std::to_string(e) + " of page " + std::to_string(page) + " of head " +
                       std::to_string(head) + " is not that of " + std::to_string(its);
            }
        }
    return first_of({found.frames.compared("frame", right_frames), found.hot.tokens.compared("slot", right_hot)});
}

std::string test_page_pick(Device& device) {
    PagesCase found;
    CaseRows<float> q(Type::f32, page_heads * page_queries, 1, key_size);
    CaseRows<int32_t> counts(Type::i32, page_heads, 1, 4), right_counts = counts;
    for (int32_t& each : found.signatures.values) each = static_cast<int32_t>(found.numbers.bits());
    for (float& each : q.values) each = found.numbers.number();
    PagePick args;
    args.scale = .125f;
    PagesCase right = found;
    for (int64_t head = 0; head < page_heads; ++head) {
        const std::vector<int64_t> pages = best_pages(found, q, static_cast<double>(args.scale), head);
        for (size_t frame = 0; frame < pages.size(); ++frame) {
            right.frames.at(head, 0, static_cast<int64_t>(frame)) = static_cast<int32_t>(pages[frame]);
            for (int64_t i = 0; i < page_slots; ++i) {
                const int64_t slot = pages[frame] * page_slots + i, to = static_cast<int64_t>(frame) * page_slots + i;
                if (!found.is_live(head, slot)) continue;
                const float importance = right.hot.importance.at(head, 0, to);
                found.cold.copy_slot(head, slot, right.hot, to);
                right.hot.importance.at(head, 0, to) = importance; // pages have none
            }
        }
        right_counts.at(head, 0, 0) = right_counts.at(head, 0, 2) = picked;
    }
    args.index = found.index();
    args.cold = found.cold.segment();
    args.hot = found.hot.segment();
    args.q = q.tensor();
    args.count = picked;
    args.pinned_from = page_count;
    args.visible_end = cold_slots;
    args.counts = counts.tensor();
    device.launch(args);
    device.finish();
    return first_of({found.frames.compared("frame", right.frames), counts.compared("count", right_counts),
                     found.hot.compared(right.hot)});
}

} // namespace winnow::opencl
