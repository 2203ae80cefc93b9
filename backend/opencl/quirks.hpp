// What is known to be wrong with a driver and cannot be found out by asking it or trying: the one place, beside tuning,
// where the backend goes by a driver's name. A row of the table says whom it is about, what is done because of it, and
// where that is known from; winnow_context_desc.variants may say otherwise (quirks=).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "device/device.hpp"

namespace winnow::opencl {

inline constexpr std::string_view pocl_platform = "Portable Computing Language";

// By what is done, or not, for the driver.
enum class Quirk : uint8_t {
    no_barriers,    // no kernels of many work-items that wait for each other: neither "workgroup" nor "subgroup"
    warm_up,        // an empty launch before a kernel's first (warm_up.hpp)
    argument_bytes, // it is told more bytes of arguments than it says it takes
    failed_events,  // its queues do not wait for events of the host's, which may fail, but for a thread that does
    own_builtins,   // programs declare the built-in functions that they call (kernels/own_builtins.h)
};

class Quirks {
public:
    bool has(Quirk quirk) const { return (bits_ >> static_cast<uint32_t>(quirk) & 1) != 0; }
    bool are_any() const { return bits_ != 0; }
    void add(Quirk quirk) { bits_ |= 1U << static_cast<uint32_t>(quirk); }
    std::string names() const; // "no_barriers, warm_up"

    bool operator==(const Quirks&) const = default;

private:
    uint32_t bits_ = 0;
};

struct KnownQuirk {
    std::string_view platform; // its name
    Quirk quirk;
    std::string_view what;   // is wrong
    std::string_view source; // how it was seen, or a public report
};
std::span<const KnownQuirk> known_quirks();

// What the table says of a device.
Quirks known_quirks_of(const winnow_device_info& device);

// The same, or what is forced; the log is told.
Quirks quirks_of(const winnow_device_info& device, const std::optional<Quirks>& forced, const Log& log);

// "no_barriers+warm_up", or "off" for none of them; nothing where a name is unknown.
std::optional<Quirks> parse_quirks(std::string_view text);
std::string quirk_choices(); // "off|no_barriers|..."

} // namespace winnow::opencl
