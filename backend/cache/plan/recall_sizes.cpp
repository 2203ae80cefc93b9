// From a budget in bytes to pages.
#include "cache/plan/recall_sizes.hpp"

#include <algorithm>
#include <bit>

namespace winnow::cache {
namespace {

constexpr int64_t count_words = 4; // of a KV head, in PagePick::counts
constexpr int64_t least_pages_of_share = 8;
constexpr int64_t stretch_bytes = 512 << 10, stretch_multiple = 64; // slots
constexpr int64_t least_signed_slots = 1024; // so that a center is of many rows in large layers, too

int64_t pages_of(int64_t slots, int64_t page_slots) { return (slots + page_slots - 1) / page_slots; }

// The parts of the index with so many frames.
void lay_out(RecallSizes& sizes, const LayerShape& shape) {
    uint64_t end = 0;
    const auto heads = static_cast<uint64_t>(shape.kv_heads);
    place_part(sizes.signatures,
               heads * static_cast<uint64_t>(sizes.blocks * signature_block_bytes(shape.head_size, sizes.kind)), end);
    place_part(sizes.frame_pages, 4 * heads * static_cast<uint64_t>(sizes.frames), end);
    place_part(sizes.counts, 4 * heads * count_words, end);
    if (sizes.kind == SignatureKind::signs)
        place_part(sizes.centers, 2 * heads * static_cast<uint64_t>(shape.head_size + 1), end);
    sizes.index_bytes = end;
}

void check_head_size(const LayerShape& shape) {
    if (shape.head_size % 16 == 0 && shape.head_size <= largest_rotation) return;
    refuse("recall with head_size " + std::to_string(shape.head_size) +
           ": signatures are made of keys of a multiple "
           "of 16 elements, at most " +
           std::to_string(largest_rotation));
}

} // namespace

int64_t RecallSizes::center_rows(int64_t rows) const {
    if (kind != SignatureKind::signs) return 0;
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(rows, signed_slots))));
}

RecallSizes recall_sizes(const Config& config, const LayerShape& shape, const RecallNeeds& needs) {
    RecallSizes sizes;
    check_head_size(shape);
    sizes.kind = config.signature_kind();
    sizes.page_slots = config.count("page");
    sizes.bonus = static_cast<float>(config.number("bonus"));
    sizes.newest = config.count("newest");
    const int64_t in_bytes = stretch_bytes / static_cast<int64_t>(needs.hot_slot_bytes);
    sizes.stretch_slots = std::max(in_bytes / stretch_multiple, int64_t{1}) * stretch_multiple;
    sizes.signed_slots = std::max(sizes.stretch_slots, least_signed_slots);
    const int64_t pages = pages_of(needs.cold_slots, sizes.page_slots);
    sizes.blocks = std::max<int64_t>(pages_of(pages, block_pages), 1);
    const Amount& budget = config.recall_budget();
    sizes.budget_bytes = needs.budget_bytes;
    const auto bytes_with = [&](int64_t frames) {
        sizes.frames = frames;
        lay_out(sizes, shape);
        return needs.fixed_bytes + sizes.index_bytes + static_cast<uint64_t>(sizes.hot_slots()) * needs.hot_slot_bytes;
    };
    // A share of a short context may not hold what every context needs; then that is the budget.
    const int64_t least =
        std::min<int64_t>(budget.unit == Amount::Unit::bytes ? 1 : least_pages_of_share, std::max<int64_t>(pages, 1));
    if (budget.unit != Amount::Unit::bytes) sizes.budget_bytes = std::max(sizes.budget_bytes, bytes_with(least));
    int64_t fits = 0, too_many = std::max<int64_t>(pages, 1) + 1;
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        (bytes_with(middle) <= sizes.budget_bytes ? fits : too_many) = middle;
    }
    if (fits == 0)
        refuse("recall within budget=" + spell(budget) + " is " + std::to_string(sizes.budget_bytes) +
               " bytes of a layer, expected at least " + std::to_string(bytes_with(1)) +
               ": sinks and residual window, signatures of " + std::to_string(needs.cold_slots) +
               " tokens, and one page");
    if (config.has("picked")) fits = std::min(fits, std::max<int64_t>(config.count("picked") / sizes.page_slots, 1));
    bytes_with(fits);
    sizes.newest = std::min(sizes.newest, sizes.hot_slots() / 2);
    return sizes;
}

} // namespace winnow::cache
