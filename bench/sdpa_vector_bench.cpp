// The decode step: one query token against a long cache. Beside it: a plain read of the same bytes, ggml, the same
// attention over an f16 cache, and the way without fused kernels, which makes the whole cache dense first.
#include <optional>

#include "attention.hpp"

namespace winnow::bench {
namespace {

nlohmann::json measure(const Options& options, Backend& backend, const AttentionSizes& sizes) {
    Attention problem(backend, sizes);
    AttentionSizes f16_sizes = sizes;
    f16_sizes.k_type = f16_sizes.v_type = WINNOW_TYPE_F16;
    const bool is_f16 = sizes.k_type == WINNOW_TYPE_F16 && sizes.v_type == WINNOW_TYPE_F16;

    std::vector<std::function<void()>> turns{[&] { problem.run(); }, [&] { problem.run_with_scores(); }};
    // Each has its place among the turns, or none.
    std::optional<ReadLimit> limit;
    std::optional<GgmlAttention> ggml;
    std::optional<Attention> f16;
    std::optional<size_t> read_turn, ggml_turn, f16_turn, dequantized_turn;
    const auto add = [&](std::function<void()> turn) {
        turns.push_back(std::move(turn));
        return turns.size() - 1;
    };
    if (!options.host_threads) { // of lent threads the plain read would have one only
        limit.emplace(backend.info(), std::vector<const Memory*>{&problem.k(), &problem.v()});
        read_turn = add([&] { limit->run(); });
    }
    if (GgmlAttention::reads(sizes.k_type, sizes.v_type)) {
        ggml.emplace(problem, false, options.threads);
        ggml_turn = add([&] { ggml->run(); });
    }
    if (!is_f16) {
        f16.emplace(backend, f16_sizes);
        f16_turn = add([&] { f16->run(); });
        if (problem.can_dequantize_first(*f16)) dequantized_turn = add([&] { problem.run_dequantized_first(*f16); });
    }

    const std::vector<double> seconds = take_turns(turns, options.seconds);
    const auto times = [&](std::optional<size_t> turn) { return turn ? seconds[*turn] / seconds[0] : 0.0; };
    const auto cell = [&](std::optional<size_t> turn) { return turn ? fixed(times(turn), 2) : std::string("-"); };
    const double bytes = static_cast<double>(problem.k().size() + problem.v().size());
    const double scores_cost = seconds[1] / seconds[0] - 1;
    print_row({label_of(sizes), fixed(seconds[0] * 1e3, 3), fixed(bytes / seconds[0] / 1e9, 1),
               read_turn ? fixed(times(read_turn) * 100, 1) : "-", cell(ggml_turn), cell(f16_turn),
               cell(dequantized_turn), fixed(scores_cost * 100, 1)});
    nlohmann::json row{{"variant", problem.variant()},
                       {"kv_heads", sizes.kv_heads},
                       {"group", sizes.group},
                       {"head_size", sizes.head_size},
                       {"keys", sizes.kv_len},
                       {"seconds", seconds[0]},
                       {"scores_cost", scores_cost},
                       {"k_type", type_name(sizes.k_type)},
                       {"v_type", type_name(sizes.v_type)}};
    if (read_turn) {
        row["read_seconds"] = seconds[*read_turn];
        row["fraction_of_bandwidth"] = times(read_turn);
    }
    if (ggml_turn) row["times_ggml"] = times(ggml_turn);
    if (f16_turn) row["times_f16"] = times(f16_turn);
    if (dequantized_turn) row["times_dequantize_first"] = times(dequantized_turn);
    return row;
}

} // namespace

nlohmann::json bench_sdpa_vector(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"sdpa_vector: one query token", "ms", "GB/s", "% of bw", "x ggml", "x f16", "x dequant.", "scores +%"});
    for (const AttentionSizes& sizes : sizes_of(options, options.type, options.v_type))
        rows.push_back(measure(options, backend, sizes));
    return rows;
}

} // namespace winnow::bench
