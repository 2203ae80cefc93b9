// The specialisations of the attention kernels and their work-groups.
#include "opencl/sdpa_kernel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "opencl/kv_rows.hpp"
#include "opencl/slot_accumulate.hpp"

namespace winnow::opencl {
namespace {

constexpr uint32_t key_granularity = 64; // splits begin at multiples, so that only the last tile of all is cut short

uint32_t ceil_divide(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// How many splits finish soonest when the groups run in rounds of compute_units.
uint32_t choose_splits(uint64_t work_tiles, uint64_t tile_work, uint32_t most, uint32_t compute_units,
                       uint64_t group_overhead) {
    uint64_t best_cost = std::numeric_limits<uint64_t>::max();
    uint32_t best = 1;
    for (uint32_t splits = 1; splits <= std::min(most, 4 * compute_units); ++splits) {
        const uint64_t rounds = (work_tiles * splits + compute_units - 1) / compute_units;
        const uint64_t cost = rounds * (tile_work / splits + (splits > 1 ? 2 : 1) * group_overhead);
        if (cost < best_cost) {
            best_cost = cost;
            best = splits;
        }
    }
    // Where overhead does not matter, more and smaller splits even out what else the machine does.
    while (work_tiles * best < 8ull * compute_units && best * 2 <= most && tile_work / best > 64 * group_overhead)
        best *= 2;
    return best;
}

// As many splits as give every compute unit so many groups of many work-items, so that some wait for memory while
// others compute.
uint32_t fill_units(uint64_t work_tiles, uint32_t most, uint32_t compute_units, uint64_t groups_of_unit) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(groups_of_unit * compute_units / work_tiles, 1, most));
}

// What was tuned was measured on the kernel of few rows, and says nothing of that of prompts.
uint32_t groups_of_unit(const Variant& variant, const VariantOptions& forced, const Tuning& tuning) {
    if (forced.tuning.groups) return *forced.tuning.groups;
    const bool is_of_prompts = variant.fewest_rows > 1;
    return tuning.groups != 0 && !is_of_prompts ? tuning.groups : variant.groups_of_unit;
}

bool is_hidden(const Tensor& mask, int64_t column) {
    const std::byte* at = mask.data + mask.offset + column * mask.stride[3];
    if (mask.type == Type::boolean) return *at == std::byte{0};
    if (mask.type == Type::f32) {
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        return value == -std::numeric_limits<float>::infinity();
    }
    uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return bits == (mask.type == Type::f16 ? 0xfc00 : 0xff80);
}

} // namespace

std::string SdpaKernel::name() const {
    std::string name;
    name += variant->entry_point;
    const auto is_quantized = [](const Formats& one) { return is_packed(one.k) || is_packed(one.v); };
    if (std::any_of(formats.begin(), formats.begin() + segments, is_quantized)) name += "_quantized";
    name.append("_").append(variant->shape);
    if (subgroups.multiplies) name += "_tensor";
    if (slots) name += "_slots";
    for (uint32_t i = 0; i < segments; ++i)
        name.append("_").append(format_name(formats[i].k)).append("_").append(format_name(formats[i].v));
    name += "_d" + std::to_string(head_size);
    if (v_head_size != head_size) name += 'v' + std::to_string(v_head_size);
    name += "_r" + std::to_string(rows);
    if (lengths) name += "_lengths";
    if (has_entries) name += "_entries";
    if (!single_launch) name += "_two_launches";
    return name;
}

std::string SdpaKernel::options() const {
    std::string options = "-DSEGMENTS=" + std::to_string(segments) + (slots ? " -DSLOTS=1" : " -DSLOTS=0");
    options += is_fused ? " -DSTEP=1" : " -DSTEP=0";
    if (is_fused) options.append(" ").append(statistic_option(statistic));
    options += append ? " -DAPPEND=1" : " -DAPPEND=0";
    if (lengths) options += " -DLENGTHS=1";
    if (has_entries) options += " -DENTRIES=1";
    if (is_table) options += " -DPARAMS_IN_MEMORY";
    std::vector<Type> used;
    for (uint32_t i = 0; i < segments; ++i) {
        options += " -DK_FORMAT_" + std::to_string(i) + "=" + format_name(formats[i].k);
        options += " -DV_FORMAT_" + std::to_string(i) + "=" + format_name(formats[i].v);
        used.insert(used.end(), {formats[i].k, formats[i].v});
    }
    options.append(" ").append(uses_options(std::move(used)));
    options += "-DHEAD_SIZE=" + std::to_string(head_size);
    options += " -DV_HEAD_SIZE=" + std::to_string(v_head_size);
    options += " -DROWS=" + std::to_string(rows);
    options += single_launch ? " -DSINGLE_LAUNCH=1" : " -DSINGLE_LAUNCH=0";
    if (variant->group_size > 1) options += " -DGROUP_SIZE=" + std::to_string(variant->group_size);
    if (subgroups.size != 0) options += " -DSUBGROUP_SIZE=" + std::to_string(subgroups.size);
    if (subgroups.size != 0 && subgroups.takes_ptx) options += " -DSUBGROUP_PTX";
    if (subgroups.multiplies) options += " -DTENSOR_CORES=1";
    return options;
}

