// Mistakes that are easily made with slots: who goes, what is seen, what is remembered of it.
#include <cstring>
#include <deque>
#include <vector>

#include "defects.hpp"
#include "reference/element.hpp"
#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow {
namespace {

using namespace reference;

// Slots whose token is gone are taken for token 0.
void see_free_slots(Sdpa& args) {
    for (Segment& segment : args.segments) {
        make_own_ints(segment.tokens);
        for (int64_t head = 0; head < segment.kv_heads(); ++head)
            for (int64_t slot = 0; slot < segment.slots(); ++slot)
                if (entry(segment.tokens, head, slot) == free_slot) set_entry(segment.tokens, head, slot, 0);
    }
}

// These three in slots alone: a host's own rows are attended to as they are. As if KV heads had the same keys.
void read_keys_of_the_first_head(Sdpa& args) {
    for (Segment& segment : args.segments)
        if (segment.tokens) segment.k.stride[1] = 0;
}

// As if KV heads had the same values.
void read_values_of_the_first_head(Sdpa& args) {
    for (Segment& segment : args.segments)
        if (segment.tokens) segment.v.stride[1] = 0;
}

// As if the first head had the last one's rows, and so on.
void read_heads_from_the_last(Sdpa& args) {
    for (Segment& segment : args.segments)
        for (Tensor* rows : {&segment.k, &segment.v}) {
            if (!segment.tokens) continue;
            rows->offset += static_cast<uint64_t>((rows->shape[1] - 1) * rows->stride[1]);
            rows->stride[1] = -rows->stride[1];
        }
}

// Of each query group only the first head counts.
void accumulate_first_of_group(SlotAccumulate& args) {
    const int64_t group = args.scores.shape[1] / args.segments[0].kv_heads();
    for (Tensor* tensor : {&args.scores, &args.row_stats}) {
        make_own_ints(*tensor);
        for (int64_t head = 0; head < tensor->shape[1]; ++head)
            std::memmove(address(*tensor, 0, head, 0, 0), address(*tensor, 0, head / group * group, 0, 0),
                         static_cast<size_t>(tensor->stride[1]));
    }
}

// The last live slot is behind those that were moved together, and lost.
void lose_last(const SlotCompact& args) {
    for (int64_t slot = args.segment.slots(); slot-- > 0;)
        if (entry(args.segment.tokens, 0, slot) != free_slot) return set_entry(args.segment.tokens, 0, slot, free_slot);
}

// Tokens that come to an anchor's position by a shift are none.
void forget_anchors_after_shift(SlotEdit& args) {
    static bool after_shift = false;
    if (args.action == SlotEdit::Action::shift)
        after_shift = true;
    else if (args.action == SlotEdit::Action::free)
        after_shift = false;
    else if (after_shift)
        args.segments.clear();
}

bool is_open(const SlotEdit& args) { return args.action == SlotEdit::Action::free && args.end > 1 << 20; }

} // namespace

void make_own_ints(Tensor& tensor) {
    static std::deque<std::vector<std::byte>> memory;
    if (!tensor) return;
    const auto& shape = tensor.shape;
    std::vector<std::byte> own(static_cast<size_t>(4 * shape[0] * shape[1] * shape[2] * shape[3]));
    std::byte* to = own.data();
    for (int64_t a = 0; a < shape[0]; ++a)
        for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c)
                for (int64_t d = 0; d < shape[3]; ++d, to += 4) std::memcpy(to, address(tensor, a, b, c, d), 4);
    memory.push_back(std::move(own));
    if (memory.size() > 8) memory.pop_front();
    tensor.buffer = nullptr;
    tensor.data = memory.back().data();
    tensor.offset = 0;
    tensor.stride = {4 * shape[1] * shape[2] * shape[3], 4 * shape[2] * shape[3], 4 * shape[3], 4};
}

