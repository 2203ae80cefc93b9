// winnow-codes-bench: what it costs on one core to multiply a query with packed rows, and to pack rows, in the codes
// that the lab tries. All decoders are checked against the plain decoder before they are timed.
#include "decoders.hpp"
#include "numbers.hpp"
#include "trellis.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

using namespace winnow::lab;
using Clock = std::chrono::steady_clock;

constexpr uint64_t seed = 4;
constexpr size_t cached_rows = 512;
constexpr size_t streamed_bytes = size_t{64} << 20;
constexpr size_t padding = 64; // a decoder may read so many bytes behind the last row

struct DecodeTime {
    std::string format, method, machine;
    size_t elements;
    double cached = 0, streamed = 0; // ns per element
};

struct PackTime {
    std::string code;
    int elements;
    double microseconds; // per row
};

const char* name_of(Machine machine) { return machine == Machine::avx2 ? "AVX2" : "AVX-512"; }

bool runs_here(Machine machine) {
    if (machine == Machine::avx2) {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); // F16C is older than both
    }
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi");
}

// Seconds of the fastest call of `work`, over at least `calls` calls and 0.05 s.
template <class Work>
double fastest(int calls, const Work& work) {
    double least = 1e9;
    const auto begin = Clock::now();
    for (int i = 0; i < calls || std::chrono::duration<double>(Clock::now() - begin).count() < 0.05; ++i) {
        const auto before = Clock::now();
        work();
        least = std::min(least, std::chrono::duration<double>(Clock::now() - before).count());
    }
    return least;
}

std::vector<Format> formats_of(size_t elements) {
    const auto repeat = [&](std::vector<int> bits) { // each of 8 entries for an eighth of the row
        std::vector<int> all;
        for (const int b : bits) all.insert(all.end(), elements / 64, b);
        return all;
    };
    const auto even = [&](int b) { return std::vector<int>(elements / 8, b); };
    return {{"f16", Layout::halves, even(0)},
            {"turbo2", Layout::chunks, even(2)},
            {"turbo3", Layout::chunks, even(3)},
            {"turbo4", Layout::chunks, even(4)},
            {"spectral2", Layout::chunks, repeat({5, 4, 3, 2, 1, 1, 0, 0})},
            {"spectral3", Layout::chunks, repeat({5, 5, 4, 3, 3, 2, 1, 1})},
            {"trellis2", Layout::trellis, even(2)},
            {"trellis3", Layout::trellis, even(3)}};
}

// Random rows: every code is a row of the format. Scales are from 1 to 2; halves are smaller than 2.
std::vector<uint8_t> random_rows(const Format& format, size_t count) {
    std::vector<uint8_t> rows(count * format.row_bytes() + padding);
    Gaussian random(seed);
    for (size_t at = 0; at + 8 <= rows.size(); at += 8) {
        uint64_t word = random.next_bits();
        if (format.layout == Layout::halves) word &= 0xBFFFBFFFBFFFBFFFU;
        std::memcpy(rows.data() + at, &word, sizeof word);
    }
    for (size_t r = 0; r < count; ++r) {
        uint8_t* scale = rows.data() + (r + 1) * format.row_bytes() - 2;
        scale[1] = static_cast<uint8_t>(0x3C | (scale[1] & 3)); // an exponent of 0
    }
    return rows;
}

std::vector<float> ordered_query(const std::vector<float>& q, Order order) {
    if (order == Order::elements) return q;
    std::vector<float> ordered(q.size());
    for (size_t i = 0; i < q.size(); ++i) { // unpacking takes 8 bytes of every 16 for its lower and its upper result
        const size_t place = i % group_elements;
        const size_t to = place % 16 / 8 * 32 + place / 16 * 8 + place % 8;
        ordered[i - place + to] = q[i];
    }
    return ordered;
}