int64_t next_first_key(int64_t first_key, const Segment& segment) {
    return first_key + ceil_divide(static_cast<uint64_t>(segment.slots()), key_granularity) * key_granularity;
}

int64_t end_of_seen(const Tensor& mask, int64_t keys) {
    constexpr int64_t most_read = 512;
    if (mask.shape != std::array<int64_t, 4>{1, 1, 1, keys}) return keys;
    const int64_t least = std::max<int64_t>(keys - most_read, 1);
    int64_t end = keys;
    while (end > least && is_hidden(mask, end - 1)) --end;
    return end;
}

SdpaDivision divide(const Sdpa& args, const SdpaKernel& kernel, uint32_t compute_units, const VariantOptions& forced,
                    const Tuning& tuning, int64_t seen_end) {
    SdpaDivision division;
    int64_t kv_len = 0, next = 0;
    for (const Segment& segment : args.segments) {
        if (segment.shares_slots) continue;
        kv_len = next + segment.slots();
        next = next_first_key(next, segment);
    }
    int64_t begin = 0;
    int64_t end = kv_len;
    if (args.scores_mode == Scores::none && !kernel.slots) {
        end = std::min(end, seen_end);
        if (!args.q_offsets) {
            const int64_t last = args.q_offset + args.q_len() - 1;
            if (args.window_left != 0) begin = args.q_offset - args.window_left + 1;
            if (args.is_causal) end = std::min(end, last + 1);
            if (args.window_right != 0) end = std::min(end, last + args.window_right + 1);
        }
        begin = std::clamp<int64_t>(begin, 0, kv_len);
        end = std::clamp<int64_t>(end, begin, kv_len);
    }
    division.key_begin = static_cast<uint32_t>(begin);
    division.key_end = static_cast<uint32_t>(end);

    const uint64_t rows = static_cast<uint64_t>(args.group() * args.q_len());
    const uint64_t keys = static_cast<uint64_t>(end - begin);
    division.row_blocks = ceil_divide(rows, kernel.rows);
    division.work_tiles = static_cast<uint64_t>(args.batch() * args.kv_heads()) * division.row_blocks;
    const uint64_t tile_work = keys * std::min<uint64_t>(rows, kernel.rows) * (kernel.head_size + kernel.v_head_size);
    division.work = division.work_tiles * tile_work;

    const uint32_t most = std::max<uint32_t>(1, ceil_divide(keys, key_granularity));
    uint32_t splits = 1;
    if (division.work_tiles <= SDPA_MAX_TILES_SPLIT) {
        if (forced.splits != 0)
            splits = std::min(forced.splits, most);
        else if (kernel.variant->group_size > 1)
            splits =
                fill_units(division.work_tiles, most, compute_units, groups_of_unit(*kernel.variant, forced, tuning));
        else
            splits = choose_splits(division.work_tiles, tile_work, most, compute_units, tuning.group_overhead);
    }
    division.split_keys = ceil_divide(ceil_divide(keys, splits), key_granularity) * key_granularity;
    if (division.split_keys == 0) division.split_keys = key_granularity;
    division.splits = std::max<uint32_t>(1, ceil_divide(keys, division.split_keys));
    return division;
}

size_t SdpaPrograms::Hash::operator()(const SdpaKernel& kernel) const noexcept {
    uint64_t bits =
        kernel.head_size | static_cast<uint64_t>(kernel.v_head_size) << 12 | static_cast<uint64_t>(kernel.rows) << 24;
    bits |= static_cast<uint64_t>(kernel.lengths) << 55 | static_cast<uint64_t>(kernel.single_launch) << 56 |
            static_cast<uint64_t>(kernel.slots) << 57 | static_cast<uint64_t>(kernel.is_fused) << 58 |
            static_cast<uint64_t>(kernel.append) << 59 | static_cast<uint64_t>(kernel.statistic) << 60 |
            static_cast<uint64_t>(kernel.is_table) << 63;
    uint64_t formats = 0;
    for (const SdpaKernel::Formats& one : kernel.formats) {
        formats = formats << 16 | static_cast<uint64_t>(one.k) << 8 | static_cast<uint64_t>(one.v);
    }
    return std::hash<uint64_t>()(bits) ^ std::hash<uint64_t>()(formats) * 31 ^
           std::hash<const Variant*>()(kernel.variant);
}

const SdpaPrograms::Pair& SdpaPrograms::find(Runtime& runtime, const SdpaKernel& kernel) {
    const auto known = pairs_.find(kernel);
    if (known != pairs_.end()) return known->second;
    const Variant& variant = *kernel.variant;
    const std::string options = kernel.options();
    Pair pair;
    pair.attend = &runtime.kernel(variant.file, variant.entry_point, options);
    if (!kernel.single_launch) pair.combine = &runtime.kernel(variant.file, "sdpa_combine", options);
    return pairs_.emplace(kernel, pair).first->second;
}

} // namespace winnow::opencl