std::map<std::string, Defect> slot_defects() {
    using Action = SlotEdit::Action;
    return {
        {"evicts_a_sink", {.before_slot_evict = [](SlotEvict& a) { a.description.sink = 0; }}},
        {"evicts_the_newest", {.before_slot_evict = [](SlotEvict& a) { a.description.recent = 0; }}},
        {"evicts_without_grace", {.before_slot_evict = [](SlotEvict& a) { a.description.grace = 0; }}},
        {"evicts_one_more", {.before_slot_evict = [](SlotEvict& a) { --a.description.budget; }}},
        {"evicts_too_late", {.before_slot_evict = [](SlotEvict& a) { a.incoming /= 2; }}},
        {"evicts_by_age", {.before_slot_evict = [](SlotEvict& a) { a.description.ranking = Ranking::age; }}},
        {"evicts_by_importance_alone",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  if (a.description.ranking != Ranking::random) a.description.ranking = Ranking::importance;
              }}},
        {"forgets_the_age",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  if (a.description.ranking == Ranking::age) a.description.ranking = Ranking::random;
              }}},
        {"draws_by_another_seed", {.before_slot_evict = [](SlotEvict& a) { ++a.description.seed; }}},
        {"draws_as_the_first_head", {.before_slot_evict = [](SlotEvict& a) { a.first_head = 0; }}},
        {"network_of_the_first_head", {.before_slot_evict = [](SlotEvict& a) { a.network.stride[1] = 0; }}},
        {"threshold_forgotten", {.before_slot_evict = [](SlotEvict& a) { a.description.threshold.reset(); }}},
        {"batch_forgotten", {.before_slot_evict = [](SlotEvict& a) { a.description.most = 0; }}},
        {"everything_eligible",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  a.description.eligible_from = {0, 1};
              }}},
        {"mean_output_halved", {.before_slot_evict = [](SlotEvict& a) { a.outputs *= 2; }}},
        {"means_forgotten", {.before_slot_evict = [](SlotEvict& a) { a.set_means = false; }}},
        {"eviction_ignores_the_norm", {.before_slot_evict = [](SlotEvict& a) { a.k_norm = Norm::plain; }}},
        {"eviction_takes_the_wrong_rows", {.before_slot_evict = [](SlotEvict& a) { ++a.leaving_offset; }}},
        {"rows_go_down_by_the_wrong_order",
         {.before_slot_evict = [](SlotEvict& a) { a.description.moves_by_age = !a.description.moves_by_age; }}},
        {"rows_that_go_down_are_not_requantized",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  for (Segment& lower : a.lower) lower.k.stride[2] = 0; // all of them to the first slot
              }}},
        {"importance_stays_above",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  for (Segment& lower : a.lower) lower.importance = {};
              }}},
        {"lower_segments_make_no_room",
         {.before_slot_evict =
              [](SlotEvict& a) {
                  if (a.lower.size() > 1) a.lower.pop_back();
              }}},
        {"rows_do_not_go_down", {.before_slot_evict = [](SlotEvict& a) { a.lower.clear(); }}},
        {"zeroes_nothing", {.before_slot_zero = [](SlotZero& a) { a.segments.clear(); }}},
        {"zeroes_sinks", {.before_slot_zero = [](SlotZero& a) { a.sink = 0; }}},
        {"zeroes_with_another_scale", {.before_slot_zero = [](SlotZero& a) { a.k_scale *= 1.01; }}},
        {"zeroes_by_the_scale_of_keys", {.before_slot_zero = [](SlotZero& a) { a.v_scale = a.k_scale; }}},
        {"zeroes_the_residual_window_alone", {.before_slot_zero = [](SlotZero& a) { a.segments.resize(1); }}},
        {"threshold_of_the_first_head",
         {.before_slot_zero =
              [](SlotZero& a) {
                  for (Segment& segment : a.segments) segment.k.stride[1] = 0;
              }}},
        {"free_slots_are_seen", {.before_sdpa = see_free_slots}},
        {"keys_of_the_first_head", {.before_sdpa = read_keys_of_the_first_head}},
        {"rows_of_swapped_heads", {.before_sdpa = read_heads_from_the_last}},
        {"values_of_the_first_head", {.before_sdpa = read_values_of_the_first_head}},
        {"rows_of_other_formats_forgotten",
         {.before_sdpa =
              [](Sdpa& a) { std::erase_if(a.segments, [](const Segment& each) { return each.shares_slots; }); }}},
        {"next_token_is_seen", {.before_sdpa = [](Sdpa& a) { ++a.q_offset; }}},
        {"cache_threshold_too_high", {.before_sdpa = [](Sdpa& a) { a.v_threshold *= 8; }}},
        {"cache_window_ignored", {.before_sdpa = [](Sdpa& a) { a.window_left = 0; }}},
        {"token_ids_off_by_one", {.before_slot_append = [](SlotAppend& a) { ++a.token_id; }}},
        {"means_not_added",
         {.before_sdpa =
              [](Sdpa& a) {
                  for (Segment& segment : a.segments) segment.k_mean = segment.v_mean = {};
              }}},
        {"importance_of_one_query_head", {.before_slot_accumulate = accumulate_first_of_group}},
        {"importance_of_drafts",
         {.before_slot_accumulate = [](SlotAccumulate& a) { a.counted_queries = a.scores.shape[2]; }}},
        {"importance_never_decays", {.before_slot_accumulate = [](SlotAccumulate& a) { a.importance.decay = 1; }}},
        {"steps_stand_for_themselves",
         {.before_slot_accumulate = [](SlotAccumulate& a) { a.importance.stands_for = 1; }}},
        {"importance_of_the_last_query",
         {.before_slot_accumulate =
              [](SlotAccumulate& a) {
                  if (a.counted_queries > 1) a.counted_queries = 1;
              }}},
        {"scores_out_left_alone", {.before_slot_scores = [](SlotScores& a) { a.out.shape[1] = 0; }}},
        {"truncate_leaves_a_token", {.before_slot_edit = [](SlotEdit& a) { a.begin += is_open(a); }}},
        {"remove_takes_one_more",
         {.before_slot_edit =
              [](SlotEdit& a) {
                  if (a.action == Action::free && !is_open(a)) ++a.end;
              }}},
        {"shift_forgets_the_first", {.before_slot_edit = [](SlotEdit& a) { a.begin += a.action == Action::shift; }}},
        {"anchors_forgotten",
         {.before_slot_edit =
              [](SlotEdit& a) {
                  if (a.action == Action::anchor) a.segments.clear();
              }}},
        {"shift_forgets_anchors", {.before_slot_edit = forget_anchors_after_shift}},
        {"tokens_without_a_slot", {.before_slot_evict = [](SlotEvict& a) { a.wanted_free = 0; }}},
        {"compaction_mixes_rows", {.before_slot_compact = [](SlotCompact& a) { a.keeps_order = false; }}},
        {"compaction_loses_a_token", {.after_slot_compact = lose_last}},
        {"copy_forgets_the_importance",
         {.before_slot_copy = [](SlotCopy& a) { a.from.importance = a.to.importance = {}; }}},
    };
}

} // namespace winnow
