// That a variant which comes out wrong is found out, remembered, and left for the next.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "opencl/runtime_state.hpp"
#include "opencl/self_test.hpp"
#include "opencl/self_test_cases.hpp"
#include "opencl/variants.hpp"
#include "opencl_test.hpp"
#include "opencl_wrong_device.hpp"
#include "reference/device.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

// The reference, but that something is done to each attention.
template <class Change>
class AttendingDevice : public reference::ReferenceDevice {
public:
    explicit AttendingDevice(const Change& change) : ReferenceDevice(plain_request()), change_(change) {}
    using ReferenceDevice::launch;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override {
        std::unique_ptr<Event> event = ReferenceDevice::launch(args, want_event);
        change_(args);
        return event;
    }

private:
    const Change& change_;
};

template <class Change>
std::string attention_with(const Change& change) {
    AttendingDevice<Change> device(change);
    return test_attention(device);
}

// The last element of the last head, as a driver would get it wrong.
float& last_element(const Sdpa& args) {
    return reinterpret_cast<float*>(args.out.data)[args.q_heads() * args.v_head_size() - 1];
}

TEST(opencl_self_test, what_is_right_passes) {
    WrongDevice right;
    EXPECT_EQ(test_attention(right), "");
    EXPECT_EQ(test_prompt(right), "");
    EXPECT_EQ(test_fused_attention(right), "");
    EXPECT_EQ(test_packed_rows(right), "");
    for (const OperationCase& each : operation_cases()) EXPECT_EQ(each.run(right), "") << each.operation;
}

TEST(opencl_self_test, each_operation_but_attention_has_a_case) {
    for (const Variant& row : variants()) {
        const auto is_its = [&](const OperationCase& each) { return each.operation == row.operation; };
        EXPECT_EQ(std::count_if(operation_cases().begin(), operation_cases().end(), is_its),
                  row.operation == "sdpa" ? 0 : 1)
            << row.operation;
    }
}

TEST(opencl_self_test, what_is_wrong_in_any_output_is_found) {
    std::vector<OperationCase> cases(operation_cases().begin(), operation_cases().end());
    cases.push_back({"fused attention", test_fused_attention});
    for (const OperationCase& each : cases)
        for (size_t output = 0, outputs = 1; output < outputs; ++output) {
            WrongDevice wrong(std::string(each.operation), output);
            EXPECT_NE(each.run(wrong), "") << "output " << output << " of " << each.operation;
            ASSERT_GT(wrong.outputs, 0u) << each.operation;
            outputs = wrong.outputs;
        }
}

