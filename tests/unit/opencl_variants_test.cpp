// What may be forced, and that a wish which nobody understands is refused with the choices.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "device/device.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {
namespace {

// Each is refused, and the message quotes `item` and names every choice.
const struct {
    const char *text, *item;
} refused[] = {
    {"kernel=help", "kernel=help"},
    {"shape=help", "shape=help"},
    {"shape=", "shape="},
    {"slot_shape=help", "slot_shape=help"},
    {"slot_shape=", "slot_shape="},
    {"launches=help", "launches=help"},
    {"splits=help", "splits=help"},
    {"host_memory=help", "host_memory=help"},
    {"host_memory=", "host_memory="},
    {"optimize=help", "optimize=help"},
    {"optimize=on", "optimize=on"},
    {"params=help", "params=help"},
    {"subgroup=help", "subgroup=help"},
    {"subgroup=8", "subgroup=8"},
    {"tensor=help", "tensor=help"},
    {"tensor=on", "tensor=on"},
    {"help", "help"},
    {"colour=red", "colour=red"},
    {"kernel=fast", "kernel=fast"},
    {"kernel=", "kernel="},
    {"Kernel=vector", "Kernel=vector"},
    {"launches=0", "launches=0"},
    {"launches=3", "launches=3"},
    {"splits=0", "splits=0"},
    {"splits=1025", "splits=1025"},
    {"splits=-1", "splits=-1"},
    {"splits=2x", "splits=2x"},
    {"splits=99999999999999999999", "splits=99999999999999999999"},
    {"kernel=vector,oops,splits=2", "oops"},
    {"kernel=vector splits=2", "kernel=vector splits=2"},
    {"=vector", "=vector"},
    {"group_overhead=0", "group_overhead=0"},
    {"group_overhead=1000000001", "group_overhead=1000000001"},
    {"divided_work=help", "divided_work=help"},
    {"groups=1025", "groups=1025"},
    {"quirks=help", "quirks=help"},
    {"quirks=warm_up+oops", "quirks=warm_up+oops"},
    {",", ""},
};

void expect_refusal(const std::function<void()>& call, const std::string& item) {
    try {
        call();
        ADD_FAILURE() << "\"" << item << "\" was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
        const std::string message = error.what();
        for (const std::string& part :
             {"\"" + item + "\"", std::string("kernel=prefill|vector"), std::string("shape=workgroup|subgroup|cpu"),
              std::string("slot_shape=workgroup|cpu"), std::string("subgroup=16|32|64"),
              std::string("tensor=off|emulated"), std::string("launches=1|2"), std::string("splits=N (1 to 1024)"),
              std::string("host_memory=copy"), std::string("optimize=off"), std::string("params=value|memory"),
              std::string("group_overhead=N"), std::string("divided_work=N"), std::string("groups=N (1 to 1024)"),
              std::string("quirks=off|no_barriers|")})
            EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
    }
}

TEST(opencl_variants, nothing_is_forced_without_a_word) {
    const VariantOptions options = parse_variants("");
    EXPECT_EQ(options.kernel, "");
    EXPECT_EQ(options.shape, "");
    EXPECT_EQ(options.slot_shape, "");
    EXPECT_EQ(options.launches, 0u);
    EXPECT_EQ(options.splits, 0u);
    EXPECT_FALSE(options.copies);
    EXPECT_TRUE(options.optimizes);
    EXPECT_EQ(options.params_in_memory, std::nullopt);
    EXPECT_EQ(options.subgroup, 0u);
    EXPECT_EQ(options.tensor, "");
    EXPECT_EQ(options.tuning, TuningChanges{});
}

TEST(opencl_variants, what_is_forced_is_read) {
    const VariantOptions options = parse_variants("splits=1024,kernel=prefill,launches=2");
    EXPECT_EQ(options.kernel, "prefill");
    EXPECT_EQ(options.launches, 2u);
    EXPECT_EQ(options.splits, 1024u);
    EXPECT_EQ(parse_variants("kernel=vector").kernel, "vector");
    EXPECT_EQ(parse_variants("shape=workgroup").shape, "workgroup");
    EXPECT_EQ(parse_variants("shape=cpu").shape, "cpu");
    EXPECT_EQ(parse_variants("shape=subgroup").shape, "subgroup");
    EXPECT_EQ(parse_variants("subgroup=64").subgroup, 64u);
    EXPECT_EQ(parse_variants("tensor=emulated").tensor, "emulated");
    EXPECT_EQ(parse_variants("slot_shape=workgroup").slot_shape, "workgroup");
    EXPECT_EQ(parse_variants("slot_shape=workgroup").shape, "");
    EXPECT_EQ(parse_variants("launches=1").launches, 1u);
    EXPECT_EQ(parse_variants("splits=1").splits, 1u);
    EXPECT_TRUE(parse_variants("host_memory=copy").copies);
    EXPECT_FALSE(parse_variants("optimize=off").optimizes);
    EXPECT_EQ(parse_variants("params=memory").params_in_memory, true);
    EXPECT_EQ(parse_variants("params=value").params_in_memory, false);
    EXPECT_EQ(parse_variants("group_overhead=5,divided_work=6,groups=7").tuning, (TuningChanges{5, 6, 7}));
}

TEST(opencl_variants, what_nobody_understands_is_refused_with_the_choices) {
    for (const auto& [text, item] : refused) expect_refusal([text = text] { parse_variants(text); }, item);
}

TEST(opencl_variants, a_device_is_not_made_with_a_wish_that_nobody_understands) {
    DeviceRequest request;
    request.log = [](int32_t, const std::string&) {};
    for (const auto& [text, item] : refused) {
        request.variants = text;
        expect_refusal([&] { backend::create(request); }, item);
    }
}

} // namespace
} // namespace winnow::opencl