// Whether `dots` are what the plain decoder gives, but for the rounding of sums.
bool matches(const Plan& plan, Rounding rounding, const std::vector<uint8_t>& rows, const std::vector<float>& q,
             const std::vector<float>& dots) {
    const size_t stride = plan.format.row_bytes();
    for (size_t r = 0; r < dots.size(); ++r) {
        const uint8_t* row = rows.data() + r * stride;
        const std::array<double, most_row_elements> values = plan.decode(row, rounding);
        const double scale = half_value(static_cast<uint16_t>(row[stride - 2] | row[stride - 1] << 8));
        double sum = 0, sizes = 0;
        for (size_t i = 0; i < q.size(); ++i) {
            sum += values[i] * q[i];
            sizes += std::fabs(values[i] * q[i]);
        }
        if (!(std::fabs(dots[r] - scale * sum) <= 1e-6 * scale * sizes)) return false;
    }
    return true;
}

// Checks all decoders of a format, and times them too unless `results` is NULL. Returns false if one of them is wrong.
bool run_decoders(const Format& format, const float* table, std::vector<DecodeTime>* results) {
    const auto plan = std::make_unique<Plan>(format, table);
    const size_t n = format.elements();
    const size_t streamed_rows = results ? streamed_bytes / format.row_bytes() : cached_rows;
    const std::vector<uint8_t> rows = random_rows(format, streamed_rows);
    Gaussian gaussian(seed);
    std::vector<float> q(n);
    for (float& x : q) x = gaussian.next();
    std::vector<float> out(streamed_rows);
    for (const Decoder& decoder : decoders_of(format)) {
        if (!runs_here(decoder.machine)) {
            std::printf("%s %s: not run, this machine lacks %s%s\n", format.name.c_str(), decoder.method,
                        name_of(decoder.machine), decoder.machine == Machine::avx512 ? " with VBMI" : "");
            continue;
        }
        const std::vector<float> ordered = ordered_query(q, decoder.order);
        const auto run = [&](size_t count) { decoder.dots(*plan, rows.data(), count, ordered.data(), out.data()); };
        run(cached_rows);
        const std::vector<float> dots(out.begin(), out.begin() + cached_rows);
        if (!matches(*plan, decoder.rounding, rows, q, dots)) {
            std::fprintf(stderr, "%s %s %s, rows of %zu: differs from the plain decoder\n", format.name.c_str(),
                         decoder.method, name_of(decoder.machine), n);
            return false;
        }
        if (!results) continue;
        DecodeTime result{format.name, decoder.method, name_of(decoder.machine), n};
        result.cached = 1e9 * fastest(200, [&] { run(cached_rows); }) / static_cast<double>(cached_rows * n);
        result.streamed = 1e9 * fastest(5, [&] { run(streamed_rows); }) / static_cast<double>(streamed_rows * n);
        results->push_back(result);
    }
    return true;
}

std::vector<PackTime> time_packing(const std::array<std::vector<float>, 2>& tables) {
    constexpr int64_t row_count = 200;
    std::vector<PackTime> results;
    for (const int n : {64, 128}) {
        Gaussian gaussian(seed);
        std::vector<float> rows(static_cast<size_t>(row_count * n));
        for (float& x : rows) x = gaussian.next();
        std::vector<float> decoded(rows.size());
        const auto add = [&](const std::string& code, const auto& pack) {
            int failed = 0;
            const double seconds = fastest(5, [&] { failed |= pack(); });
            if (failed != done) {
                std::fprintf(stderr, "%s, rows of %d: packing fails with %d\n", code.c_str(), n, failed);
                std::exit(1);
            }
            results.push_back({code, n, 1e6 * seconds / static_cast<double>(row_count)});
        };
        for (int b = 2; b <= 4; ++b) {
            const std::vector<int32_t> bits(static_cast<size_t>(n), b);
            const std::string of = std::to_string(b) + " bits";
            for (const int search : {0, 1}) {
                add("scalar, " + of + (search ? ", 9 scales tried" : ", 1 scale"), [&] {
                    return winnow_lab_scalar_code(rows.data(), decoded.data(), row_count, n, bits.data(), nullptr,
                                                  search);
                });
            }
            for (const int L : {8, 9}) {
                add("trellis, " + of + ", " + std::to_string(L) + " bits of state", [&] {
                    return winnow_lab_trellis_code(rows.data(), decoded.data(), row_count, n, bits.data(), nullptr,
                                                   tables[static_cast<size_t>(L - 8)].data(), L, 1);
                });
            }
        }
    }
    return results;
}

