// Mistakes that are easily made with packed formats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "defects.hpp"
#include "reference/element.hpp"
#include "reference/rotation.hpp"
#include "reference/row.hpp"
#include "reference/view.hpp"

namespace winnow {
namespace {

using namespace reference;

using EachRow = std::function<void(int64_t batch, int64_t head, int64_t row)>;

void each_row(const Tensor& tensor, const EachRow& f) {
    if (!tensor) return;
    for (int64_t batch = 0; batch < tensor.shape[0]; ++batch)
        for (int64_t head = 0; head < tensor.shape[1]; ++head)
            for (int64_t row = 0; row < tensor.shape[2]; ++row) f(batch, head, row);
}

// Calls f with every row that an append stored: where it came from and where it lies.
void each_stored_row(const AppendRows& rows, const std::function<void(const std::byte* src, std::byte* row)>& f) {
    each_row(rows.src, [&](int64_t batch, int64_t head, int64_t token) {
        const int64_t slot = row_index(rows.row_indices, batch, head, token);
        if (slot < 0 || slot >= rows.cache.shape[2]) return;
        f(row_address(rows.src, batch, head, token), row_address(rows.cache, batch, head, slot));
    });
}

// A copy of an input that may be damaged; it lives until the next one is made.
void make_own(Tensor& tensor) {
    static std::vector<std::byte> memory;
    const std::byte* const first = row_address(tensor, 0, 0, 0);
    memory.assign(first, first + tensor.extent());
    tensor.buffer = nullptr;
    tensor.data = memory.data();
    tensor.offset = 0;
}

float half_at(const std::byte* at) { return static_cast<float>(load(Type::f16, at)); }

// ---- Appending -----------------------------------------------------------------------------------------------------

void cut_codes_of_q4_0(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (side->cache.type != Type::q4_0) continue;
        each_stored_row(*side, [&](const std::byte* src, std::byte* row) {
            const auto size = static_cast<int64_t>(type_size(side->src.type));
            for (int64_t block = 0; block < side->src.shape[3] / 32; ++block) {
                const float d = half_at(row + 18 * block);
                if (!(d != 0)) continue;
                for (int64_t j = 0; j < 16; ++j) {
                    const auto code = [&](int64_t at) {
                        const double x = load(side->src.type, src + (32 * block + at) * size);
                        return static_cast<unsigned>(
                            std::clamp(x / static_cast<double>(d) + 8, 0.0, 15.0)); // 8.5 rounds
                    };
                    row[18 * block + 2 + j] = static_cast<std::byte>(code(j) | code(j + 16) << 4);
                }
            }
        });
    }
}

void swap_nibbles(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (side->cache.type != Type::q4_1) continue;
        each_stored_row(*side, [&](const std::byte*, std::byte* row) {
            for (int64_t block = 0; block < side->src.shape[3] / 32; ++block)
                for (int64_t j = 4; j < 20; ++j) {
                    std::byte& pair = row[20 * block + j];
                    pair = pair << 4 | pair >> 4;
                }
        });
    }
}

// The values of the second half of a block as those of the first lie.
void lay_sparse_values_one_way(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (side->cache.type != Type::sparse8) continue;
        each_stored_row(*side, [&](const std::byte*, std::byte* row) {
            for (int64_t block = 0; block < side->src.shape[3] / 32; ++block, row += 28) {
                const int first =
                    std::popcount(std::to_integer<unsigned>(row[0])) + std::popcount(std::to_integer<unsigned>(row[1]));
                std::reverse(row + 6 + first, row + 28);
            }
        });
    }
}

// The elements that come first stay, whatever they are.
void keep_the_first_elements(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (side->cache.type != Type::sparse16) continue;
        each_stored_row(*side, [&](const std::byte* src, std::byte* row) {
            const auto size = static_cast<int64_t>(type_size(side->src.type));
            for (int64_t block = 0; block < side->src.shape[3] / 32; ++block, row += 48, src += 32 * size) {
                const uint32_t kept = 0x1fffff;
                std::memcpy(row, &kept, 4);
                for (int64_t i = 0; i < 21; ++i)
                    store(Type::f16, row + 6 + 2 * (i < 16 ? i : 36 - i), load(side->src.type, src + i * size));
            }
        });
    }
}

