// How the cost of a token grows with those before it: a query of decoding over a full cache and under budgets, beside
// ggml and a plain read of the f16 cache, and the bytes that each keeps in memory. The context is as long as there are
// keys, so that a budget of a share grows with it and one of 1024 tokens does not.
//
// A turn goes through all layers of a model, one after another, so that a layer is not found where the processor keeps
// it if the model would not find it there; figures are of one of them. Of each cache as many layers take part as the
// model has while all of them, cold rows included, stay within 1 GiB (--layer-memory), one at least: the larger a
// layer, the fewer it takes to be beyond any cache of a processor. The query stays the same, so that under recall no
// page comes after the first.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>

#include "attention.hpp"
#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

constexpr std::array configs = {"winnow", "winnow:budget=1/4", "winnow:budget=1024", "winnow:budget=1/16,recall=host"};

struct Row {
    std::string cache;
    uint64_t bytes, cold_bytes;   // of a layer
    const char* time = "seconds"; // what a report calls its time
};

// What takes a turn: a query in each layer, of each of which the shortest time counts.
class Kind {
public:
    Kind(Row row, int64_t layers, std::function<void(int64_t)> attend)
        : row_(std::move(row)), attend_(std::move(attend)),
          shortest_(static_cast<size_t>(layers), std::numeric_limits<double>::infinity()) {}
    void run() {
        for (size_t layer = 0; layer < shortest_.size(); ++layer) {
            const auto begin = std::chrono::steady_clock::now();
            attend_(static_cast<int64_t>(layer));
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
            shortest_[layer] = std::min(shortest_[layer], time.count());
        }
    }
    const Row& row() const { return row_; }
    int64_t layers() const { return static_cast<int64_t>(shortest_.size()); }
    double seconds() const { // of a layer
        return std::accumulate(shortest_.begin(), shortest_.end(), 0.0) / static_cast<double>(shortest_.size());
    }

private:
    Row row_;
    std::function<void(int64_t)> attend_;
    std::vector<double> shortest_;
};

int64_t layers_of(const Options& options, uint64_t bytes_of_a_layer) {
    const uint64_t all = static_cast<uint64_t>(options.layer_memory) << 20;
    return std::clamp<int64_t>(static_cast<int64_t>(all / std::max<uint64_t>(bytes_of_a_layer, 1)), 1, options.layers);
}

// Of a layer, with its cold rows.
uint64_t bytes_of(Backend& backend, const std::string& config, const AttentionSizes& sizes) {
    const winnow_cache_stats stats = backend.estimate(layer_of(sizes, config, sizes.kv_len), sizes.kv_len);
    return stats.bytes + stats.cold_bytes;
}

void measure(const Options& options, Backend& backend, const PlainDevice* device, const AttentionSizes& sizes,
             nlohmann::json& rows) {
    const auto f16_bytes = 2 * 2 * static_cast<uint64_t>(sizes.kv_heads * sizes.kv_len * sizes.head_size);
    const int64_t f16_layers = layers_of(options, f16_bytes);
    std::vector<std::unique_ptr<Attention>> full;
    std::vector<std::unique_ptr<GgmlAttention>> ggml;
    std::vector<std::unique_ptr<ReadLimit>> read;
    for (int64_t layer = 0; layer < f16_layers; ++layer) {
        const Attention& its = *full.emplace_back(std::make_unique<Attention>(backend, sizes));
        if (GgmlAttention::reads(sizes.k_type, sizes.v_type))
            ggml.push_back(std::make_unique<GgmlAttention>(its, false, options.threads));
        if (device != nullptr)
            read.push_back(std::make_unique<ReadLimit>(*device, std::vector<const Memory*>{&its.k(), &its.v()}));
    }
    std::vector<Kind> kinds;
    const auto add = [&](Row row, auto& all) {
        kinds.emplace_back(std::move(row), f16_layers,
                           [&all](int64_t layer) { all[static_cast<size_t>(layer)]->run(); });
    };
    add({"f16", f16_bytes, 0}, full);
    if (!ggml.empty()) add({"ggml f16", f16_bytes, 0, "ggml_seconds"}, ggml);
    if (!read.empty()) add({"plain read of f16", f16_bytes, 0, "read_seconds"}, read);
    std::vector<std::unique_ptr<FilledCache>> caches;
    for (const char* config : configs) {
        const int64_t layers = layers_of(options, bytes_of(backend, config, sizes));
        FilledCache& cache =
            *caches.emplace_back(std::make_unique<FilledCache>(backend, config, sizes, std::vector<uint8_t>{}, layers));
        const winnow_cache_stats stats = cache.stats();
        const auto of_layer = static_cast<uint64_t>(layers);
        kinds.emplace_back(Row{config, stats.bytes / of_layer, stats.cold_bytes / of_layer}, layers,
                           [&cache](int64_t layer) { cache.attend(layer); });
    }
    std::vector<std::function<void()>> turns;
    for (Kind& kind : kinds) turns.emplace_back([&kind] { kind.run(); });
    take_turns(turns, options.seconds);
    for (const Kind& kind : kinds) {
        const auto& [cache, bytes, cold_bytes, time] = kind.row();
        const auto mib = [](uint64_t size) { return fixed(static_cast<double>(size) / (1 << 20), 2); };
        print_row({cache + " G=" + std::to_string(sizes.group) + " D=" + std::to_string(sizes.head_size) + " " +
                       std::to_string(sizes.kv_len),
                   fixed(kind.seconds() * 1e6, 1), mib(bytes), cold_bytes > 0 ? mib(cold_bytes) : "-",
                   fixed(kinds[0].seconds() / kind.seconds(), 2), std::to_string(kind.layers())});
        rows.push_back({{"cache", cache},
                        {"kv_heads", sizes.kv_heads},
                        {"group", sizes.group},
                        {"head_size", sizes.head_size},
                        {"keys", sizes.kv_len},
                        {"layers", kind.layers()},
                        {time, kind.seconds()},
                        {"bytes", bytes},
                        {"cold_bytes", cold_bytes}});
    }
}

} // namespace

nlohmann::json bench_growth(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    const std::unique_ptr<PlainDevice> device = PlainDevice::of(options, backend);
    print_row({"growth: a query token, one of layers", "us", "MiB", "cold MiB", "x f16", "layers"});
    for (const AttentionSizes& sizes : sizes_of(options)) measure(options, backend, device.get(), sizes, rows);
    return rows;
}

} // namespace winnow::bench