TEST(opencl_self_test, one_element_of_attention_that_is_wrong_is_found) {
    const float wrong[] = {0.001f, 100.0f, std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
    for (const float more : wrong) {
        const std::string said = attention_with([&](const Sdpa& args) { last_element(args) += more; });
        EXPECT_EQ(said.rfind("element 63 of row 0 of head 3 is ", 0), 0u) << said;
    }
    WrongDevice wrong_rows("sdpa");
    EXPECT_EQ(test_packed_rows(wrong_rows).rfind("element 0 of row 0 of head 0 is ", 0), 0u);
    WrongDevice wrong_prompt("sdpa");
    EXPECT_EQ(test_prompt(wrong_prompt).rfind("element 0 of row 0 of head 0 is ", 0), 0u);
    EXPECT_NE(attention_with([](const Sdpa& args) { last_element(args) += args.v_threshold != 0 ? 3.0f : 0.0f; }), "")
        << "the way without products of matrices is tested, too";
}

Capabilities nvidia() {
    Capabilities device;
    device.type = WINNOW_DEVICE_GPU;
    device.local_memory_size = 48 * 1024;
    device.max_group_size = 1024;
    device.subgroup_sizes = 32;
    device.takes_ptx = device.has_tensor_cores = true;
    return device;
}

// A context on a device with these capabilities, whatever it is, that keeps what it finds in a folder of its own.
class Tested {
public:
    explicit Tested(const char* forced = "", Capabilities capabilities = nvidia()) : forced_(parse_variants(forced)) {
        outer_ = std::getenv("XDG_CACHE_HOME");
        ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
        start(std::move(capabilities));
    }
    ~Tested() { ::setenv("XDG_CACHE_HOME", outer_.c_str(), 1); }

    // Another context: what is made for the tests is what `make` gives.
    void start(Capabilities capabilities = nvidia()) {
        made = 0;
        warnings.clear();
        DeviceRequest request = cpu_request();
        request.log = [this](int32_t level, const std::string& text) {
            if (level == WINNOW_LOG_WARNING) warnings.push_back(text);
            notes.push_back(text);
        };
        state_ = std::make_unique<RuntimeState>(request, parse_variants("host_memory=copy"));
        state_->capabilities = std::move(capabilities);
        test_ = std::make_unique<SelfTest>(*state_, forced_, [this](const RuntimeState& state) {
            ++made;
            return make(state);
        });
    }
    void attention() { test_->test_attention(); }
    void slot_attention() { test_->test_slot_attention(); }
    void packed_attention() { test_->test_packed_attention(); }
    void before(std::string_view operation) { test_->test_before(operation); }
    std::string shape() const { return std::string(kernel_shape(state_->capabilities)); }
    std::string shape_of(std::string_view operation) const {
        return std::string(choose_variant(operation, state_->capabilities, {}, 0, 0).shape);
    }
    const Capabilities& capabilities() const { return state_->capabilities; }
    const std::string& folder() const { return folder_.path(); }

    SelfTest::MakeDevice make = [](const RuntimeState&) { return std::make_unique<WrongDevice>(); };
    int made = 0;
    std::vector<std::string> warnings, notes;

private:
    const TemporaryFolder folder_;
    std::string outer_;
    const VariantOptions forced_;
    std::unique_ptr<RuntimeState> state_;
    std::unique_ptr<SelfTest> test_;
};

class opencl_self_test_of : public opencl_test {};

// is_wrong: of the capabilities as they are at that time.
template <class IsWrong>
void attend(Tested& tested, const IsWrong& is_wrong) {
    tested.make = [&](const RuntimeState& state) {
        return std::make_unique<WrongDevice>(is_wrong(state.capabilities) ? "sdpa" : "");
    };
    tested.attention();
}

TEST_F(opencl_self_test_of, a_device_keeps_the_shape_that_is_right) {
    Tested tested;
    attend(tested, [](const Capabilities&) { return false; });
    EXPECT_EQ(tested.shape(), "subgroup");
    EXPECT_TRUE(tested.capabilities().has_tensor_cores);
    EXPECT_TRUE(tested.warnings.empty());
}

TEST_F(opencl_self_test_of, a_shape_that_is_wrong_is_left_for_the_next) {
    Tested tensor;
    attend(tensor, [](const Capabilities& now) { return now.has_tensor_cores; });
    EXPECT_EQ(tensor.shape(), "subgroup");
    EXPECT_FALSE(tensor.capabilities().has_tensor_cores);
    ASSERT_EQ(tensor.warnings.size(), 1u);
    EXPECT_NE(tensor.warnings[0].find("wrong with tensor cores"), std::string::npos) << tensor.warnings[0];
}

// is_wrong: of the capabilities as they are at that time, fused attention alone.
template <class IsWrong>
void fused(Tested& tested, const IsWrong& is_wrong) {
    tested.make = [&](const RuntimeState& state) {
        return std::make_unique<WrongDevice>(is_wrong(state.capabilities) ? "fused attention" : "");
    };
    tested.attention();
    EXPECT_TRUE(tested.warnings.empty());
    tested.slot_attention();
}

TEST_F(opencl_self_test_of, fused_attention_is_tested_before_the_first_attention_over_slots) {
    Tested tested;
    fused(tested, [](const Capabilities&) { return false; });
    EXPECT_EQ(tested.made, 3) << "a token, a prompt and fused attention";
    EXPECT_EQ(tested.shape(), "subgroup");
    EXPECT_TRUE(tested.capabilities().has_tensor_cores);
    tested.slot_attention();
    EXPECT_EQ(tested.made, 3);
    tested.start();
    tested.attention();
    tested.slot_attention();
    EXPECT_EQ(tested.made, 0);
    EXPECT_TRUE(tested.warnings.empty());
}

TEST_F(opencl_self_test_of, a_shape_in_which_fused_attention_is_wrong_is_left_for_the_next) {
    Tested tested;
    fused(tested, [](const Capabilities& now) { return now.has_tensor_cores; });
    EXPECT_EQ(tested.shape(), "subgroup");
    EXPECT_FALSE(tested.capabilities().has_tensor_cores);
    ASSERT_EQ(tested.warnings.size(), 1u);
    EXPECT_EQ(
        tested.warnings[0].rfind("this driver gets a step of a cache wrong with tensor cores, so attention does not "
                                 "use tensor cores: ",
                                 0),
        0u)
        << tested.warnings[0];
    EXPECT_EQ(tested.made, 5) << "without tensor cores attention is tested as well, before it is fused";
    tested.start();
    tested.attention();
    EXPECT_TRUE(tested.capabilities().has_tensor_cores);
    tested.slot_attention();
    EXPECT_FALSE(tested.capabilities().has_tensor_cores);
    EXPECT_EQ(tested.made, 0);

    Tested all;
    fused(all, [](const Capabilities&) { return true; });
    EXPECT_EQ(choose_variant("sdpa", all.capabilities(), {}, 1, 1).shape, "cpu");
    EXPECT_EQ(all.warnings.size(), 3u);
}

// The third device is the one of packed rows.
TEST_F(opencl_self_test_of, a_shape_in_which_packed_rows_are_wrong_is_left_for_the_next) {
    Tested tested;
    tested.make = [&](const RuntimeState&) { return std::make_unique<WrongDevice>(tested.made == 3 ? "sdpa" : ""); };
    tested.attention();
    for (int time = 0; time < 2; ++time) tested.packed_attention();
    EXPECT_FALSE(tested.capabilities().has_tensor_cores);
    EXPECT_EQ(tested.shape(), "subgroup");
    ASSERT_EQ(tested.warnings.size(), 1u);
    EXPECT_EQ(tested.warnings[0].rfind("this driver gets attention over packed rows wrong with tensor cores", 0), 0u)
        << tested.warnings[0];
    EXPECT_EQ(tested.made, 5);
    tested.slot_attention();
    EXPECT_EQ(tested.made, 6) << "what was tested is not tested again";
}

// A context that runs out of memory in a test of attention has not tested it.
TEST_F(opencl_self_test_of, a_test_of_attention_that_is_interrupted_is_made_again) {
    Tested tested;
    tested.attention();
    tested.make = [](const RuntimeState&) -> std::unique_ptr<Device> { throw std::bad_alloc(); };
    EXPECT_THROW(tested.slot_attention(), std::bad_alloc);
    tested.make = [](const RuntimeState&) { return std::make_unique<WrongDevice>("fused attention"); };
    tested.slot_attention();
    EXPECT_EQ(choose_variant("sdpa", tested.capabilities(), {}, 1, 1).shape, "cpu");
}

TEST_F(opencl_self_test_of, prompts_that_are_wrong_are_left_to_the_kernel_of_few_tokens) {
    Tested tested;
    tested.make = [&](const RuntimeState&) { return std::make_unique<WrongDevice>(tested.made == 2 ? "sdpa" : ""); };
    tested.attention();
    EXPECT_EQ(tested.made, 2); // for a token, and for a prompt
    EXPECT_EQ(tested.shape(), "subgroup");
    EXPECT_EQ(choose_variant("sdpa", tested.capabilities(), {}, 512, 2048).entry_point, "sdpa_vector");
    ASSERT_EQ(tested.warnings.size(), 1u);
    EXPECT_NE(tested.warnings[0].find("sdpa_prefill of many query tokens wrong"), std::string::npos)
        << tested.warnings[0];
    EXPECT_EQ(choose_variant("sdpa", nvidia(), {}, 512, 2048).entry_point, "sdpa_prefill");
}

TEST_F(opencl_self_test_of, shapes_are_left_until_one_is_right) {
    Tested subgroup;
    attend(subgroup, [](const Capabilities& now) { return now.subgroup_sizes != 0; });
    EXPECT_EQ(subgroup.shape(), "workgroup");
    EXPECT_EQ(subgroup.warnings.size(), 2u);
    subgroup.start(); // which knows it
    subgroup.attention();
    EXPECT_EQ(subgroup.made, 0);
    EXPECT_EQ(subgroup.shape(), "workgroup");
    EXPECT_EQ(subgroup.warnings.size(), 2u);
}

TEST_F(opencl_self_test_of, the_shape_cpu_is_left_where_all_are_wrong) {
    Tested all;
    attend(all, [](const Capabilities&) { return true; });
    EXPECT_EQ(choose_variant("sdpa", all.capabilities(), {}, 1, 1).shape, "cpu");
    EXPECT_EQ(all.warnings.size(), 3u);
    EXPECT_EQ(all.shape_of("slot_copy"), "workgroup");
}

TEST_F(opencl_self_test_of, an_operation_that_is_wrong_is_left_for_the_shape_cpu) {
    for (const OperationCase& each : operation_cases()) {
        Tested tested;
        tested.make = [&](const RuntimeState&) { return std::make_unique<WrongDevice>(std::string(each.operation)); };
        for (const OperationCase& other : operation_cases()) {
            EXPECT_EQ(tested.shape_of(other.operation), "workgroup") << other.operation;
            tested.before(other.operation);
            EXPECT_EQ(tested.shape_of(other.operation), &other == &each ? "cpu" : "workgroup") << other.operation;
        }
        ASSERT_EQ(tested.warnings.size(), 1u) << each.operation;
        EXPECT_EQ(tested.warnings[0].rfind("this driver gets " + std::string(each.operation) + " with the shape ", 0),
                  0u)
            << tested.warnings[0];
    }
}

TEST_F(opencl_self_test_of, what_was_found_is_remembered) {
    Tested tested;
    tested.make = [](const RuntimeState&) { return std::make_unique<WrongDevice>("slot_evict"); };
    for (const char* operation : {"slot_evict", "slot_copy", "slot_evict", "slot_copy"}) tested.before(operation);
    EXPECT_EQ(tested.made, 2);
    ASSERT_EQ(tested.warnings.size(), 1u);
    tested.start();
    for (const char* operation : {"slot_evict", "slot_copy"}) tested.before(operation);
    EXPECT_EQ(tested.made, 0);
    EXPECT_EQ(tested.shape_of("slot_evict"), "cpu");
    EXPECT_EQ(tested.shape_of("slot_copy"), "workgroup");
    ASSERT_EQ(tested.warnings.size(), 1u);
    EXPECT_NE(tested.warnings[0].find("(when it was tested)"), std::string::npos) << tested.warnings[0];
}

TEST_F(opencl_self_test_of, what_was_found_is_of_the_cases_and_launchers_it_was_found_with) {
    ASSERT_EQ(backend_digest().size(), 64u);
    Tested tested;
    tested.before("slot_copy");
    int entries = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tested.folder())) {
        if (entry.path().extension() != ".program") continue;
        ++entries;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string all{std::istreambuf_iterator<char>(file), {}};
        EXPECT_NE(all.find("self-test " + std::string(backend_digest()) + ": slot_copy"), std::string::npos);
    }
    EXPECT_EQ(entries, 1);
}