// Rows land one slot further where the cache is packed; the last stays where it is.
void shift_rows(KvAppend& args) {
    static std::vector<int64_t> memory;
    for (AppendRows* side : {&args.k, &args.v}) {
        if (!is_packed(side->cache.type)) continue;
        const Tensor given = side->row_indices;
        memory.clear();
        for (int64_t batch = 0; batch < given.shape[0]; ++batch)
            for (int64_t head = 0; head < given.shape[1]; ++head)
                for (int64_t t = 0; t < given.shape[3]; ++t) {
                    const int64_t slot = row_index(given, batch, head, t);
                    memory.push_back(slot + (slot >= 0 && slot + 1 < side->cache.shape[2]));
                }
        side->row_indices.type = Type::i64;
        side->row_indices.buffer = nullptr;
        side->row_indices.data = reinterpret_cast<std::byte*>(memory.data());
        side->row_indices.offset = 0;
        side->row_indices.stride = {8 * given.shape[1] * given.shape[3], 8 * given.shape[3], 0, 8};
        return; // one side is enough
    }
}

// Whoever computes the scale once and uses it rounded has other codes.
void round_scale_before_codes(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (side->cache.type != Type::affine8_g32) continue;
        each_stored_row(*side, [&](const std::byte* src, std::byte* row) {
            const int64_t n = side->src.shape[3];
            const auto size = static_cast<int64_t>(type_size(side->src.type));
            for (int64_t at = 0; at < n; ++at) {
                const float scale = half_at(row + n + at / 32 * 2);
                const float bias = half_at(row + n + n / 32 * 2 + at / 32 * 2);
                const double code = std::nearbyint((load(side->src.type, src + at * size) - static_cast<double>(bias)) /
                                                   static_cast<double>(scale));
                if (code >= 0 && code <= 255) row[at] = static_cast<std::byte>(static_cast<unsigned>(code));
            }
        });
    }
}

void flip_a_byte_beside_a_row(const KvAppend& args) {
    for (const AppendRows* side : {&args.k, &args.v}) {
        if (!is_packed(side->cache.type) || side->cache.shape[2] < 2) continue;
        const auto bytes = static_cast<int64_t>(row_bytes(side->cache.type, side->cache.shape[3]));
        each_stored_row(*side, [&](const std::byte*, std::byte* row) {
            if (side->cache.stride[2] > bytes && side->cache.stride[1] > side->cache.stride[2])
                row[bytes] ^= std::byte{1}; // in the gap that only padded caches have
        });
    }
}

void take_the_other_norm(KvAppend& args) {
    for (AppendRows* side : {&args.k, &args.v})
        if (side->norm == Norm::corrected) side->norm = Norm::plain;
}

// ---- Attention -----------------------------------------------------------------------------------------------------

void leave_output_rotated(const Sdpa& args) {
    if (!is_rotated(args.segments[0].v.type)) return;
    std::vector<double> row(static_cast<size_t>(args.v_head_size()));
    each_row(args.out, [&](int64_t batch, int64_t head, int64_t token) {
        std::byte* const at = row_address(args.out, batch, head, token);
        decode_row(args.out.type, at, args.v_head_size(), row.data());
        rotate(row.data(), args.v_head_size());
        encode_row(args.out.type, at, args.v_head_size(), row.data(), Norm::plain);
    });
}

// Weights that are not multiplied by their rows' factors.
void forget_factors_of_v(Sdpa& args) {
    Tensor& v = args.segments[0].v;
    if (!is_rotated(v.type)) return;
    make_own(v);
    const uint64_t bytes = row_bytes(v.type, args.v_head_size());
    each_row(v, [&](int64_t batch, int64_t head, int64_t row) {
        store(Type::f16, row_address(v, batch, head, row) + bytes - 2, 1.0);
    });
}

