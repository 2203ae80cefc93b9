// A prompt: many query tokens, causal, against what is cached before and themselves.
#include <limits>
#include <optional>

#include "attention.hpp"

namespace winnow::bench {

nlohmann::json bench_sdpa_prefill(const Options& options, Backend& backend) {
    constexpr int64_t q_len = 512;
    nlohmann::json rows = nlohmann::json::array();
    Options of_prompts = options;
    of_prompts.key_counts = {q_len, 4 * q_len};
    print_row({"sdpa_prefill: 512 tokens, causal, H=3", "ms", "GFLOP/s", "x ggml"});
    for (const AttentionSizes& each : all_sizes_of(of_prompts)) {
        AttentionSizes sizes = each;
        sizes.kv_heads = 3;
        sizes.q_len = q_len;
        Attention problem(backend, sizes);
        problem.set_causal();
        std::optional<GgmlAttention> ggml;
        std::vector<std::function<void()>> turns{[&] { problem.run(); }};
        if (GgmlAttention::reads(sizes.k_type, sizes.v_type)) {
            ggml.emplace(problem, true, options.threads);
            turns.push_back([&] { ggml->run(); });
        }
        const std::vector<double> seconds = take_turns(turns, options.seconds);
        const double seen = static_cast<double>(q_len) * (static_cast<double>(sizes.kv_len) - (q_len - 1) / 2.0);
        const double flops = 4.0 * static_cast<double>(sizes.q_heads() * sizes.head_size) * seen;
        const double to_ggml = ggml ? seconds[1] / seconds[0] : std::numeric_limits<double>::quiet_NaN();
        print_row({label_of(sizes), fixed(seconds[0] * 1e3, 3), fixed(flops / seconds[0] / 1e9, 1),
                   ggml ? fixed(to_ggml, 2) : "-"});
        rows.push_back({{"variant", problem.variant()},
                        {"k_type", type_name(sizes.k_type)},
                        {"v_type", type_name(sizes.v_type)},
                        {"group", sizes.group},
                        {"head_size", sizes.head_size},
                        {"keys", sizes.kv_len},
                        {"seconds", seconds[0]},
                        {"times_ggml", to_ggml}});
    }
    return rows;
}

} // namespace winnow::bench
