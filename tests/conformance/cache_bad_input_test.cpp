// Misuse of every function on a cache. Beside what holds of all bad input, the cache is as it was: what can be seen of
// it has not changed, and the next step comes out as that of a twin which was never misused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cache_bad_input.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

constexpr int64_t layers = misused_layers, context = misused_context;
constexpr int64_t q_heads = 4, kv_heads = misused_kv_heads, head_size = 32, sequences = 2, cells = 48;
constexpr const char* counting_config = "h2o:budget=64,k=q8_0,v=q4_0,residual=16,grace=0";
constexpr const char* cells_config = "window:budget=32,k=q8_0,v=q4_0,residual=16";
constexpr float untouched = -77;

// Host memory and a view of it.
struct Numbers {
    std::vector<float> values;
    winnow_tensor view{};

    Numbers(int64_t heads, int64_t tokens, int64_t elements, float seed)
        : values(static_cast<size_t>(heads * tokens * elements)) {
        for (size_t at = 0; at < values.size(); ++at) values[at] = std::sin(seed + static_cast<float>(at) * 0.7f);
        view.struct_size = sizeof view;
        view.type = WINNOW_TYPE_F32;
        view.data = values.data();
        const std::array<int64_t, 4> shape = {1, heads, tokens, elements};
        int64_t stride = sizeof(float);
        for (int axis = 3; axis >= 0; stride *= shape[static_cast<size_t>(axis--)]) {
            view.shape[axis] = shape[static_cast<size_t>(axis)];
            view.stride[axis] = stride;
        }
    }
};

// A step in which everything is given, and good until it is damaged.
struct StepCall {
    Numbers k, v, q, out, scores, alibi, sink, mask, slopes;
    std::vector<int32_t> cell_numbers;
    winnow_tensor cell_view, other_scores{}, other_mask{};
    std::vector<winnow_cache_entry> entries;
    winnow_cache_step_desc desc{};

    StepCall(int64_t tokens, bool by_cells, int64_t first_cell = 0)
        : k(kv_heads, tokens, head_size, 1), v(kv_heads, tokens, head_size, 2), q(q_heads, tokens, head_size, 3),
          out(q_heads, tokens, head_size, 0), scores(q_heads, tokens, by_cells ? cells : context, 0),
          alibi(1, 1, q_heads, 4), sink(1, 1, q_heads, 5), mask(1, tokens, cells, 0), slopes(1, 1, q_heads, 6),
          cell_numbers(static_cast<size_t>(tokens)), cell_view(Numbers(1, 1, tokens, 0).view) {
        std::fill(out.values.begin(), out.values.end(), untouched);
        std::fill(scores.values.begin(), scores.values.end(), untouched);
        std::fill(mask.values.begin(), mask.values.end(), 0.0f);
        for (int64_t token = 0; token < tokens; ++token)
            cell_numbers[static_cast<size_t>(token)] = static_cast<int32_t>(first_cell + token);
        cell_view.type = WINNOW_TYPE_I32;
        cell_view.data = cell_numbers.data();
        entries.push_back(entry_of(0, 0, tokens));
        desc.struct_size = sizeof desc;
        desc.k = &k.view;
        desc.v = &v.view;
        desc.q = &q.view;
        desc.out = &out.view;
        desc.head_sink = &sink.view;
        entry().scores_out = &scores.view;
        if (by_cells) {
            desc.cells = &cell_view;
            entry().attn_mask = &mask.view;
            desc.mask_slopes = &slopes.view;
        } else {
            desc.alibi_slopes = &alibi.view;
        }
        give_entries();
    }
    StepCall(const StepCall&) = delete;
    StepCall& operator=(const StepCall&) = delete;