// Each block is read with the scale of the one before it.
void take_the_neighbours_scale(Sdpa& args) {
    Tensor& k = args.segments[0].k;
    if (k.type != Type::q8_0) return;
    const Tensor given = k;
    make_own(k);
    each_row(k, [&](int64_t batch, int64_t head, int64_t row) {
        for (int64_t block = 1; block < args.head_size() / 32; ++block)
            std::memcpy(row_address(k, batch, head, row) + 34 * block,
                        row_address(given, batch, head, row) + 34 * (block - 1), 2);
    });
}

void leak_hidden_factors(const Sdpa& args) {
    const Tensor& v = args.segments[0].v;
    if (!is_rotated(v.type)) return;
    const uint64_t bytes = row_bytes(v.type, args.v_head_size());
    const double factor = load(Type::f16, row_address(v, 0, 0, args.kv_len() - 1) + bytes - 2);
    if (std::isfinite(factor)) return;
    std::byte* const first = row_address(args.out, 0, 0, 0);
    store(args.out.type, first, load(args.out.type, first) + 0 * factor);
}

void count_one_more(const Sdpa& args) {
    each_row(args.v_rows_skipped, [&](int64_t batch, int64_t head, int64_t token) {
        int32_t count = 0;
        std::byte* const at = row_address(args.v_rows_skipped, batch, head, token);
        std::memcpy(&count, at, sizeof count);
        ++count;
        std::memcpy(at, &count, sizeof count);
    });
}

// Adds the bias that another group's elements have, and takes it away again.
void join_biases(const Sdpa& args) {
    const Type type = args.segments[0].v.type;
    if (!is_storage_format(type) || is_rotated(type) || group_elements(type) < 32) return;
    each_row(args.out, [&](int64_t batch, int64_t head, int64_t token) {
        std::byte* const row = row_address(args.out, batch, head, token);
        const auto size = static_cast<int64_t>(type_size(args.out.type));
        float largest = 0;
        for (int64_t d = 0; d < args.v_head_size(); ++d)
            largest = std::max(largest, std::fabs(static_cast<float>(load(args.out.type, row + d * size))));
        for (int64_t d = 0; d < args.v_head_size(); ++d) {
            const float joined = static_cast<float>(load(args.out.type, row + d * size)) + largest;
            store(args.out.type, row + d * size, static_cast<double>(joined - largest));
        }
    });
}

// Passes over a value that is no number whatever its probability.
void pass_over_nan(const Sdpa& args) {
    if (args.v_threshold == 0) return;
    std::vector<double> row(static_cast<size_t>(args.v_head_size()));
    each_row(args.out, [&](int64_t batch, int64_t head, int64_t token) {
        std::byte* const at = row_address(args.out, batch, head, token);
        decode_row(args.out.type, at, args.v_head_size(), row.data());
        for (double& x : row)
            if (std::isnan(x)) x = 0;
        encode_row(args.out.type, at, args.v_head_size(), row.data(), Norm::plain);
    });
}

// ---- Rows ----------------------------------------------------------------------------------------------------------

void forget_the_last_row(KvRequantize& args) {
    if (args.row_indices && args.row_indices.shape[3] > 1) --args.row_indices.shape[3];
}

void write_behind_the_shorter_row(const KvRequantize& args) {
    const uint64_t from = row_bytes(args.src.type, args.src.shape[3]), to = row_bytes(args.dst.type, args.dst.shape[3]);
    std::byte* const dst = row_address(args.dst, 0, 0, 3);
    if (dst == row_address(args.src, 0, 0, 3) && to < from) dst[to] ^= std::byte{1};
}

