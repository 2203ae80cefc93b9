// The numbers by which work is divided: what a file says of a device, what is forced, and what is refused.
#include "opencl/tuning.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "device/slots.hpp"
#include "opencl/sdpa_kernel.hpp"
#include "opencl/variants.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

winnow_device_info made_device(const char* driver = "1.0") {
    winnow_device_info info{};
    std::strcpy(info.name, "Made");
    std::strcpy(info.platform, "Here");
    std::strcpy(info.driver_version, driver);
    return info;
}

const Log silent = [](int32_t, const std::string&) {};

std::string entry(const std::string& numbers, const std::string& driver = "1.0") {
    return R"({"device": "Made", "platform": "Here", "driver": ")" + driver + R"(", "date": "2026-11-28")" +
           (numbers.empty() ? "" : ", " + numbers) + "}";
}

std::string file_of(const std::string& entries) { return R"({"winnow_tuning": 1, "devices": [)" + entries + "]}"; }

class opencl_tuning : public testing::Test {
protected:
    std::filesystem::path write(const std::string& text) {
        const std::filesystem::path file = std::filesystem::path(folder_.path()) / "winnow" / "tuning.json";
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
        return file;
    }
    void expect_refused(const std::string& text, const std::string& words) {
        const std::filesystem::path file = write(text);
        try {
            tuning_in(file, made_device());
            ADD_FAILURE() << text << " was taken";
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT);
            for (const std::string& part : {file.string(), words})
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    }
    TemporaryFolder folder_;
};

TEST_F(opencl_tuning, a_file_speaks_of_a_device_with_its_driver) {
    const std::filesystem::path file = write(file_of(entry(R"("group_overhead": 7, "divided_work": 8, "groups": 9)") +
                                                     ", " + entry(R"("groups": 3)", "2.0") + ", " + entry("", "3.0")));
    EXPECT_EQ(tuning_in(file, made_device()), (TuningChanges{7, 8, 9}));
    EXPECT_EQ(tuning_in(file, made_device("2.0")), (TuningChanges{{}, {}, 3}));
    EXPECT_EQ(tuning_in(file, made_device("3.0")), TuningChanges{});
    EXPECT_EQ(tuning_in(file, made_device("4.0")), TuningChanges{});
    winnow_device_info other = made_device();
    std::strcpy(other.name, "Other");
    EXPECT_EQ(tuning_in(file, other), TuningChanges{});
}

TEST_F(opencl_tuning, what_is_no_tuning_file_is_refused) {
    expect_refused("", "read as JSON");
    expect_refused("[1]", "expected 1");
    expect_refused("{}", "expected 1");
    expect_refused(R"({"winnow_tuning": 2, "devices": []})", "\"winnow_tuning\" 2, expected 1");
    expect_refused(R"({"winnow_tuning": 1})", "no list \"devices\"");
    expect_refused(file_of("3"), "no object: 3");
    expect_refused(file_of(R"({"device": "Made", "platform": "Here"})"), "without \"driver\"");
    for (const char* wrong : {"0", "-1", "1025", "\"8\"", "1.5", "null", "99999999999999999999"})
        expect_refused(file_of(entry(std::string(R"("groups": )") + wrong)), "expected a number from 1 to 1024");
    expect_refused(file_of(entry(R"("divided_work": 0)", "of another")), "divided_work 0");
    EXPECT_THROW(tuning_in(folder_.file("none"), made_device()), Error);
    EXPECT_THROW(tuning_in(folder_.path(), made_device()), Error);
}

TEST_F(opencl_tuning, what_is_forced_goes_before_the_file_and_that_before_what_is_built_in) {
    const std::filesystem::path file = write(file_of(entry(R"("group_overhead": 7, "groups": 9)")));
    setenv("WINNOW_TUNING", file.c_str(), 1);
    const Tuning built_in;
    EXPECT_EQ(tuning_of(made_device(), {}, silent), (Tuning{7, built_in.divided_work, 9}));
    EXPECT_EQ(tuning_of(made_device(), {{}, {}, 2}, silent), (Tuning{7, built_in.divided_work, 2}));
    EXPECT_EQ(tuning_of(made_device("2.0"), {{}, 5, {}}, silent), (Tuning{built_in.group_overhead, 5, 0}));
    setenv("WINNOW_TUNING", "off", 1);
    EXPECT_EQ(tuning_of(made_device(), {}, silent), built_in);
    setenv("WINNOW_TUNING", "", 1); // as if it were not there
    setenv("XDG_CONFIG_HOME", folder_.path().c_str(), 1);
    EXPECT_EQ(tuning_of(made_device(), {}, silent), (Tuning{7, built_in.divided_work, 9}));
    std::filesystem::remove(file);
    EXPECT_EQ(tuning_file(), std::nullopt);
    EXPECT_EQ(tuning_of(made_device(), {}, silent), built_in);
    setenv("WINNOW_TUNING", file.c_str(), 1); // which is named, and has to be there
    EXPECT_THROW(tuning_of(made_device(), {}, silent), Error);
    setenv("WINNOW_TUNING", "off", 1);
    unsetenv("XDG_CONFIG_HOME");
}

uint32_t splits_with(const Tuning& tuning, std::string_view shape, std::string_view of = "vector",
                     const VariantOptions& forced = {}) {
    Sdpa args;
    args.q.shape = {1, 8, 1, 64};
    Segment& stored = args.segments.emplace_back();
    stored.k.shape = stored.v.shape = {1, 8, 4096, 64};
    SdpaKernel kernel;
    for (const Variant& row : variants())
        if (row.operation == "sdpa" && row.forced_as == of && row.shape == shape) kernel.variant = &row;
    kernel.rows = 1;
    kernel.head_size = kernel.v_head_size = 64;
    return divide(args, kernel, 16, forced, tuning, 4096).splits;
}

TEST_F(opencl_tuning, numbers_decide_how_keys_are_divided) {
    EXPECT_GT(splits_with({}, "cpu"), 1u); // of 16 units 8 heads alone leave the half idle
    EXPECT_EQ(splits_with({.group_overhead = most_group_overhead}, "cpu"), 1u);
    EXPECT_GT(splits_with({.group_overhead = 100}, "cpu"), splits_with({.group_overhead = 100'000}, "cpu"));
    EXPECT_EQ(splits_with({}, "subgroup"), 4u); // 2 groups of each unit
    EXPECT_EQ(splits_with({}, "workgroup"), 16u);
    EXPECT_EQ(splits_with({.groups = 4}, "subgroup"), 8u);
    EXPECT_EQ(splits_with({.groups = 4}, "workgroup"), 8u);
}

TEST_F(opencl_tuning, groups_that_were_tuned_are_of_the_kernel_that_was_measured) {
    EXPECT_EQ(splits_with({}, "workgroup", "prefill"), 6u); // 3 groups of each unit
    EXPECT_EQ(splits_with({.groups = 4}, "workgroup", "prefill"), 6u);
    VariantOptions forced;
    forced.tuning.groups = 4;
    EXPECT_EQ(splits_with({}, "workgroup", "prefill", forced), 8u);
    EXPECT_EQ(splits_with({.groups = 1}, "workgroup", "vector", forced), 8u);
    forced.splits = 5;
    EXPECT_EQ(splits_with({}, "workgroup", "prefill", forced), 5u);
}

} // namespace
} // namespace winnow::opencl