    static winnow_cache_entry entry_of(int64_t sequence, int64_t first, int64_t tokens) {
        winnow_cache_entry entry{};
        entry.struct_size = sizeof entry;
        entry.sequence = sequence;
        entry.first = first;
        entry.count = tokens;
        return entry;
    }
    winnow_cache_entry& entry() { return entries.front(); }
    void give_entries() {
        desc.entries = entries.data();
        desc.entry_count = entries.size();
        desc.entry_stride = sizeof entries.front();
    }
    // The rows from `first` on are another sequence's, without scores.
    winnow_cache_entry& split(int64_t first) {
        entry().scores_out = nullptr;
        entries.push_back(entry_of(1, first, entry().count - first));
        entry().count = first;
        give_entries();
        return entries.back();
    }
    // Row 0 is one sequence's, the rows from 1 on another's, and both want scores, which lie without gaps: those of one
    // `bytes` behind those of the other.
    void split_scores(uint64_t bytes, bool second_is_first) {
        split(1);
        winnow_tensor* const views[] = {&scores.view, &other_scores};
        other_scores = scores.view;
        for (size_t i = 0; i < 2; ++i) {
            views[i]->shape[2] = entries[i].count;
            views[i]->stride[1] = entries[i].count * views[i]->stride[2];
            entries[i].scores_out = views[i];
        }
        views[second_is_first ? 0 : 1]->offset = bytes;
        if (entries[0].attn_mask == nullptr) return;
        other_mask = mask.view;
        mask.view.shape[2] = entries[0].count;
        other_mask.shape[2] = entries[1].count;
        other_mask.offset = static_cast<uint64_t>(mask.view.stride[2]);
        entries[1].attn_mask = &other_mask;
    }
    void without_k() { desc.k = desc.v = desc.cells = nullptr; }
    void without_q() {
        desc.q = desc.out = desc.alibi_slopes = desc.head_sink = desc.mask_slopes = nullptr;
        for (winnow_cache_entry& each : entries) each.scores_out = each.attn_mask = nullptr;
    }
    bool is_untouched() const {
        const auto all = [](const std::vector<float>& values) {
            return std::all_of(values.begin(), values.end(), [](float value) { return value == untouched; });
        };
        return all(out.values) && all(scores.values);
    }
};

const winnow_api& api() { return subject().api(); }
const winnow_cache_api& caches() { return subject().caches(); }

// A cache with some tokens in both sequences, more in the first than its budget holds.
class Victim {
public:
    explicit Victim(bool by_cells) : by_cells_(by_cells) {
        const winnow_cache_desc desc = misused_cache(by_cells);
        EXPECT_EQ(caches().create(subject().context(), &desc, &cache), WINNOW_OK) << subject().message();
        for (int64_t layer = 0; layer < layers; ++layer) {
            append(layer, 0, by_cells ? 40 : 80, 0);
            append(layer, 1, 10, 0);
        }
    }
    ~Victim() { caches().destroy(cache); }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;

    bool by_cells() const { return by_cells_; }

    // Everything that can be seen of the cache.
    std::string portrait() const {
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(caches().stats(cache, -1, &stats), WINNOW_OK) << subject().message();
        std::string text(reinterpret_cast<const char*>(&stats), sizeof stats);
        for (int64_t sequence = 0; sequence < sequences; ++sequence)
            for (int64_t layer = 0; layer < layers; ++layer)
                for (int64_t head = 0; head < kv_heads; ++head) {
                    std::array<int64_t, context> positions{};
                    winnow_cache_tokens look{};
                    look.struct_size = sizeof look;
                    look.capacity = context;
                    look.positions = positions.data();
                    EXPECT_EQ(caches().tokens(cache, sequence, layer, head, &look), WINNOW_OK) << subject().message();
                    text.append(reinterpret_cast<const char*>(positions.data()), sizeof positions);
                }
        return text;
    }
    // What a good step gives in a layer.
    std::vector<float> next(int64_t layer) {
        StepCall call(1, by_cells_, cells - 1);
        call.desc.layer = layer;
        run(call);
        std::vector<float> all = call.out.values;
        all.insert(all.end(), call.scores.values.begin(), call.scores.values.end());
        return all;
    }