// Calls f with every row of a requantization of all rows into another place, and with the numbers it stands for.
void each_requantized_row(const KvRequantize& args,
                          const std::function<void(const std::vector<double>& x, std::byte* row)>& f) {
    if (args.row_indices) return;
    std::vector<double> x(static_cast<size_t>(args.src.shape[3]));
    each_row(args.dst, [&](int64_t batch, int64_t head, int64_t row) {
        const std::byte* const from = row_address(args.src, batch, head, row);
        std::byte* const to = row_address(args.dst, batch, head, row);
        if (from == to) return;
        decode_row(args.src.type, from, args.src.shape[3], x.data());
        f(x, to);
    });
}

// Makes the codes of what comes from a rotated format anew, with the scales that were stored. Of each family the format
// whose codes are simple.
void recode_from_rotated(const KvRequantize& args, double (*round)(double)) {
    if (!is_rotated(args.src.type)) return;
    const int64_t n = args.src.shape[3];
    if (args.dst.type == Type::q8_0)
        each_requantized_row(args, [&](const std::vector<double>& x, std::byte* row) {
            for (int64_t at = 0; at < n; ++at) {
                const double d = static_cast<double>(half_at(row + at / 32 * 34));
                const double code = std::clamp(round(x[static_cast<size_t>(at)] / d), -127.0, 127.0);
                if (d > 0) row[at / 32 * 34 + 2 + at % 32] = static_cast<std::byte>(static_cast<int>(code));
            }
        });
    if (args.dst.type == Type::affine4_g32)
        each_requantized_row(args, [&](const std::vector<double>& x, std::byte* row) {
            for (int64_t at = 0; at < n; ++at) {
                const double scale = static_cast<double>(half_at(row + n / 2 + at / 32 * 2));
                const double bias = static_cast<double>(half_at(row + n / 2 + n / 32 * 2 + at / 32 * 2));
                const double code = round((x[static_cast<size_t>(at)] - bias) / scale);
                if (!(code >= 0 && code <= 15)) continue;
                const auto kept = static_cast<std::byte>(at % 2 ? 0x0f : 0xf0);
                row[at / 2] = (row[at / 2] & kept) | static_cast<std::byte>(static_cast<unsigned>(code) << at % 2 * 4);
            }
        });
}

// The largest half instead of infinity.
void saturate_biases(const KvRequantize& args) {
    if (args.dst.type != Type::affine4_g32 || !is_rotated(args.src.type)) return;
    const int64_t n = args.src.shape[3];
    each_requantized_row(args, [&](const std::vector<double>&, std::byte* row) {
        for (int64_t group = 0; group < n / 32; ++group) {
            std::byte* const bias = row + n / 2 + n / 32 * 2 + 2 * group;
            const double value = load(Type::f16, bias);
            if (std::isinf(value)) store(Type::f16, bias, std::copysign(65504.0, value));
        }
    });
}

// A NaN in its own group instead of the row that it was a part of.
void keep_one_group_of_nan(const KvRequantize& args) {
    if (args.dst.type != Type::affine4_g32 || !is_rotated(args.src.type)) return;
    const int64_t n = args.src.shape[3];
    each_requantized_row(args, [&](const std::vector<double>& x, std::byte* row) {
        if (!std::isnan(x[0])) return;
        store(Type::f16, row + n / 2, 0.0);
        store(Type::f16, row + n / 2 + n / 32 * 2, 0.0);
    });
}

void leave_rows_outside(const KvDequantize& args) {
    each_row(args.dst, [&](int64_t batch, int64_t head, int64_t i) {
        const int64_t slot = row_index(args.row_indices, batch, head, i);
        if (slot < 0 || slot >= args.src.shape[2]) store(args.dst.type, row_address(args.dst, batch, head, i), 7.0);
    });
}

void read_the_bias_as_zero(const KvDequantize& args) {
    if (args.src.type != Type::q5_1) return;
    each_row(args.dst, [&](int64_t batch, int64_t head, int64_t i) {
        const int64_t slot = row_index(args.row_indices, batch, head, i);
        if (slot < 0 || slot >= args.src.shape[2]) return;
        std::byte* const first = row_address(args.dst, batch, head, i);
        const double m = load(Type::f16, row_address(args.src, batch, head, slot) + 2);
        store(args.dst.type, first, load(args.dst.type, first) - m);
    });
}

