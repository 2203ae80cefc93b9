// The choice among the attention kernels.
#include "opencl/sdpa.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "opencl/launchers.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/sdpa_fused.hpp"

namespace winnow::opencl {
namespace {

// How many segments are what products of small matrices take (kernels/tensor_formats.h, sdpa_group_segment.h).
uint32_t count_multiplied(const SdpaKernel& kernel) {
    const auto takes = [](Type type) {
        return type == Type::f16 || type == Type::q8_0 || type == Type::q4_0 || type == Type::turbo4 ||
               type == Type::turbo3 || type == Type::turbo2;
    };
    if (kernel.head_size % 32 != 0 || kernel.head_size > 128 || kernel.v_head_size % 64 != 0 ||
        kernel.v_head_size > 128)
        return 0;
    return static_cast<uint32_t>(
        std::count_if(kernel.formats.begin(), kernel.formats.begin() + kernel.segments,
                      [&](const SdpaKernel::Formats& one) { return takes(one.k) && takes(one.v); }));
}

// Whether a prompt gains by blocks of rows in groups of many work-items over blocks of 8 rows: where a group has more
// rows than that, and no tensor cores take all keys, which they do in blocks of 8.
bool gains_by_blocks(const Variant& row, const Sdpa& args, const SdpaKernel& kernel, const Capabilities& device,
                     const VariantOptions& forced) {
    if (forced.subgroup != 0 || forced.tensor == "emulated" || row.rows_of_group(args, device) <= 8) return false;
    const bool multiplies =
        forced.shape.empty() && device.subgroup_sizes != 0 && choose_subgroups(device, forced).multiplies;
    return !multiplies || args.v_threshold != 0 || count_multiplied(kernel) < kernel.segments;
}

} // namespace

SdpaKernel SdpaLauncher::choose(const Sdpa& args) const {
    const bool can_combine = runtime_.capabilities().single_launch;
    if (options_.launches == 1 && !can_combine) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "launches=1 is forced, but the device has no device-scope acquire/release atomics");
    }
    const bool single_launch = can_combine && options_.launches != 2;
    check_sdpa(args);
    const std::pair<const Tensor*, const char*> tensors[] = {{&args.q, "sdpa: q"},
                                                             {&args.out, "sdpa: out"},
                                                             {&args.mask, "sdpa: attn_mask"},
                                                             {&args.mask_slopes, "sdpa: mask_slopes"},
                                                             {&args.alibi_slopes, "sdpa: alibi_slopes"},
                                                             {&args.head_sink, "sdpa: head_sink"},
                                                             {&args.scores_out, "sdpa: scores_out"},
                                                             {&args.row_stats, "sdpa: row_stats"},
                                                             {&args.kv_lengths, "sdpa: kv_lengths"},
                                                             {&args.q_offsets, "sdpa: q_offsets"},
                                                             {&args.v_rows_skipped, "sdpa: v_rows_skipped"}};
    for (const auto& [tensor, name] : tensors) runtime_.check_extent(*tensor, name);
    for (const Segment& segment : args.segments) {
        runtime_.check_extent(segment.k, "sdpa: k");
        runtime_.check_extent(segment.v, "sdpa: v");
        runtime_.check_extent(segment.tokens, "sdpa: slot_positions");
    }
    SdpaKernel kernel;
    kernel.single_launch = single_launch;
    kernel.slots = static_cast<bool>(args.segments.front().tokens);
    kernel.lengths = args.kv_lengths || args.q_offsets;
    for (const Segment& segment : args.segments) kernel.formats[kernel.segments++] = {segment.k.type, segment.v.type};
    kernel.head_size = static_cast<uint32_t>(args.head_size());
    kernel.v_head_size = static_cast<uint32_t>(args.v_head_size());
    const auto takes = [&](const Variant& row) {
        const bool is_of_prompts = row.fewest_rows > 1;
        return !is_of_prompts || gains_by_blocks(row, args, kernel, runtime_.capabilities(), options_);
    };
    const Variant& variant = choose_variant("sdpa", runtime_.capabilities(), options_, args.q_len(),
                                            args.group() * args.q_len(), std::cref(takes)); // copied, it takes memory
    kernel.variant = &variant;
    kernel.rows = variant.rows_of_group(args, runtime_.capabilities());
    if (kernel.rows == 0)
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    std::string(variant.entry_point) + " of the shape " + std::string(variant.shape) +
                        " needs more local memory for head sizes " + std::to_string(kernel.head_size) + " and " +
                        std::to_string(kernel.v_head_size) + " than the device has, " +
                        std::to_string(runtime_.capabilities().local_memory_size) + " bytes");
    if (variant.shape == "subgroup")
        kernel.subgroups = choose_subgroups(runtime_.capabilities(), options_);
    else if (options_.subgroup != 0 || options_.tensor == "emulated")
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "the keys subgroup and tensor are for kernels of the shape subgroup; this kernel has the shape " +
                        std::string(variant.shape));
    kernel.subgroups.multiplies = kernel.subgroups.multiplies && count_multiplied(kernel) > 0;
    return kernel;
}