    winnow_cache* cache = nullptr;

private:
    void append(int64_t layer, int64_t sequence, int64_t tokens, int64_t first_cell) {
        StepCall call(tokens, by_cells_, first_cell);
        call.desc.layer = layer;
        call.entry().sequence = sequence;
        run(call);
    }
    void run(StepCall& call) {
        const int32_t status = caches().step(cache, &call.desc, nullptr);
        ASSERT_EQ(status, WINNOW_OK) << subject().message();
        subject().note_cache_step();
        ASSERT_EQ(api().finish(subject().context()), WINNOW_OK) << subject().message();
    }

    bool by_cells_;
};

// Bit for bit, so that NaN is NaN.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- Steps ---------------------------------------------------------------------------------------------------------

// A step that somebody damaged. The event stays as it was, too.
CacheFault step_of(int64_t tokens, const char* name, const char* argument, const std::function<void(StepCall&)>& damage,
                   bool by_cells = false) {
    return {{name, argument}, by_cells, [=](winnow_cache* cache) {
                StepCall call(tokens, by_cells, 40);
                damage(call);
                winnow_event* event = nullptr;
                const int32_t status = caches().step(cache, &call.desc, &event);
                EXPECT_EQ(api().finish(subject().context()), WINNOW_OK);
                EXPECT_TRUE(call.is_untouched()) << "out or scores_out was written";
                EXPECT_EQ(event, nullptr);
                return status;
            }};
}

CacheFault step(const char* name, const char* argument, const std::function<void(StepCall&)>& damage) {
    return step_of(3, name, argument, damage);
}

CacheFault cell_step(const char* name, const char* argument, const std::function<void(StepCall&)>& damage) {
    return step_of(3, name, argument, damage, true);
}

