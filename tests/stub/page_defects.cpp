// Mistakes that are easily made with pages: what is signed again, what is picked, and which rows come into hot slots.
#include "defects.hpp"
#include "reference/slot_rows.hpp"

namespace winnow {
namespace {

void forget_anchors(Tensor& tokens) {
    make_own_ints(tokens);
    for (int64_t head = 0; head < tokens.shape[1]; ++head)
        for (int64_t slot = 0; slot < tokens.shape[3]; ++slot) {
            const int32_t entry = reference::entry(tokens, head, slot);
            if (reference::is_live(entry)) reference::set_entry(tokens, head, slot, reference::token_id_of(entry));
        }
}

} // namespace

std::map<std::string, Defect> page_defects() {
    return {
        // Hot rows of a page that has grown since stay as they were.
        {"pages_are_signed_once", {.before_page_sign = [](PageSign& a) { a.first = a.end; }}},
        {"signatures_beside_no_center", {.before_page_sign = [](PageSign& a) { a.center_end = 0; }}},
        {"late_tokens_are_not_picked", {.before_page_pick = [](PagePick& a) { a.visible_end = 40; }}},
        {"anchors_are_not_pinned", {.before_page_pick = [](PagePick& a) { forget_anchors(a.cold.tokens); }}},
        {"newest_pages_are_not_pinned", {.before_page_pick = [](PagePick& a) { a.pinned_from = a.cold.slots(); }}},
        {"picks_know_no_mask", {.before_page_pick = [](PagePick& a) { a.mask = {}; }}},
        {"hot_keys_of_the_first_head", {.before_page_pick = [](PagePick& a) { a.cold.k.stride[1] = 0; }}},
        {"hot_values_of_one_slot", {.before_page_pick = [](PagePick& a) { a.cold.v.stride[2] = 0; }}},
        {"stretches_before_are_forgotten", {.before_sdpa = [](Sdpa& a) { a.carry.joins = false; }}},
        {"carried_rows_of_the_first_query", {.before_sdpa = [](Sdpa& a) { a.carry.rows.stride[2] = 0; }}},
        {"scores_of_the_last_stretch", {.before_slot_scores = [](SlotScores& a) { a.keeps_others = false; }}},
        {"codebooks_of_the_first_layer", {.before_page_sign = [](PageSign& a) { a.index.codebooks.offset = 0; }}},
        {"codebooks_of_the_first_head", {.before_page_pick = [](PagePick& a) { a.index.codebooks.stride[1] = 0; }}},
        // As if the rows that an eviction pass appends to were the segment from its beginning on.
        {"appended_pages_look_empty", {.before_page_sign = [](PageSign& a) { a.first_slot = 0; }}},
    };
}

} // namespace winnow
