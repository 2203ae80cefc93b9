// Appending to a cache in every format, against the same launch storing f16 and against copying; and the other
// operations on rows (kv_requantize, kv_dequantize, hadamard), against copying the larger side.
#include <cstring>
#include <memory>
#include <set>

#include "harness.hpp"

namespace winnow::bench {
namespace {

constexpr int64_t slots = 4096;

// K and V of some tokens, of one model's size, to be appended to a cache of one format.
class Append {
public:
    Append(Backend& backend, uint32_t type, int64_t heads, int64_t head_size, int64_t tokens)
        : backend_(backend), source_(backend, WINNOW_TYPE_F32, heads * tokens * head_size),
          k_cache_(backend, type, heads * slots, head_size), v_cache_(backend, type, heads * slots, head_size),
          indices_(backend, WINNOW_TYPE_I32, tokens) {
        auto* const index = static_cast<int32_t*>(indices_.data());
        for (int64_t token = 0; token < tokens; ++token) index[token] = static_cast<int32_t>(token * 7 % slots);
        source_tensor_ = source_.tensor(1, heads, tokens, head_size);
        k_tensor_ = k_cache_.tensor(1, heads, slots, head_size);
        v_tensor_ = v_cache_.tensor(1, heads, slots, head_size);
        index_tensor_ = indices_.tensor(1, 1, 1, tokens);
        row_bytes_ = static_cast<uint64_t>(heads * tokens) * backend.row_bytes(type, head_size);
        desc_.struct_size = sizeof desc_;
        desc_.k_src = desc_.v_src = &source_tensor_;
        desc_.k_cache = &k_tensor_;
        desc_.v_cache = &v_tensor_;
        desc_.k_row_indices = &index_tensor_;
    }
    void run() { backend_.run(desc_); }
    void copy() {
        std::memcpy(k_cache_.data(), source_.data(), row_bytes_);
        std::memcpy(v_cache_.data(), source_.data(), row_bytes_);
    }
    uint64_t bytes() const { return 2 * (source_.size() + row_bytes_); } // read and written

private:
    Backend& backend_;
    Memory source_, k_cache_, v_cache_, indices_;
    winnow_tensor source_tensor_{}, k_tensor_{}, v_tensor_{}, index_tensor_{};
    uint64_t row_bytes_;
    winnow_kv_append_desc desc_{};
};

std::string title(uint32_t type, int64_t head_size, int64_t tokens) {
    return "f32 to " + type_name(type) + " D=" + std::to_string(head_size) + " tokens=" + std::to_string(tokens);
}

bool fits(Backend& backend, uint32_t type, int64_t head_size) {
    try {
        backend.row_bytes(type, head_size);
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

// Every format in turn with f16. "x f16" is how many times faster than f16 a format is.
void bench_formats(const Options& options, Backend& backend, int64_t tokens, nlohmann::json& rows) {
    for (const int64_t head_size : options.head_sizes) {
        std::vector<uint32_t> types{WINNOW_TYPE_F16};
        for (const auto& [name, type] : storage_formats())
            if (type != WINNOW_TYPE_F16 && fits(backend, type, head_size)) types.push_back(type);
        std::vector<std::unique_ptr<Append>> appends;
        std::vector<std::function<void()>> all;
        for (const uint32_t type : types) {
            appends.push_back(std::make_unique<Append>(backend, type, options.kv_heads, head_size, tokens));
            all.emplace_back([append = appends.back().get()] { append->run(); });
        }
        const std::vector<double> seconds = take_turns(all, options.seconds * 2);
        for (size_t i = 0; i < types.size(); ++i) {
            const double rate = static_cast<double>(appends[i]->bytes()) / seconds[i] / 1e9;
            print_row({title(types[i], head_size, tokens), fixed(seconds[i] * 1e6, 1), fixed(rate, 2),
                       fixed(seconds[0] / seconds[i], 2)});
            rows.push_back({{"head_size", head_size},
                            {"tokens", tokens},
                            {"type", type_name(types[i])},
                            {"seconds", seconds[i]},
                            {"f16_seconds", seconds[0]}});
        }
    }
}

// Head sizes with the formats of K.
std::vector<std::pair<int64_t, uint32_t>> shapes_of(const Options& options) {
    std::set<uint32_t> types;
    for (const Formats& formats : options.formats) types.insert(formats.k);
    std::vector<std::pair<int64_t, uint32_t>> shapes;
    for (const int64_t head_size : options.head_sizes)
        for (const uint32_t type : types) shapes.emplace_back(head_size, type);
    return shapes;
}

void bench_copy(const Options& options, Backend& backend, nlohmann::json& rows) {
    for (const auto& [head_size, type] : shapes_of(options)) {
        for (const int64_t tokens : {int64_t{1}, int64_t{512}}) {
            Append append(backend, type, options.kv_heads, head_size, tokens);
            const std::vector<double> seconds =
                take_turns({[&] { append.run(); }, [&] { append.copy(); }}, options.seconds);
            print_row({title(type, head_size, tokens), fixed(seconds[0] * 1e6, 1),
                       fixed(static_cast<double>(append.bytes()) / seconds[0] / 1e9, 2),
                       fixed(seconds[1] / seconds[0], 2)});
            rows.push_back({{"operation", "kv_append"},
                            {"head_size", head_size},
                            {"tokens", tokens},
                            {"type", type_name(type)},
                            {"seconds", seconds[0]},
                            {"memcpy_seconds", seconds[1]}});
        }
    }
}

// Every row of a cache once.
void bench_rows(const Options& options, Backend& backend, nlohmann::json& rows) {
    for (const int64_t head_size : options.head_sizes) {
        const int64_t heads = options.kv_heads;
        const Memory dense(backend, WINNOW_TYPE_F32, heads * slots * head_size);
        const Memory other(backend, WINNOW_TYPE_F32, heads * slots * head_size);
        const Memory turbo3(backend, WINNOW_TYPE_TURBO3, heads * slots, head_size);
        const Memory turbo2(backend, WINNOW_TYPE_TURBO2, heads * slots, head_size);
        const auto view = [&](const Memory& memory) { return memory.tensor(1, heads, slots, head_size); };
        const winnow_tensor from = view(dense), to = view(other), three = view(turbo3), two = view(turbo2);
        winnow_kv_requantize_desc narrow{};
        narrow.struct_size = sizeof narrow;
        narrow.src = &three;
        narrow.dst = &two;
        winnow_kv_dequantize_desc widen{};
        widen.struct_size = sizeof widen;
        widen.src = &three;
        widen.dst = &to;
        winnow_hadamard_desc rotate{};
        rotate.struct_size = sizeof rotate;
        rotate.src = &from;
        rotate.dst = &to;
        const std::vector<double> seconds =
            take_turns({[&] { backend.run(narrow); }, [&] { std::memcpy(other.data(), turbo3.data(), turbo3.size()); },
                        [&] { backend.run(widen); }, [&] { backend.run(rotate); },
                        [&] { std::memcpy(other.data(), dense.data(), dense.size()); }},
                       options.seconds);
        const auto report = [&](const char* name, const Memory& larger, size_t at, size_t copy) {
            print_row({std::string(name) + " D=" + std::to_string(head_size), fixed(seconds[at] * 1e6, 1),
                       fixed(static_cast<double>(larger.size()) / seconds[at] / 1e9, 2),
                       fixed(seconds[copy] / seconds[at], 2)});
            rows.push_back({{"operation", name},
                            {"head_size", head_size},
                            {"seconds", seconds[at]},
                            {"memcpy_seconds", seconds[copy]}});
        };
        report("kv_requantize turbo3 to turbo2", turbo3, 0, 1);
        report("kv_dequantize turbo3 to f32", dense, 2, 4);
        report("hadamard of f32", dense, 3, 4);
    }
}

} // namespace

nlohmann::json bench_kv_append(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"kv_append: f32 rows of K and V", "us", "GB/s", "x memcpy"});
    bench_copy(options, backend, rows);
    print_row({"kv_append: every format", "us", "GB/s", "x f16"});
    bench_formats(options, backend, 1, rows);
    bench_formats(options, backend, 512, rows);
    print_row({"rows of 4096 tokens", "us", "GB/s", "x memcpy"});
    bench_rows(options, backend, rows);
    return rows;
}

} // namespace winnow::bench
