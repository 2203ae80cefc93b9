// A prompt: many query tokens, causal, against what is cached before and themselves.
#include <limits>
#include <optional>

#include "attention.hpp"

namespace winnow::bench {

nlohmann::json bench_sdpa_prefill(const Options& options, Backend& backend) {
    constexpr int64_t q_len = 512;
    nlohmann::json rows = nlohmann::json::array();
    print_row({"sdpa_prefill: 512 tokens, causal", "ms", "GFLOP/s", "x ggml"});
    for (const int64_t head_size : options.head_sizes) {
        for (const int64_t group : options.groups) {
            for (const int64_t keys : {q_len, 4 * q_len}) {
                Attention problem(backend, {3, group, q_len, keys, head_size, options.type, options.v_type});
                problem.set_causal();
                std::optional<GgmlAttention> ggml;
                std::vector<std::function<void()>> turns{[&] { problem.run(); }};
                if (GgmlAttention::reads(options.type, options.v_type)) {
                    ggml.emplace(problem, true, options.threads);
                    turns.push_back([&] { ggml->run(); });
                }
                const std::vector<double> seconds = take_turns(turns, options.seconds);
                const double seen = static_cast<double>(q_len) * (static_cast<double>(keys) - (q_len - 1) / 2.0);
                const double flops = 4.0 * static_cast<double>(problem.sizes().q_heads() * head_size) * seen;
                const double to_ggml = ggml ? seconds[1] / seconds[0] : std::numeric_limits<double>::quiet_NaN();
                print_row({type_names(options.type, options.v_type) + " H=3 G=" + std::to_string(group) +
                               " D=" + std::to_string(head_size) + " keys=" + std::to_string(keys),
                           fixed(seconds[0] * 1e3, 3), fixed(flops / seconds[0] / 1e9, 1),
                           ggml ? fixed(to_ggml, 2) : "-"});
                rows.push_back({{"variant", problem.variant()},
                                {"group", group},
                                {"head_size", head_size},
                                {"keys", keys},
                                {"seconds", seconds[0]},
                                {"times_ggml", to_ggml}});
            }
        }
    }
    return rows;
}

} // namespace winnow::bench
