// The decode step: one query token against a long cache.
#include <limits>
#include <optional>

#include "attention.hpp"

namespace winnow::bench {

nlohmann::json bench_sdpa_vector(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"sdpa_vector: one query token", "ms", "GB/s", "% of read", "x ggml", "scores +%"});
    for (const int64_t head_size : options.head_sizes) {
        for (const int64_t group : options.groups) {
            for (const int64_t keys : options.key_counts) {
                Attention problem(backend, {options.kv_heads, group, 1, keys, head_size, options.type});
                ReadLimit limit(backend.info(), {&problem.k(), &problem.v()});
                std::optional<GgmlAttention> ggml;
                std::vector<std::function<void()>> turns{[&] { problem.run(); }, [&] { limit.run(); },
                                                         [&] { problem.run_with_scores(); }};
                if (GgmlAttention::is_available()) {
                    ggml.emplace(problem, false, options.threads);
                    turns.push_back([&] { ggml->run(); });
                }
                const std::vector<double> seconds = take_turns(turns, options.seconds);
                const double bytes = static_cast<double>(problem.k().size() + problem.v().size());
                const double of_read = seconds[1] / seconds[0];
                const double scores_cost = seconds[2] / seconds[0] - 1;
                const double to_ggml = ggml ? seconds[3] / seconds[0] : std::numeric_limits<double>::quiet_NaN();
                print_row({std::string(type_name(options.type)) + " G=" + std::to_string(group) +
                               " D=" + std::to_string(head_size) + " keys=" + std::to_string(keys),
                           fixed(seconds[0] * 1e3, 3), fixed(bytes / seconds[0] / 1e9, 1), fixed(of_read * 100, 1),
                           ggml ? fixed(to_ggml, 2) : "-", fixed(scores_cost * 100, 1)});
                rows.push_back({{"variant", problem.variant()},
                                {"kv_heads", options.kv_heads},
                                {"group", group},
                                {"head_size", head_size},
                                {"keys", keys},
                                {"seconds", seconds[0]},
                                {"read_seconds", seconds[1]},
                                {"fraction_of_read", of_read},
                                {"scores_cost", scores_cost},
                                {"times_ggml", to_ggml}});
            }
        }
    }
    return rows;
}

} // namespace winnow::bench