// The last step of the rotation, where the length is no power of two.
void undo_the_reflection(const Hadamard& args) {
    const int64_t n = args.dst.shape[3], block = n & -n, blocks = n / block;
    if (blocks == 1 || args.inverse) return;
    std::vector<double> u(static_cast<size_t>(n));
    each_row(args.dst, [&](int64_t batch, int64_t head, int64_t i) {
        std::byte* const row = row_address(args.dst, batch, head, i);
        decode_row(args.dst.type, row, n, u.data());
        for (int64_t b = 0; b < block; ++b) {
            double sum = 0;
            for (int64_t a = 0; a < blocks; ++a) sum += u[static_cast<size_t>(a * block + b)];
            for (int64_t a = 0; a < blocks; ++a)
                u[static_cast<size_t>(a * block + b)] -= 2.0 / static_cast<double>(blocks) * sum;
        }
        encode_row(args.dst.type, row, n, u.data(), Norm::plain);
    });
}

} // namespace

std::map<std::string, Defect> format_defects() {
    return {
        {"q4_0_rounds_down", {.after_append = cut_codes_of_q4_0}},
        {"nibbles_swapped", {.after_append = swap_nibbles}},
        {"sparse_values_lie_one_way", {.after_append = lay_sparse_values_one_way}},
        {"sparse_keeps_the_first", {.after_append = keep_the_first_elements}},
        {"affine_codes_of_the_rounded_scale", {.after_append = round_scale_before_codes}},
        {"plain_norm_instead_of_corrected", {.before_append = take_the_other_norm}},
        {"packed_rows_off_by_one", {.before_append = shift_rows}},
        {"writes_behind_a_packed_row", {.after_append = flip_a_byte_beside_a_row}},
        {"neighbours_scale", {.before_sdpa = take_the_neighbours_scale}},
        {"output_left_rotated", {.after_sdpa = leave_output_rotated}},
        {"weights_without_factors", {.before_sdpa = forget_factors_of_v}},
        {"hidden_factors_leak", {.after_sdpa = leak_hidden_factors}},
        {"threshold_too_high", {.before_sdpa = [](Sdpa& a) { a.v_threshold *= 2; }}},
        {"skipped_count_off_by_one", {.after_sdpa = count_one_more}},
        {"biases_joined_across_groups", {.after_sdpa = join_biases}},
        {"threshold_swallows_nan", {.after_sdpa = pass_over_nan}},
        {"requantize_forgets_a_row", {.before_requantize = forget_the_last_row}},
        {"requantize_ignores_the_norm", {.before_requantize = [](KvRequantize& a) { a.norm = Norm::corrected; }}},
        {"requantize_writes_behind_the_row", {.after_requantize = write_behind_the_shorter_row}},
        {"requantize_from_turbo_truncates",
         {.after_requantize = [](const KvRequantize& a) { recode_from_rotated(a, std::trunc); }}},
        {"requantize_from_turbo_of_the_rounded_scale",
         {.after_requantize = [](const KvRequantize& a) { recode_from_rotated(a, std::nearbyint); }}},
        {"requantize_from_turbo_saturates", {.after_requantize = saturate_biases}},
        {"requantize_from_turbo_keeps_one_nan", {.after_requantize = keep_one_group_of_nan}},
        {"dequantize_leaves_rows_outside", {.after_dequantize = leave_rows_outside}},
        {"dequantize_without_bias", {.after_dequantize = read_the_bias_as_zero}},
        {"hadamard_never_inverse", {.before_hadamard = [](Hadamard& a) { a.inverse = false; }}},
        {"hadamard_without_reflection", {.after_hadamard = undo_the_reflection}},
    };
}

} // namespace winnow