TEST_F(opencl_self_test_of, what_is_forced_and_what_has_one_work_item_is_not_tested) {
    for (const char* forced : {"shape=subgroup", "slot_shape=workgroup", "shape=workgroup"}) {
        Tested tested(forced);
        tested.before("slot_copy");
        EXPECT_EQ(tested.made, 0) << forced;
    }
    Tested attention("shape=subgroup");
    attend(attention, [](const Capabilities&) { return true; });
    attention.slot_attention();
    attention.packed_attention();
    EXPECT_EQ(attention.shape(), "subgroup");
    EXPECT_EQ(attention.made, 0);

    Capabilities cpu = nvidia();
    cpu.type = WINNOW_DEVICE_CPU;
    Tested of_cpu("", cpu);
    of_cpu.attention();
    of_cpu.slot_attention();
    of_cpu.before("slot_copy");
    EXPECT_EQ(of_cpu.made, 0);
}

// A device on which a launch fails.
class FailingDevice : public reference::ReferenceDevice {
public:
    explicit FailingDevice(int32_t status, std::string why = "no such instruction")
        : ReferenceDevice(plain_request()), status_(status), why_(std::move(why)) {}
    using ReferenceDevice::launch;
    void launch(const SlotCopy&) override { throw Error(status_, why_); }

private:
    int32_t status_;
    std::string why_;
};