void add_steps(std::vector<CacheFault>& all) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    const std::vector<CacheFault> faults = {
        step("layer_minus_1", "layer", [](StepCall& c) { c.desc.layer = -1; }),
        step("layer_too_large", "layer", [](StepCall& c) { c.desc.layer = layers; }),
        step("sequence_minus_1", "sequence", [](StepCall& c) { c.entry().sequence = -1; }),
        step("sequence_too_large", "sequence", [](StepCall& c) { c.entry().sequence = sequences; }),
        step("entries_missing", "entry_count", [](StepCall& c) { c.desc.entries = nullptr; }),
        step("no_entry", "entry_count", [](StepCall& c) { c.desc.entry_count = 0; }),
        step("more_entries_than_sequences", "entry_count", [](StepCall& c) { c.desc.entry_count = sequences + 1; }),
        step("entry_stride_0", "entry_stride", [](StepCall& c) { c.desc.entry_stride = 0; }),
        step("entry_stride_odd", "entry_stride", [](StepCall& c) { c.desc.entry_stride = sizeof c.entry() + 4; }),
        step("entry_longer_than_the_stride", "entry_stride",
             [](StepCall& c) { c.split(1), c.desc.entry_stride = sizeof c.entry() - 8; }),
        step("entry_of_size_0", "struct_size", [](StepCall& c) { c.entry().struct_size = 0; }),
        step("entry_reserved", "reserved", [](StepCall& c) { c.entry().reserved = 1; }),
        step("batch_minus_1", "batch", [](StepCall& c) { c.entry().batch = -1; }),
        step("batch_too_large", "batch", [](StepCall& c) { c.entry().batch = 1; }),
        step("first_minus_1", "first", [](StepCall& c) { c.entry().first = -1; }),
        step("first_behind_the_rows", "first", [](StepCall& c) { c.entry().first = 3; }),
        step("count_minus_1", "count", [](StepCall& c) { c.entry().count = -1; }),
        step("count_0", "count", [](StepCall& c) { c.entry().count = 0; }),
        step("count_behind_the_rows", "count", [](StepCall& c) { c.entry().first = 1; }),
        step("a_sequence_twice", "sequence", [](StepCall& c) { c.split(1).sequence = 0; }),
        step("rows_of_two_sequences", "row", [](StepCall& c) { c.split(1), c.entry().count = 2; }),
        step("second_sequence_too_large", "sequence", [](StepCall& c) { c.split(1).sequence = sequences; }),
        step("second_scores_of_fewer_tokens", "scores_out",
             [](StepCall& c) { c.split(1).scores_out = &c.scores.view; }),
        step("second_draft_tokens", "draft_tokens", [](StepCall& c) { c.split(1).draft_tokens = 3; }),
        step_of(98, "second_longer_than_the_context", "k", [](StepCall& c) { c.split(3); }),
        step("k_missing", "k", [](StepCall& c) { c.desc.k = nullptr; }),
        step("v_missing", "v", [](StepCall& c) { c.desc.v = nullptr; }),
        step("q_missing", "q", [](StepCall& c) { c.desc.q = nullptr; }),
        step("out_missing", "out", [](StepCall& c) { c.desc.out = nullptr; }),
        step("nothing_given", "k", [](StepCall& c) { c.without_k(), c.without_q(); }),
        step("k_without_memory", "k", [](StepCall& c) { c.k.view.data = nullptr; }),
        step("out_without_memory", "out", [](StepCall& c) { c.out.view.data = nullptr; }),
        step("k_of_another_head_size", "k", [](StepCall& c) { c.k.view.shape[3] = 16; }),
        step("k_of_more_heads", "k", [](StepCall& c) { c.k.view.shape[1] = 3; }),
        step("k_of_two_batches", "v", [](StepCall& c) { c.k.view.shape[0] = 2; }),
        step("v_of_fewer_tokens", "v", [](StepCall& c) { c.v.view.shape[2] = 2; }),
        step("q_of_kv_heads", "q", [](StepCall& c) { c.q.view.shape[1] = kv_heads; }),
        step("q_of_fewer_tokens", "q", [](StepCall& c) { c.q.view.shape[2] = 2; }),
        step("out_of_fewer_tokens", "out", [](StepCall& c) { c.out.view.shape[2] = 2; }),
        step("k_packed", "k", [](StepCall& c) { c.k.view.type = WINNOW_TYPE_Q8_0; }),
        step("q_of_integers", "q", [](StepCall& c) { c.q.view.type = WINNOW_TYPE_I32; }),
        step("out_of_type_99", "out", [](StepCall& c) { c.out.view.type = 99; }),
        step("stride_negative", "v", [](StepCall& c) { c.v.view.stride[2] = -128; }),
        step("out_rows_overlap", "out", [](StepCall& c) { c.out.view.stride[2] = 64; }),
        step("out_on_q", "out", [](StepCall& c) { c.out.view.data = c.q.values.data(); }),
        step("scores_on_out", "scores_out", [](StepCall& c) { c.out.view.data = c.scores.values.data(); }),
        step("scores_of_two_entries", "scores_out overlaps scores_out of another entry",
             [](StepCall& c) { c.split_scores(q_heads * context * sizeof(float) - 4, false); }),
        step("scores_of_two_entries_the_second_first", "scores_out overlaps scores_out of another entry",
             [](StepCall& c) { c.split_scores(q_heads * context * sizeof(float), true); }),
        cell_step("scores_on_the_mask_of_another_entry", "scores_out overlaps attn_mask",
                  [](StepCall& c) {
                      c.split_scores(q_heads * cells * sizeof(float), false);
                      c.other_mask.data = c.scores.values.data();
                      c.other_mask.offset = 8;
                  }),
        step("scores_in_halves", "scores_out", [](StepCall& c) { c.scores.view.type = WINNOW_TYPE_F16; }),
        step("scores_of_fewer_heads", "scores_out", [](StepCall& c) { c.scores.view.shape[1] = 2; }),
        step("scores_of_too_few_columns", "scores_out", [](StepCall& c) { c.scores.view.shape[3] = 82; }),
        step("alibi_of_fewer_heads", "alibi_slopes", [](StepCall& c) { c.alibi.view.shape[3] = 2; }),
        step("sink_of_fewer_heads", "head_sink", [](StepCall& c) { c.sink.view.shape[3] = 2; }),
        step("alibi_without_q", "alibi_slopes",
             [](StepCall& c) { c.without_q(), c.desc.alibi_slopes = &c.alibi.view; }),
        step("scores_without_q", "scores_out",
             [](StepCall& c) { c.without_q(), c.entry().scores_out = &c.scores.view; }),
        step("scale_nan", "scale", [](StepCall& c) { c.desc.scale = nan; }),
        step("softcap_infinite", "softcap", [](StepCall& c) { c.desc.softcap = infinity; }),
        step("softcap_below_0", "softcap", [](StepCall& c) { c.desc.softcap = -1; }),
        step("window_below_0", "window_left", [](StepCall& c) { c.desc.window_left = -1; }),
        step("draft_tokens_minus_1", "draft_tokens", [](StepCall& c) { c.entry().draft_tokens = -1; }),
        step("draft_tokens_more_than_tokens", "draft_tokens", [](StepCall& c) { c.entry().draft_tokens = 4; }),
        step("cells_without_cells", "cells", [](StepCall& c) { c.desc.cells = &c.cell_view; }),
        step("mask_without_cells", "attn_mask", [](StepCall& c) { c.entry().attn_mask = &c.mask.view; }),
        step("slopes_without_cells", "mask_slopes", [](StepCall& c) { c.desc.mask_slopes = &c.slopes.view; }),
        step_of(17, "longer_than_the_context", "k", [](StepCall&) {}),
        step_of(17, "append_longer_than_the_context", "k", [](StepCall& c) { c.without_q(); }),
        step_of(11, "more_queries_than_tokens", "q", [](StepCall& c) { c.without_k(), c.entry().sequence = 1; }),
        cell_step("cells_missing", "cells", [](StepCall& c) { c.desc.cells = nullptr; }),
        cell_step("cells_of_floats", "cells", [](StepCall& c) { c.cell_view.type = WINNOW_TYPE_F32; }),
        cell_step("too_few_cells", "cells", [](StepCall& c) { c.cell_view.shape[3] = 2; }),
        cell_step("a_cell_minus_1", "cells", [](StepCall& c) { c.cell_numbers[1] = -1; }),
        cell_step("a_cell_too_large", "cells", [](StepCall& c) { c.cell_numbers[2] = cells; }),
        cell_step("a_cell_twice", "cells", [](StepCall& c) { c.cell_numbers[2] = c.cell_numbers[0]; }),
        cell_step("cells_without_k", "cells", [](StepCall& c) { c.without_k(), c.desc.cells = &c.cell_view; }),
        cell_step("mask_missing", "attn_mask", [](StepCall& c) { c.entry().attn_mask = c.desc.mask_slopes = nullptr; }),
        cell_step("mask_without_columns", "attn_mask", [](StepCall& c) { c.mask.view.shape[3] = 0; }),
        cell_step("mask_of_too_few_queries", "attn_mask", [](StepCall& c) { c.mask.view.shape[2] = 2; }),
        cell_step("mask_of_integers", "attn_mask", [](StepCall& c) { c.mask.view.type = WINNOW_TYPE_I32; }),
        cell_step("slopes_of_a_boolean_mask", "mask_slopes",
                  [](StepCall& c) {
                      c.mask.view.type = WINNOW_TYPE_BOOL;
                      c.mask.view.stride[3] = 1;
                  }),
        cell_step("alibi_by_cells", "alibi_slopes", [](StepCall& c) { c.desc.alibi_slopes = &c.alibi.view; }),
        cell_step("window_by_cells", "window_left", [](StepCall& c) { c.desc.window_left = 8; }),
        cell_step("scores_narrower_than_the_cells", "scores_out",
                  [](StepCall& c) { c.scores.view.shape[3] = cells - 1; }),
    };
    all.insert(all.end(), faults.begin(), faults.end());
    all.push_back(step("unknown_flag", "flags", [](StepCall& c) { c.desc.flags = WINNOW_STEP_NO_WAIT << 1; }));
    all.back().wrong.status = WINNOW_ERROR_UNSUPPORTED;
}