bool write_json(const char* path, const std::vector<DecodeTime>& results, const std::vector<PackTime>& packing) {
    FILE* file = std::fopen(path, "w");
    if (!file) return false;
    std::fprintf(file, "{\"decode\": [");
    for (size_t i = 0; i < results.size(); ++i) {
        const DecodeTime& r = results[i];
        std::fprintf(file,
                     "%s\n  {\"format\": \"%s\", \"method\": \"%s\", \"machine\": \"%s\", \"elements\": %zu, "
                     "\"cached_ns\": %.4f, \"streamed_ns\": %.4f}",
                     i ? "," : "", r.format.c_str(), r.method.c_str(), r.machine.c_str(), r.elements, r.cached,
                     r.streamed);
    }
    std::fprintf(file, "],\n \"pack\": [");
    for (size_t i = 0; i < packing.size(); ++i) {
        std::fprintf(file, "%s\n  {\"code\": \"%s\", \"elements\": %d, \"row_us\": %.3f}", i ? "," : "",
                     packing[i].code.c_str(), packing[i].elements, packing[i].microseconds);
    }
    std::fprintf(file, "]}\n");
    const bool wrote = !std::ferror(file);
    return std::fclose(file) == 0 && wrote;
}

} // namespace

int main(int argc, char** argv) {
    const bool check = argc == 2 && std::strcmp(argv[1], "--check") == 0;
    const bool json = argc == 3 && std::strcmp(argv[1], "--json") == 0;
    if (argc != 1 && !check && !json) {
        std::fprintf(stderr,
                     "usage: %s [--json FILE | --check]\n"
                     "--json FILE  also write the times to FILE\n"
                     "--check      only compare the decoders with the plain decoder\n",
                     argv[0]);
        return 2;
    }
    std::array<std::vector<float>, 2> tables; // for states of 8 and of 9 bits
    for (const int L : {8, 9}) {
        std::vector<float>& of = tables[static_cast<size_t>(L - 8)];
        of.resize(static_cast<size_t>(most_bits + 1) << L);
        for (int b = 2; b <= 4; ++b) {
            double mse = 0;
            winnow_lab_trellis_train(L, b, seed, of.data() + (static_cast<size_t>(b) << L), &mse);
        }
    }
    std::vector<DecodeTime> results;
    for (const size_t elements : {64, 128}) {
        for (const Format& format : formats_of(elements)) {
            const size_t table = static_cast<size_t>(format.bits[0]) << 8;
            if (!run_decoders(format, tables[0].data() + table, check ? nullptr : &results)) return 1;
        }
    }
    if (check) return 0;
    std::printf("Products of a query with packed rows, ns per element, one core; lower is better.\n"
                "cached: %zu rows; streamed: %zu MiB of rows, which a large cache of the processor may hold.\n"
                "%-10s %-11s %-8s %8s %8s %9s\n",
                cached_rows, streamed_bytes >> 20, "format", "method", "machine", "elements", "cached", "streamed");
    for (const DecodeTime& r : results) {
        std::printf("%-10s %-11s %-8s %8zu %8.3f %9.3f\n", r.format.c_str(), r.method.c_str(), r.machine.c_str(),
                    r.elements, r.cached, r.streamed);
    }
    const std::vector<PackTime> packing = time_packing(tables);
    std::printf("\nPacking, microseconds per row, one core; lower is better.\n%-36s %8s %9s\n", "code", "elements",
                "us");
    for (const PackTime& r : packing) {
        std::printf("%-36s %8d %9.2f\n", r.code.c_str(), r.elements, r.microseconds);
    }
    if (json && !write_json(argv[2], results, packing)) {
        std::fprintf(stderr, "%s: cannot be written\n", argv[2]);
        return 1;
    }
    return 0;
}