TEST_F(opencl_self_test_of, a_kernel_that_reaches_beyond_memory_is_left) {
    Tested tested;
    tested.make = [](const RuntimeState&) {
        return std::make_unique<FailingDevice>(WINNOW_ERROR_OUT_OF_MEMORY,
                                               "clFinish failed with CL_OUT_OF_RESOURCES (-5)");
    };
    tested.before("slot_copy");
    EXPECT_EQ(tested.shape_of("slot_copy"), "cpu");
    EXPECT_EQ(tested.warnings.size(), 1u);
}

TEST_F(opencl_self_test_of, a_kernel_that_does_not_compile_is_left_and_tried_again_next_time) {
    Tested tested;
    tested.make = [](const RuntimeState&) { return std::make_unique<FailingDevice>(WINNOW_ERROR_DEVICE); };
    tested.before("slot_copy");
    EXPECT_EQ(tested.shape_of("slot_copy"), "cpu");
    ASSERT_EQ(tested.warnings.size(), 1u);
    EXPECT_NE(tested.warnings[0].find("no such instruction"), std::string::npos) << tested.warnings[0];
    tested.start();
    tested.make = [](const RuntimeState&) { return std::make_unique<WrongDevice>(); };
    tested.before("slot_copy");
    EXPECT_EQ(tested.made, 1);
    EXPECT_EQ(tested.shape_of("slot_copy"), "workgroup");
}