// ---- Everything else on a cache ------------------------------------------------------------------------------------

int32_t anchor(winnow_cache* cache, int64_t sequence, std::vector<int64_t> positions) {
    return caches().anchor(cache, sequence, positions.data(), positions.size());
}

void add_edits(std::vector<CacheFault>& all) {
    const auto add = [&](const char* name, const char* argument, std::function<int32_t(winnow_cache*)> call,
                         bool by_cells = false) {
        all.push_back({{name, argument}, by_cells, std::move(call)});
    };
    add("reserve_sequence", "sequence", [](winnow_cache* c) { return caches().reserve(c, sequences, 1); });
    add("reserve_minus_1", "tokens", [](winnow_cache* c) { return caches().reserve(c, 0, -1); });
    add("reserve_beyond_the_context", "tokens", [](winnow_cache* c) { return caches().reserve(c, 0, context + 1); });
    add("truncate_sequence", "sequence", [](winnow_cache* c) { return caches().truncate(c, -1, 0); });
    add("truncate_minus_1", "length", [](winnow_cache* c) { return caches().truncate(c, 0, -1); });
    add("remove_sequence", "sequence", [](winnow_cache* c) { return caches().remove(c, sequences, 0, -1); });
    add("remove_from_minus_1", "begin", [](winnow_cache* c) { return caches().remove(c, 0, -1, 4); });
    add("remove_to_minus_2", "end", [](winnow_cache* c) { return caches().remove(c, 0, 0, -2); });
    add("remove_backwards", "end", [](winnow_cache* c) { return caches().remove(c, 0, 9, 8); });
    add(
        "remove_beyond_the_cells", "end", [](winnow_cache* c) { return caches().remove(c, 0, 0, cells + 1); }, true);
    add(
        "truncate_by_cells", "cells", [](winnow_cache* c) { return caches().truncate(c, 0, 4); }, true);
    add(
        "reserve_beyond_the_cells", "tokens", [](winnow_cache* c) { return caches().reserve(c, 0, cells + 1); }, true);
    add("copy_from", "from", [](winnow_cache* c) { return caches().copy(c, sequences, 0); });
    add("copy_to", "to", [](winnow_cache* c) { return caches().copy(c, 0, -1); });
    add("shift_sequence", "sequence", [](winnow_cache* c) { return caches().shift(c, sequences, 0, -1, 1); });
    add("shift_from_minus_1", "begin", [](winnow_cache* c) { return caches().shift(c, 0, -1, -1, 1); });
    add("shift_backwards", "end", [](winnow_cache* c) { return caches().shift(c, 0, 9, 8, 1); });
    add("shift_far", "delta",
        [](winnow_cache* c) { return caches().shift(c, 0, 0, -1, std::numeric_limits<int64_t>::min()); });
    add("shift_below_0", "shift", [](winnow_cache* c) { return caches().shift(c, 0, 0, -1, -1); });
    add("shift_onto_another", "shift", [](winnow_cache* c) { return caches().shift(c, 1, 0, 2, 2); });
    add(
        "shift_by_cells", "cells", [](winnow_cache* c) { return caches().shift(c, 0, 0, -1, 1); }, true);
    const auto look_at = [](winnow_cache* c, int64_t sequence, int64_t layer, int64_t head) {
        int64_t position = -77;
        float importance = untouched;
        winnow_cache_tokens look{};
        look.struct_size = sizeof look;
        look.capacity = 1;
        look.count = 77;
        look.positions = &position;
        look.importance = &importance;
        const int32_t status = caches().tokens(c, sequence, layer, head, &look);
        EXPECT_TRUE(look.count == 77u && position == -77 && importance == untouched);
        return status;
    };
    add("tokens_of_sequence", "sequence", [=](winnow_cache* c) { return look_at(c, sequences, 0, 0); });
    add("tokens_of_all_sequences", "sequence", [=](winnow_cache* c) { return look_at(c, -1, 0, 0); });
    add("stats_of_sequence", "sequence", [](winnow_cache* c) {
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        stats.tokens = 77;
        const int32_t status = caches().stats(c, -2, &stats);
        EXPECT_EQ(stats.tokens, 77u);
        return status;
    });
    add("tokens_of_layer", "layer", [=](winnow_cache* c) { return look_at(c, 0, layers, 0); });
    add("tokens_of_head", "head", [=](winnow_cache* c) { return look_at(c, 0, 0, kv_heads); }); // not the query's
    add("tokens_of_head_minus_1", "head", [=](winnow_cache* c) { return look_at(c, 0, 0, -1); });
    add(
        "importance_that_is_not_kept", "importance", [=](winnow_cache* c) { return look_at(c, 0, 0, 0); }, true);
    const auto set_importance = [](winnow_cache* c, int64_t layer, int64_t head, int64_t position) {
        const float value = 1;
        return caches().set_importance(c, 0, layer, head, &position, &value, 1);
    };
    add("set_importance_of_layer", "layer", [=](winnow_cache* c) { return set_importance(c, layers, 0, 0); });
    add("set_importance_of_head", "head", [=](winnow_cache* c) { return set_importance(c, 0, kv_heads, 0); });
    add("set_importance_of_minus_1", "positions", [=](winnow_cache* c) { return set_importance(c, 0, 0, -1); });
    add("set_importance_beyond_the_context", "positions",
        [=](winnow_cache* c) { return set_importance(c, 0, 0, context); });
    add(
        "set_importance_that_is_not_kept", "importance", [=](winnow_cache* c) { return set_importance(c, 0, 0, 0); },
        true);
    add("pressure_nan", "pressure",
        [](winnow_cache* c) { return caches().set_pressure(c, std::numeric_limits<double>::quiet_NaN()); });
    add("pressure_above_1", "pressure", [](winnow_cache* c) { return caches().set_pressure(c, 1.5); });
    add("anchor_sequence", "sequence", [](winnow_cache* c) { return anchor(c, sequences, {0}); });
    add("anchor_minus_1", "positions", [](winnow_cache* c) { return anchor(c, 0, {5, -1}); });
    add("anchor_beyond_the_context", "positions", [](winnow_cache* c) { return anchor(c, 0, {context}); });
    add(
        "anchor_beyond_the_cells", "positions", [](winnow_cache* c) { return anchor(c, 0, {cells}); }, true);
    add("more_anchors_than_fit", "anchors", [](winnow_cache* c) {
        std::vector<int64_t> positions(80);
        for (size_t at = 0; at < positions.size(); ++at) positions[at] = static_cast<int64_t>(at);
        return anchor(c, 0, positions);
    });
}

} // namespace

