// Pages that are signed, and picked by a query.
#include <algorithm>
#include <utility>

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
    CaseRows<int32_t> counts{Type::i32, page_heads, 1, 4};

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

    // After a pick.
    std::string compared(PagesCase& right) {
        return first_of(
            {frames.compared(right.frames, "frame"), counts.compared(right.counts, "count"), hot.compared(right.hot)});
    }
};

// r of each page; -1 where it has no rows, whose signs are 0.
CaseRows<float> rotated_means(PagesCase& problem) {
    CaseRows<float> keys = stored_as<float>(Type::f32, problem.cold.k);
    CaseRows<float> means(Type::f32, page_heads, page_count, key_size);
    std::vector<std::pair<int64_t, int64_t>> empty;
    for (int64_t head = 0; head < page_heads; ++head)
        for (int64_t page = 0; page < page_count; ++page) {
            float live = 0;
            for (int64_t slot = page * page_slots; slot < (page + 1) * page_slots; ++slot) {
                if (!problem.is_live(head, slot)) continue;
                ++live;
                for (int64_t e = 0; e < key_size; ++e) means.at(head, page, e) += keys.at(head, slot, e);
            }
            for (int64_t e = 0; e < key_size; ++e) means.at(head, page, e) /= std::max(live, 1.0f);
            if (live == 0) empty.emplace_back(head, page);
        }
    Hadamard args;
    args.src = args.dst = means.tensor();
    make_reference()->launch(args, false);
    for (const auto& [head, page] : empty) std::fill_n(&means.at(head, page, 0), key_size, -1.0f);
    return means;
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
    finishing(device, [&] {
        device.launch(PageSign{found.index(), found.cold.segment(), found.hot.segment(), 0, page_count});
    });
    CaseRows<float> right = rotated_means(found);
    for (int64_t head = 0; head < page_heads; ++head)
        for (int64_t page = 0; page < page_count; ++page)
            for (int64_t e = 0; e < key_size; ++e) {
                const float its = right.at(head, page, e);
                if (std::abs(its) < 1e-3f || found.sign(head, page, e) == (its >= 0)) continue; // or as it was rounded
                return "sign " + std::to_string(e) + " of page " + std::to_string(page) + " of head " +
                       std::to_string(head) + " is not that of " + std::to_string(its);
            }
    return first_of({found.frames.compared(right_frames, "frame"), found.hot.tokens.compared(right_hot, "slot")});
}

std::string test_page_pick(Device& device) {
    PagesCase before;
    CaseRows<float> q(Type::f32, page_heads * page_queries, 1, key_size);
    for (int32_t& each : before.signatures.values) each = static_cast<int32_t>(before.numbers.bits());
    for (float& each : q.values) each = before.numbers.number();
    return difference(device, before, [&](Device& on, PagesCase& its) {
        PagePick args;
        args.index = its.index();
        args.cold = its.cold.segment();
        args.hot = its.hot.segment();
        args.q = q.tensor();
        args.scale = .125f;
        args.count = picked;
        args.pinned_from = page_count;
        args.visible_end = cold_slots;
        args.counts = its.counts.tensor();
        on.launch(args);
    });
}

} // namespace winnow::opencl
