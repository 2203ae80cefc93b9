// The decode step: one query token against a long cache. Beside it the limits of the device (a plain read of the same
// bytes, its arithmetic, an empty launch), ggml, the same attention over an f16 cache, and the way without fused
// kernels, which makes the whole cache dense first.
#include <algorithm>
#include <optional>

#include "attention.hpp"
#include "limits.hpp"
#include "plain_device.hpp"

namespace winnow::bench {
namespace {

constexpr int width = 8;                           // of the table's columns
constexpr uint64_t few_bytes = uint64_t{16} << 20; // beside reading them starting a launch takes long
constexpr uint32_t times_read = 17;                // in one launch, of few bytes

constexpr const char* legend =
    "% binds: of the time that the larger of reading and arithmetic takes alone; reading alone where the variant is\n"
    "_tensor; empty: us of an empty launch; x floor: the time over that of an empty launch and of reading\n"
    "without one; x ...: how many times as fast\n";

// A device's limits; none where the backend computes without OpenCL.
struct Limits {
    std::unique_ptr<PlainDevice> device;
    std::optional<Peaks> peaks;

    Limits(const Options& options, const Backend& backend) : device(PlainDevice::of(options, backend)) {
        if (device) peaks.emplace(*device);
    }
};

// The functions that take turns. Each has its place among them, or none.
class Turns {
public:
    using Place = std::optional<size_t>;
    Place add(std::function<void()> turn) {
        all_.push_back(std::move(turn));
        return all_.size() - 1;
    }
    void take(double seconds) { seconds_ = take_turns(all_, seconds); }
    double seconds(Place turn) const { return turn ? seconds_[*turn] : 0; }
    // How many times as fast as that turn the first one is.
    double times(Place turn) const { return seconds(turn) / seconds_[0]; }
    std::string cell(Place turn) const { return turn ? fixed(times(turn), 2) : "-"; }

private:
    std::vector<std::function<void()>> all_;
    std::vector<double> seconds_;
};

// Seconds of the multiply-adds alone, at the device's peak: each element of K and V is converted once, and multiplied
// for each query head of its KV head. A packed element takes no less than one of f16.
double arithmetic_seconds(const AttentionSizes& sizes, double of_multiply_add, double of_conversion) {
    const auto elements = static_cast<double>(sizes.kv_heads * sizes.kv_len * sizes.head_size);
    const auto group = static_cast<double>(sizes.group);
    const auto of_side = [&](uint32_t type) {
        if (type == WINNOW_TYPE_F32) return elements * group * of_multiply_add;
        return elements * (of_conversion + (group - 1) * of_multiply_add);
    };
    return of_side(sizes.k_type) + of_side(sizes.v_type);
}

nlohmann::json measure(const Options& options, Backend& backend, Limits& limits, const AttentionSizes& sizes) {
    Attention problem(backend, sizes);
    AttentionSizes f16_sizes = sizes;
    f16_sizes.k_type = f16_sizes.v_type = WINNOW_TYPE_F16;
    const bool is_f16 = sizes.k_type == WINNOW_TYPE_F16 && sizes.v_type == WINNOW_TYPE_F16;
    // Products of small matrices have a peak of their own, which is not measured.
    const bool has_arithmetic = limits.peaks && problem.variant().find("_tensor") == std::string::npos;

    Turns turns;
    turns.add([&] { problem.run(); });
    const Turns::Place scores_turn = turns.add([&] { problem.run_with_scores(); });
    std::optional<ReadLimit> read;
    std::optional<GgmlAttention> ggml;
    std::optional<Attention> f16;
    Turns::Place read_turn, many_turn, empty_turn, multiply_turn, convert_turn, ggml_turn, f16_turn, dequantized_turn;
    if (limits.device) {
        read.emplace(*limits.device, std::vector<const Memory*>{&problem.k(), &problem.v()});
        read_turn = turns.add([&] { read->run(); });
        if (problem.k().size() + problem.v().size() < few_bytes) many_turn = turns.add([&] { read->run(times_read); });
        empty_turn = turns.add([&] { limits.peaks->launch_nothing(); });
    }
    if (has_arithmetic) {
        multiply_turn = turns.add([&] { limits.peaks->multiply_add(); });
        convert_turn = turns.add([&] { limits.peaks->convert(); });
    }
    if (GgmlAttention::reads(sizes.k_type, sizes.v_type)) {
        ggml.emplace(problem, false, options.threads);
        ggml_turn = turns.add([&] { ggml->run(); });
    }
    if (!is_f16) {
        f16.emplace(backend, f16_sizes);
        f16_turn = turns.add([&] { f16->run(); });
        if (problem.can_dequantize_first(*f16))
            dequantized_turn = turns.add([&] { problem.run_dequantized_first(*f16); });
    }
    turns.take(options.seconds);
    if (read) read->check();

    const double time = turns.seconds(0), scores_cost = turns.seconds(scores_turn) / time - 1;
    const double of_multiply_add = has_arithmetic ? turns.seconds(multiply_turn) / limits.peaks->multiply_adds() : 0;
    const double of_conversion = has_arithmetic ? turns.seconds(convert_turn) / limits.peaks->conversions() : 0;
    const double arithmetic = arithmetic_seconds(sizes, of_multiply_add, of_conversion);
    const double binding = std::max(turns.seconds(read_turn), arithmetic) / time;
    const double reading = many_turn
                               ? std::max(turns.seconds(many_turn) - turns.seconds(read_turn), 0.0) / (times_read - 1)
                               : turns.seconds(read_turn);
    const double times_floor = time / (turns.seconds(empty_turn) + reading);
    const double bytes = static_cast<double>(problem.k().size() + problem.v().size());
    print_row({label_of(sizes), fixed(time * 1e3, 3), fixed(bytes / time / 1e9, 1),
               read_turn ? fixed(turns.times(read_turn) * 100, 1) : "-", read_turn ? fixed(binding * 100, 1) : "-",
               read_turn ? fixed(turns.seconds(empty_turn) * 1e6, 1) : "-", read_turn ? fixed(times_floor, 2) : "-",
               turns.cell(ggml_turn), turns.cell(f16_turn), turns.cell(dequantized_turn), fixed(scores_cost * 100, 1)},
              width);
    nlohmann::json row{{"variant", problem.variant()},
                       {"kv_heads", sizes.kv_heads},
                       {"group", sizes.group},
                       {"head_size", sizes.head_size},
                       {"keys", sizes.kv_len},
                       {"seconds", time},
                       {"scores_seconds", turns.seconds(scores_turn)},
                       {"scores_cost", scores_cost},
                       {"k_type", type_name(sizes.k_type)},
                       {"v_type", type_name(sizes.v_type)}};
    if (read_turn) {
        row["read_seconds"] = turns.seconds(read_turn);
        row["memory_seconds"] = reading; // without a launch
        row["empty_launch_seconds"] = turns.seconds(empty_turn);
        row["fraction_of_bandwidth"] = turns.times(read_turn);
        row["fraction_of_what_binds"] = binding;
        row["times_floor"] = times_floor;
    }
    if (has_arithmetic) {
        row["arithmetic_seconds"] = arithmetic;
        row["multiply_adds_per_second"] = 1 / of_multiply_add;
        row["conversions_per_second"] = 1 / of_conversion;
    }
    if (ggml_turn) row["times_ggml"] = turns.times(ggml_turn);
    if (f16_turn) row["times_f16"] = turns.times(f16_turn);
    if (dequantized_turn) row["times_dequantize_first"] = turns.times(dequantized_turn);
    return row;
}

} // namespace

nlohmann::json bench_sdpa_vector(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    Limits limits(options, backend);
    std::printf("%s", legend);
    print_row({"sdpa_vector: one query token", "ms", "GB/s", "% of bw", "% binds", "empty", "x floor", "x ggml",
               "x f16", "x dequ.", "scores%"},
              width);
    for (const AttentionSizes& sizes : all_sizes_of(options)) rows.push_back(measure(options, backend, limits, sizes));
    if (rows.empty() || !rows.back().contains("multiply_adds_per_second")) return rows;
    std::printf("peaks: %s Gmultiply-adds/s of f32, %s Gconversions/s of f16 with one each (the last row's)\n",
                fixed(rows.back()["multiply_adds_per_second"].get<double>() / 1e9, 1).c_str(),
                fixed(rows.back()["conversions_per_second"].get<double>() / 1e9, 1).c_str());
    return rows;
}

} // namespace winnow::bench