winnow_cache_desc misused_cache(bool by_cells) {
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = by_cells ? cells_config : counting_config;
    desc.layers = layers;
    desc.q_num_heads = q_heads;
    desc.kv_num_heads = kv_heads;
    desc.head_size = head_size;
    desc.context = context;
    desc.max_sequences = sequences;
    desc.cells = by_cells ? cells : 0;
    return desc;
}

void expect_refused(const CacheFault& fault) {
    Victim victim(fault.by_cells), twin(fault.by_cells);
    if (testing::Test::HasFailure()) return;
    const std::string before = victim.portrait();
    const int32_t status = fault.call(victim.cache);
    const std::string message = subject().message();
    expect_refusal(fault.wrong, status, message);
    ASSERT_EQ(api().finish(subject().context()), WINNOW_OK);
    EXPECT_TRUE(victim.portrait() == before) << "the cache is not as it was before";
    for (int64_t layer = 0; layer < layers; ++layer)
        EXPECT_TRUE(same(victim.next(layer), twin.next(layer))) << "the next step of layer " << layer << " differs";
    EXPECT_TRUE(victim.portrait() == twin.portrait()) << "the next step left the cache otherwise than its twin";
}

void register_cache_bad_input() {
    std::vector<CacheFault> faults;
    add_steps(faults);
    add_edits(faults);
    for (const CacheFault& fault : faults)
        register_cache_test("bad_input", fault.wrong.name, __FILE__, __LINE__, [fault] { expect_refused(fault); });
    register_cache_bad_configs();
}

} // namespace winnow::conformance
