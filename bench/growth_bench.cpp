// How the cost of a token grows with those before it: a query of decoding over a full cache and under budgets, one
// layer, beside ggml and a plain read of the f16 cache, and the bytes that each keeps in memory. The context is as long
// as there are keys, so that a budget of a share grows with it and one of 1024 tokens does not. Times are the shortest
// of turns; the query stays the same, so that under recall no page comes after the first.
#include <array>
#include <optional>

#include "attention.hpp"
#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

constexpr std::array configs = {"winnow", "winnow:budget=1/4", "winnow:budget=1024", "winnow:budget=1/16,recall=host"};

struct Row {
    std::string cache;
    uint64_t bytes, cold_bytes;
    const char* time = "seconds"; // what a report calls its time
};

} // namespace

nlohmann::json bench_growth(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    const std::unique_ptr<PlainDevice> device = PlainDevice::of(options, backend.info());
    print_row({"growth: a query token, one layer", "us", "MiB", "cold MiB", "x f16"});
    for (const AttentionSizes& sizes : sizes_of(options)) {
        Attention full(backend, sizes);
        const uint64_t full_bytes = full.k().size() + full.v().size();
        std::vector<Row> kinds{{"f16", full_bytes, 0}};
        std::vector<std::function<void()>> turns{[&] { full.run(); }};
        std::optional<GgmlAttention> ggml;
        if (GgmlAttention::reads(sizes.k_type, sizes.v_type)) {
            ggml.emplace(full, false, options.threads);
            kinds.push_back({"ggml f16", full_bytes, 0, "ggml_seconds"});
            turns.emplace_back([&] { ggml->run(); });
        }
        std::optional<ReadLimit> limit;
        if (device) {
            limit.emplace(*device, std::vector<const Memory*>{&full.k(), &full.v()});
            kinds.push_back({"plain read of f16", full_bytes, 0, "read_seconds"});
            turns.emplace_back([&] { limit->run(); });
        }
        std::vector<std::unique_ptr<FilledCache>> caches;
        for (const char* config : configs) {
            FilledCache& cache = *caches.emplace_back(std::make_unique<FilledCache>(backend, config, sizes));
            const winnow_cache_stats stats = cache.stats();
            kinds.push_back({config, stats.bytes, stats.cold_bytes});
            turns.emplace_back([&cache] { cache.attend(); });
        }
        const std::vector<double> seconds = take_turns(turns, options.seconds);
        for (size_t i = 0; i < kinds.size(); ++i) {
            const auto& [cache, bytes, cold_bytes, time] = kinds[i];
            const auto mib = [](uint64_t size) { return fixed(static_cast<double>(size) / (1 << 20), 2); };
            print_row({cache + " G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) + " " +
                           std::to_string(sizes.kv_len),
                       fixed(seconds[i] * 1e6, 1), mib(bytes), cold_bytes > 0 ? mib(cold_bytes) : "-",
                       fixed(seconds[0] / seconds[i], 2)});
            rows.push_back({{"cache", cache},
                            {"kv_heads", sizes.kv_heads},
                            {"group", sizes.group},
                            {"head_size", sizes.head_size},
                            {"keys", sizes.kv_len},
                            {time, seconds[i]},
                            {"bytes", bytes},
                            {"cold_bytes", cold_bytes}});
        }
    }
    return rows;
}

} // namespace winnow::bench