std::string SdpaLauncher::validate(const Sdpa& args) const { return choose(args).name(); }

std::unique_ptr<Event> SdpaLauncher::launch(const Sdpa& args, bool want_event) {
    SdpaKernel kernel = choose(args);
    RuntimeState& state = runtime_.state();
    if (!state.deferred.can_ride(args, kernel))
        return launch_sdpa(runtime_, programs_, kernel, args, options_, want_event);
    kernel.append = true;
    return state.deferred.launched(state, [&] {
        return launch_sdpa(runtime_, programs_, kernel, args, options_, want_event,
                           {.deferred = &state.deferred, .appends_token = true});
    });
}

namespace {

// Appends the token where the attention cannot.
SdpaFused begin_fused(Runtime& runtime, SegmentKernel& slot_append, const SlotAttend& args) {
    SdpaFused fused{.args = &args};
    fused.appends_token = args.append && can_append_token(*args.append, args.attention.segments.front());
    if (args.append && !fused.appends_token) opencl::launch(runtime, slot_append, *args.append);
    return fused;
}

} // namespace

std::optional<SdpaKernel> SdpaLauncher::fused_kernel(const SlotAttend& args) const {
    SdpaKernel kernel = choose(args.attention);
    if (!can_be_fused(kernel, args.attention)) return std::nullopt;
    kernel.is_fused = true;
    kernel.statistic = args.importance.statistic;
    return kernel;
}

bool SdpaLauncher::attend(const SlotAttend& args, SegmentKernel& slot_append) {
    const std::optional<SdpaKernel> kernel = fused_kernel(args);
    if (!kernel) return false;
    const SdpaFused fused = begin_fused(runtime_, slot_append, args);
    launch_sdpa(runtime_, programs_, *kernel, args.attention, options_, false, fused);
    return true;
}

void SdpaLauncher::attend(std::span<const SlotAttend> all, SegmentKernel& slot_append,
                          const std::function<void(const SlotAttend&)>& alone) {
    if (!runtime_.capabilities().has_hosts_addresses) {
        for (const SlotAttend& args : all) alone(args);
        return;
    }
    struct Group {
        SdpaKernel kernel;
        std::vector<SdpaFused> together;
    };
    std::vector<Group> groups;
    for (const SlotAttend& args : all) {
        const std::optional<SdpaKernel> kernel = fused_kernel(args);
        if (!kernel) {
            alone(args);
            continue;
        }
        auto its =
            std::find_if(groups.begin(), groups.end(), [&](const Group& each) { return each.kernel == *kernel; });
        if (its == groups.end()) its = groups.insert(its, {*kernel, {}});
        its->together.push_back({.args = &args});
    }
    for (Group& group : groups) {
        if (group.together.size() == 1 || !can_launch_together(runtime_, group.kernel, group.together)) {
            for (const SdpaFused& each : group.together) alone(*each.args);
            continue;
        }
        launch_together(runtime_, programs_, group.kernel, group.together, options_,
                        [&](SdpaFused& each) { each = begin_fused(runtime_, slot_append, *each.args); });
    }
}

} // namespace winnow::opencl