TEST_F(opencl_self_test_of, what_cannot_be_kept_is_told_once) {
    ::setenv("WINNOW_PROGRAM_CACHE_MIB", "0", 1);
    Tested tested;
    ::unsetenv("WINNOW_PROGRAM_CACHE_MIB");
    for (const char* operation : {"slot_copy", "slot_edit"}) tested.before(operation);
    EXPECT_EQ(tested.made, 2);
    EXPECT_EQ(std::count_if(tested.notes.begin(), tested.notes.end(),
                            [](const std::string& note) { return note.find("are not kept") != std::string::npos; }),
              1);
    tested.start();
    tested.before("slot_copy");
    EXPECT_EQ(tested.made, 1) << "each context tests anew";
}

// A context that runs out of memory in a test has not tested.
TEST_F(opencl_self_test_of, a_test_that_is_interrupted_is_made_again) {
    Tested tested;
    tested.make = [](const RuntimeState&) -> std::unique_ptr<Device> { throw std::bad_alloc(); };
    EXPECT_THROW(tested.before("slot_copy"), std::bad_alloc);
    tested.make = [](const RuntimeState&) { return std::make_unique<WrongDevice>("slot_copy"); };
    tested.before("slot_copy");
    EXPECT_EQ(tested.shape_of("slot_copy"), "cpu");
}

TEST_F(opencl_self_test_of, what_cannot_be_tested_is_used_and_the_log_says_so) {
    const SelfTest::MakeDevice without_memory = [](const RuntimeState&) {
        return std::make_unique<FailingDevice>(WINNOW_ERROR_OUT_OF_MEMORY);
    };
    const SelfTest::MakeDevice without_context = [](const RuntimeState&) -> std::unique_ptr<Device> {
        throw Error(WINNOW_ERROR_DEVICE, "no context");
    };
    for (const SelfTest::MakeDevice& make : {without_memory, without_context}) {
        Tested tested;
        tested.make = make;
        tested.before("slot_copy");
        EXPECT_EQ(tested.shape_of("slot_copy"), "workgroup");
        EXPECT_TRUE(tested.warnings.empty());
        EXPECT_NE(tested.notes.back().find("could not be tested"), std::string::npos) << tested.notes.back();
    }
}

// A device that copies, and is lost after the first launch.
class LostDevice : public reference::ReferenceDevice {
public:
    LostDevice() : ReferenceDevice(plain_request()) {}
    void finish() override { throw Error(WINNOW_ERROR_DEVICE, "lost"); }
    uint64_t next_result() const override { return 7; }
    void drop_results_from(uint64_t result) override { dropped = result; }

    uint64_t dropped = 0;
};

TEST(opencl_self_test, results_of_a_case_that_fails_are_dropped_with_its_memory) {
    std::vector<OperationCase> cases(operation_cases().begin(), operation_cases().end());
    cases.insert(cases.end(), {{"attention", test_attention},
                               {"prompt", test_prompt},
                               {"packed rows", test_packed_rows},
                               {"fused attention", test_fused_attention}});
    for (const OperationCase& each : cases) {
        LostDevice device;
        EXPECT_THROW(each.run(device), Error) << each.operation;
        EXPECT_EQ(device.dropped, 7U) << each.operation;
    }
}

} // namespace
} // namespace winnow::opencl
