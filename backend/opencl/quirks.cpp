// The table, and how it is read.
#include "opencl/quirks.hpp"

#include <algorithm>
#include <array>

namespace winnow::opencl {
namespace {

// Who adds a row names the report, or the driver and how the fault showed itself: nobody can ask for it again later.
constexpr std::array<KnownQuirk, 5> table{{
    // Needs no such kernels: its devices are processors, on which work-items are a loop.
    {pocl_platform, Quirk::no_barriers,
     "its compiler takes minutes for kernels of many work-items with barriers, or crashes in LLVM's InstCombine, and "
     "without optimization their results are wrong",
     "seen with 3.1+debian; others saw what barriers do with 3 to 6: https://github.com/pocl/pocl/issues/1390, "
     "https://github.com/pocl/pocl/issues/1990"},
    {pocl_platform, Quirk::warm_up,
     "where a grid is wider than all before it, and another thread runs the same kernel, two entries of its table of "
     "kernels are mixed up, and an assertion ends the process",
     "seen with 3.1+debian; warm_up.hpp has the whole"},
    {pocl_platform, Quirk::argument_bytes,
     "CL_DEVICE_MAX_PARAMETER_SIZE is 1024, and kernels with more bytes of arguments are right",
     "seen with 3.1+debian, in every run of the tests; others: https://github.com/inducer/pyopencl/pull/713"},
    {pocl_platform, Quirk::failed_events,
     "where an event fails, an assertion ends the process for a command that waits for it and gave out no event",
     "seen with 3.1+debian: \"PTHREAD ERROR in pocl_update_event_failed\""},
    {pocl_platform, Quirk::own_builtins,
     "its compiler reads a header of 18,000 lines for each program, which takes it longer than most kernels do",
     "seen with 3.1+debian; kernels/own_builtins.h has the whole"},
}};

struct Name {
    std::string_view text;
    Quirk quirk;
};
constexpr std::array<Name, 5> names{{{"no_barriers", Quirk::no_barriers},
                                     {"warm_up", Quirk::warm_up},
                                     {"argument_bytes", Quirk::argument_bytes},
                                     {"failed_events", Quirk::failed_events},
                                     {"own_builtins", Quirk::own_builtins}}};
constexpr std::string_view none = "off";

} // namespace

std::string Quirks::names() const {
    std::string text;
    for (const Name& each : opencl::names)
        if (has(each.quirk)) text.append(text.empty() ? "" : ", ").append(each.text);
    return text;
}

std::span<const KnownQuirk> known_quirks() { return table; }

Quirks known_quirks_of(const winnow_device_info& device) {
    Quirks quirks;
    for (const KnownQuirk& known : table)
        if (known.platform == device.platform) quirks.add(known.quirk);
    return quirks;
}

Quirks quirks_of(const winnow_device_info& device, const std::optional<Quirks>& forced, const Log& log) {
    const Quirks known = known_quirks_of(device);
    const Quirks quirks = forced.value_or(known);
    if (quirks.are_any() || known.are_any())
        log(WINNOW_LOG_INFO, "quirks of this driver: " + (known.are_any() ? known.names() : "none is known") +
                                 (forced ? "; forced: " + (quirks.are_any() ? quirks.names() : "none") : ""));
    return quirks;
}

std::optional<Quirks> parse_quirks(std::string_view text) {
    Quirks quirks;
    if (text == none) return quirks;
    for (;;) {
        const std::string_view each = text.substr(0, text.find('+'));
        const auto* const name =
            std::find_if(names.begin(), names.end(), [&](const Name& one) { return one.text == each; });
        if (name == names.end()) return std::nullopt;
        quirks.add(name->quirk);
        if (each.size() == text.size()) return quirks;
        text.remove_prefix(each.size() + 1);
    }
}

std::string quirk_choices() {
    std::string text(none);
    for (const Name& each : names) text.append("|").append(each.text);
    return text;
}

} // namespace winnow::opencl
