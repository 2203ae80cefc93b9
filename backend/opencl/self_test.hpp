// Whether kernels come out right where they are more than plain OpenCL C, in groups of many work-items, with subgroups
// or tensor cores: one small case of an operation against the reference, before it is first used on a device.
// What was found is kept beside the compiled programs, by kernel, device, driver and sources of the backend. A driver
// that compiles a kernel wrong, or not at all, gets the next variant, and the log says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.hpp"

namespace winnow::opencl {

struct RuntimeState;
struct Variant;
struct VariantOptions;

class SelfTest {
public:
    // The same device with a context and a queue of its own, since a host's queue may be waiting for something that
    // comes after this call, and since a driver may give up a context in which a kernel fails. It goes by these
    // capabilities, and tests nothing.
    using MakeDevice = std::function<std::unique_ptr<Device>(const RuntimeState&)>;

    // State and options outlive the test. Without make nothing is tested.
    SelfTest(RuntimeState& state, const VariantOptions& forced, MakeDevice make);

    // Before attention is used, and before the shape of its kernels is told: takes away what makes it come out wrong
    // (tensor cores, subgroups, groups of many work-items) until it is right, or "cpu", which is not tested; then the
    // kernel of prompts, without which they get that of few tokens. What is forced stays.
    void test_attention();

    // Before each attention over slots, and over packed rows without slots, of which the first call tests: the kernel
    // that test_attention left, by fused attention, or by packed rows. What comes out wrong is taken away likewise.
    void test_slot_attention();
    void test_packed_attention();

    // Before each launch of another operation, of which the first call tests. Its kernel of groups of many work-items
    // is left for the one of the shape "cpu" where it is wrong. What is forced stays.
    void test_before(std::string_view operation);

private:
    // What is wrong; empty: nothing, or nobody knows. way: of the variant, in words.
    std::string wrong_with(const Variant& variant, const std::string& way, std::string (*run)(Device&));
    std::string found(const Variant& variant, const std::string& way, std::string (*run)(Device&));
    void test(std::string_view operation, const Variant& variant);
    // A case of attention, and what it is of, in words.
    struct AttentionTest {
        const char* what;
        std::string (*run)(Device&);
    };
    bool is_attention_tested() const;
    void test_also(const AttentionTest& wanted);
    void leave_wrong_attention();

    RuntimeState& state_;
    const VariantOptions& forced_;
    MakeDevice make_;
    std::vector<std::string_view> tested_; // operations that were launched
    std::vector<std::string> used_;        // ways that were right, or could not be tested
    std::vector<AttentionTest> attention_; // what attention was tested by
    bool is_forgetting_ = false;           // the log has it that results are not kept
};

} // namespace winnow::opencl
