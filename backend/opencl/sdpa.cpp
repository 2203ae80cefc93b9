// The choice between sdpa_vector and sdpa_prefill.
#include "opencl/sdpa.hpp"

#include "opencl/sdpa_prefill.hpp"
#include "opencl/sdpa_vector.hpp"

namespace winnow::opencl {

SdpaKernel SdpaLauncher::choose(const Sdpa& args) const {
    const bool can_combine = runtime_.capabilities().single_launch;
    if (options_.launches == 1 && !can_combine) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "launches=1 is forced, but the device has no device-scope acquire/release atomics");
    }
    const bool single_launch = can_combine && options_.launches != 2;
    const bool is_vector = options_.kernel.empty() ? prefers_sdpa_vector(args) : options_.kernel == "vector";
    return is_vector ? choose_sdpa_vector(args, single_launch) : choose_sdpa_prefill(args, single_launch);
}

std::string SdpaLauncher::validate(const Sdpa& args) const { return choose(args).name(); }

std::unique_ptr<Event> SdpaLauncher::launch(const Sdpa& args, bool want_event) {
    return launch_sdpa(runtime_, programs_, choose(args), args, options_, want_event);
}

} // namespace winnow::opencl
