// The choice among the attention kernels.
#include "opencl/sdpa.hpp"

#include <utility>

namespace winnow::opencl {

SdpaKernel SdpaLauncher::choose(const Sdpa& args) const {
    const bool can_combine = runtime_.capabilities().single_launch;
    if (options_.launches == 1 && !can_combine) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "launches=1 is forced, but the device has no device-scope acquire/release atomics");
    }
    const bool single_launch = can_combine && options_.launches != 2;
    check_sdpa(args);
    const std::pair<const Tensor*, const char*> tensors[] = {{&args.q, "sdpa: q"},
                                                             {&args.k, "sdpa: k"},
                                                             {&args.v, "sdpa: v"},
                                                             {&args.out, "sdpa: out"},
                                                             {&args.mask, "sdpa: attn_mask"},
                                                             {&args.mask_slopes, "sdpa: mask_slopes"},
                                                             {&args.alibi_slopes, "sdpa: alibi_slopes"},
                                                             {&args.head_sink, "sdpa: head_sink"},
                                                             {&args.scores_out, "sdpa: scores_out"},
                                                             {&args.row_stats, "sdpa: row_stats"},
                                                             {&args.v_rows_skipped, "sdpa: v_rows_skipped"}};
    for (const auto& [tensor, name] : tensors) runtime_.check_extent(*tensor, name);
    const Variant& variant =
        choose_variant("sdpa", runtime_.capabilities(), options_.kernel, args.q_len(), args.group() * args.q_len());
    SdpaKernel kernel;
    kernel.variant = &variant;
    kernel.single_launch = single_launch;
    kernel.k = args.k.type;
    kernel.v = args.v.type;
    kernel.head_size = static_cast<uint32_t>(args.head_size());
    kernel.v_head_size = static_cast<uint32_t>(args.v_head_size());
    kernel.rows = variant.rows_of_group(args);
    return kernel;
}

std::string SdpaLauncher::validate(const Sdpa& args) const { return choose(args).name(); }

std::unique_ptr<Event> SdpaLauncher::launch(const Sdpa& args, bool want_event) {
    return launch_sdpa(runtime_, programs_, choose(args), args, options_, want_event);
}

} // namespace winnow::opencl
