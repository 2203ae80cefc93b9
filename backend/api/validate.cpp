// Checks between views: shapes that have to agree, options that exclude each other, outputs that overlap inputs.
#include "api/validate.hpp"

#include <utility>

#include "api/shapes.hpp"
#include "api/structs.hpp"
#include "api/tensor.hpp"

namespace winnow::api {
namespace {

constexpr auto i32_type = {Type::i32};

// One set of positions may serve every head or batch entry: it is made as long as they are by strides of 0.
void broadcast_slot_positions(Sdpa& args) {
    Segment& keys = args.segments.front();
    Tensor& positions = keys.tokens;
    if (!positions) return;
    const std::array<int64_t, 4> full = {keys.k.shape[0], keys.k.shape[1], 1, keys.slots()};
    expect_shape(positions, "sdpa: slot_positions",
                 {positions.shape[0] == 1 ? 1 : full[0], positions.shape[1] == 1 ? 1 : full[1], 1, full[3]});
    positions.shape = full; // an axis of length 1 has the stride 0 already
}

void check_shapes(const Sdpa& args) {
    const Segment& keys = args.segments.front();
    const int64_t kv_batch = keys.k.shape[0];
    expect_divides(kv_batch, "sdpa: k", 0, args.batch(), "q");
    expect_divides(args.kv_heads(), "sdpa: k", 1, args.q_heads(), "q");
    expect_shape(keys.k, "sdpa: k", {-1, -1, -1, args.head_size()});
    expect_shape(keys.v, "sdpa: v", {kv_batch, args.kv_heads(), args.kv_len(), -1});
    expect_shape(args.out, "sdpa: out", {args.batch(), args.q_heads(), args.q_len(), args.v_head_size()});
    const std::array<int64_t, 4> per_head = {1, 1, 1, args.q_heads()};
    if (args.mask_slopes) expect_shape(args.mask_slopes, "sdpa: mask_slopes", per_head);
    if (args.alibi_slopes) expect_shape(args.alibi_slopes, "sdpa: alibi_slopes", per_head);
    if (args.head_sink) expect_shape(args.head_sink, "sdpa: head_sink", per_head);
    if (args.scores_out) {
        expect_shape(args.scores_out, "sdpa: scores_out", {args.batch(), args.q_heads(), args.q_len(), args.kv_len()});
    }
    if (args.row_stats) {
        expect_shape(args.row_stats, "sdpa: row_stats", {args.batch(), args.q_heads(), args.q_len(), 2});
    }
    if (args.v_rows_skipped) {
        expect_shape(args.v_rows_skipped, "sdpa: v_rows_skipped", {args.batch(), args.q_heads(), args.q_len(), 1});
    }
    const std::array<int64_t, 4> per_entry = {1, 1, 1, args.batch()};
    if (args.kv_lengths) expect_shape(args.kv_lengths, "sdpa: kv_lengths", per_entry);
    if (args.q_offsets) expect_shape(args.q_offsets, "sdpa: q_offsets", per_entry);
    // By slot positions a mask is as long as the host likes.
    if (args.mask) expect_mask(args.mask, "sdpa: attn_mask", args.q, keys.tokens ? 1 : args.kv_len(), "kv_len");
    expect_mask_slopes(args.mask_slopes, "sdpa: mask_slopes", args.mask);
}

void check_no_overlap(const Sdpa& args) {
    expect_apart({{args.out, "sdpa: out"},
                  {args.scores_out, "sdpa: scores_out"},
                  {args.row_stats, "sdpa: row_stats"},
                  {args.v_rows_skipped, "sdpa: v_rows_skipped"}},
                 {{args.q, "q"},
                  {args.segments.front().k, "k"},
                  {args.segments.front().v, "v"},
                  {args.mask, "attn_mask"},
                  {args.mask_slopes, "mask_slopes"},
                  {args.alibi_slopes, "alibi_slopes"},
                  {args.head_sink, "head_sink"},
                  {args.segments.front().tokens, "slot_positions"},
                  {args.kv_lengths, "kv_lengths"},
                  {args.q_offsets, "q_offsets"}});
}

// V's rows go where K's indices say.
constexpr AppendNames v_names_k_indices = {append_v_names.src, append_v_names.cache, append_k_names.row_indices};

AppendRows to_append_rows(const winnow_context& context, const AppendNames& names, const winnow_tensor* src,
                          const winnow_tensor* cache, const winnow_tensor* row_indices, Memory memory) {
    if (src == nullptr && cache == nullptr) return {};
    AppendRows rows;
    rows.src = to_required_tensor(context, src, {names.src, dense_types}, memory);
    rows.cache = to_required_tensor(context, cache, {names.cache, storage_types, Access::output}, memory);
    rows.row_indices = to_required_tensor(context, row_indices, {names.row_indices, index_types}, memory);
    const auto& [batch, heads, tokens, elements] = rows.src.shape;
    expect_shape(rows.cache, names.cache, {batch, heads, -1, elements});
    expect_shape(rows.row_indices, names.row_indices, {-1, -1, 1, tokens});
    expect_divides(rows.row_indices.shape[0], names.row_indices, 0, batch, names.src);
    expect_divides(rows.row_indices.shape[1], names.row_indices, 1, heads, names.src);
    return rows;
}

// A cache may overlap no input of either side: both sides are written in one launch.
void check_no_overlap(const KvAppend& args, const AppendNames& v_side) {
    const std::pair<const AppendRows*, const AppendNames*> sides[] = {{&args.k, &append_k_names}, {&args.v, &v_side}};
    for (const auto& [written, written_names] : sides) {
        for (const auto& [read, read_names] : sides) {
            if (certainly_overlap(written->cache, read->src)) {
                invalid(std::string(written_names->cache) + " overlaps " + read_names->src);
            }
            if (certainly_overlap(written->cache, read->row_indices)) {
                invalid(std::string(written_names->cache) + " overlaps " + read_names->row_indices);
            }
        }
    }
    if (certainly_overlap(args.k.cache, args.v.cache)) invalid("kv_append: v_cache overlaps k_cache");
}

} // namespace

Sdpa to_sdpa(const winnow_context& context, const winnow_sdpa_desc* desc, Memory memory) {
    const winnow_sdpa_desc given = read_desc(desc, "sdpa: desc");
    const auto optional = [&](const winnow_tensor* tensor, const char* name, std::initializer_list<Type> types,
                              Access access = Access::input) {
        return to_tensor(context, tensor, {name, types, access}, memory);
    };
    const auto required = [&](const winnow_tensor* tensor, const char* name, std::initializer_list<Type> types,
                              Access access = Access::input) {
        return to_required_tensor(context, tensor, {name, types, access}, memory);
    };
    Sdpa args;
    args.q = required(given.q, "sdpa: q", dense_types);
    Segment& keys = args.segments.emplace_back();
    keys.k = required(given.k, "sdpa: k", storage_types);
    keys.v = required(given.v, "sdpa: v", storage_types);
    args.out = required(given.out, "sdpa: out", dense_types, Access::output);
    args.mask = optional(given.attn_mask, "sdpa: attn_mask", mask_types);
    args.mask_slopes = optional(given.mask_slopes, "sdpa: mask_slopes", float_type);
    args.alibi_slopes = optional(given.alibi_slopes, "sdpa: alibi_slopes", float_type);
    args.head_sink = optional(given.head_sink, "sdpa: head_sink", float_type);
    args.scores_out = optional(given.scores_out, "sdpa: scores_out", float_type, Access::output);
    args.row_stats = optional(given.row_stats, "sdpa: row_stats", float_type, Access::output);
    args.v_rows_skipped = optional(given.v_rows_skipped, "sdpa: v_rows_skipped", i32_type, Access::output);
    keys.tokens = optional(given.slot_positions, "sdpa: slot_positions", i32_type);
    args.kv_lengths = optional(given.kv_lengths, "sdpa: kv_lengths", index_types);
    args.q_offsets = optional(given.q_offsets, "sdpa: q_offsets", index_types);
    if (given.scores_mode > WINNOW_SCORES_PROBS) {
        invalid("sdpa: scores_mode is " + std::to_string(given.scores_mode) + ", expected 0 to 4");
    }
    args.scores_mode = static_cast<Scores>(given.scores_mode);
    if ((args.scores_mode != Scores::none) != static_cast<bool>(args.scores_out)) {
        invalid(args.scores_out ? "sdpa: scores_out is given, but scores_mode is WINNOW_SCORES_NONE"
                                : "sdpa: scores_out is NULL, but scores_mode asks for scores");
    }
    args.scale = to_scale(given.scale, args.head_size(), "sdpa: scale");
    args.softcap = to_softcap(given.softcap, "sdpa: softcap");
    if (!(given.v_threshold >= 0 && given.v_threshold < 1)) {
        invalid("sdpa: v_threshold is " + std::to_string(given.v_threshold) + ", expected at least 0 and below 1");
    }
    args.v_threshold = given.v_threshold;
    check_reserved(given.reserved, "sdpa: desc");
    expect_flag(given.is_causal, "sdpa: is_causal");
    args.is_causal = given.is_causal != 0;
    if (given.q_offset > position_limit || given.q_offset < -position_limit) {
        invalid("sdpa: q_offset is " + std::to_string(given.q_offset) + ", expected within 2^48 of 0");
    }
    if (given.q_offset != 0 && args.q_offsets) {
        invalid("sdpa: q_offset is " + std::to_string(given.q_offset) + ", expected 0 with q_offsets");
    }
    args.q_offset = given.q_offset;
    args.window_left = to_window(given.window_left, "sdpa: window_left");
    args.window_right = to_window(given.window_right, "sdpa: window_right");
    check_shapes(args);
    broadcast_slot_positions(args);
    check_no_overlap(args);
    return args;
}

KvAppend to_kv_append(const winnow_context& context, const winnow_kv_append_desc* desc, Memory memory) {
    const winnow_kv_append_desc given = read_desc(desc, "kv_append: desc");
    const AppendNames& v_side = given.v_row_indices != nullptr ? append_v_names : v_names_k_indices;
    KvAppend args;
    args.k = to_append_rows(context, append_k_names, given.k_src, given.k_cache, given.k_row_indices, memory);
    args.v = to_append_rows(context, v_side, given.v_src, given.v_cache,
                            given.v_row_indices != nullptr ? given.v_row_indices : given.k_row_indices, memory);
    args.k.norm = to_norm(given.k_norm, "kv_append: k_norm");
    args.v.norm = to_norm(given.v_norm, "kv_append: v_norm");
    if (!args.k && !args.v) invalid("kv_append: neither k_src and k_cache nor v_src and v_cache are given");
    check_no_overlap(args, v_side);
    return args;
}

} // namespace winnow::api
