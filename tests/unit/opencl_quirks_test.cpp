// Whom a row of the table of quirks is about, what is forced in its place, and what comes of it.
#include "opencl/quirks.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "opencl/runtime.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/variants.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

winnow_device_info device_of(const char* platform) {
    winnow_device_info info{};
    std::snprintf(info.platform, sizeof info.platform, "%s", platform);
    return info;
}

Quirks with(std::initializer_list<Quirk> quirks) {
    Quirks made;
    for (const Quirk quirk : quirks) made.add(quirk);
    return made;
}

TEST(opencl_quirks, each_row_says_what_is_wrong_and_whence_it_is_known) {
    for (const KnownQuirk& known : known_quirks()) {
        EXPECT_FALSE(known.platform.empty());
        EXPECT_FALSE(known.what.empty());
        EXPECT_FALSE(known.source.empty());
    }
}

TEST(opencl_quirks, all_can_be_forced_by_their_names) {
    const Quirks all =
        with({Quirk::no_barriers, Quirk::warm_up, Quirk::argument_bytes, Quirk::failed_events, Quirk::own_builtins});
    EXPECT_EQ(parse_quirks("no_barriers+warm_up+argument_bytes+failed_events+own_builtins"), all);
    EXPECT_EQ(all.names(), "no_barriers, warm_up, argument_bytes, failed_events, own_builtins");
    EXPECT_EQ(parse_quirks("off"), Quirks{});
    EXPECT_EQ(parse_variants("quirks=warm_up").quirks, with({Quirk::warm_up}));
    EXPECT_EQ(parse_variants("").quirks, std::nullopt);
    for (const char* text : {"", "on", "warm_up+", "+warm_up", "warm_up+off", "off+warm_up", "Warm_up"})
        EXPECT_EQ(parse_quirks(text), std::nullopt) << text;
}

TEST(opencl_quirks, the_log_says_which_apply) {
    std::vector<std::string> said;
    const Log log = [&](int32_t level, const std::string& text) {
        EXPECT_EQ(level, WINNOW_LOG_INFO);
        said.push_back(text);
    };
    const winnow_device_info pocl = device_of("Portable Computing Language");
    EXPECT_TRUE(quirks_of(pocl, {}, log).has(Quirk::warm_up));
    EXPECT_EQ(quirks_of(pocl, with({Quirk::no_barriers}), log), with({Quirk::no_barriers}));
    EXPECT_EQ(quirks_of(pocl, Quirks{}, log), Quirks{});
    EXPECT_EQ(quirks_of(device_of("A Platform"), {}, log), Quirks{});
    EXPECT_EQ(quirks_of(device_of("A Platform"), with({Quirk::warm_up}), log), with({Quirk::warm_up}));
    const std::string known =
        "quirks of this driver: no_barriers, warm_up, argument_bytes, failed_events, own_builtins";
    EXPECT_EQ(said, (std::vector<std::string>{known, known + "; forced: no_barriers", known + "; forced: none",
                                              "quirks of this driver: none is known; forced: warm_up"}));
}

TEST(opencl_quirks, a_refusal_names_them) {
    Capabilities device;
    device.max_group_size = 1024;
    device.local_memory_size = 48 * 1024;
    device.takes_barriers = false;
    device.quirks.add(Quirk::no_barriers);
    try {
        choose_variant("sdpa", device, parse_variants("shape=workgroup"), 1, 1);
        ADD_FAILURE() << "groups of many work-items were taken";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "no kernel of sdpa of the shape workgroup runs on this device, whose driver has the "
                                   "quirks no_barriers (quirks= forces others)");
    }
}

// Whatever the driver, what is done for it is what the quirks say.
TEST(opencl_quirks, a_context_goes_by_what_is_forced) {
    if (!has_device()) WINNOW_SKIP_WITHOUT_POCL("there is no OpenCL device");
    const auto made = [](const Quirks& quirks) {
        VariantOptions forced = parse_variants("optimize=off");
        forced.quirks = quirks;
        return std::make_unique<Runtime>(cpu_request(), forced);
    };
    const std::unique_ptr<Runtime> none = made({});
    EXPECT_TRUE(none->capabilities().takes_barriers);
    EXPECT_FALSE(none->state().workers.quirks.are_any());
    const std::unique_ptr<Runtime> some = made(with({Quirk::no_barriers, Quirk::argument_bytes}));
    EXPECT_FALSE(some->capabilities().takes_barriers);
    EXPECT_FALSE(some->state().workers.has_params_in_memory);
}

} // namespace
} // namespace winnow::opencl
