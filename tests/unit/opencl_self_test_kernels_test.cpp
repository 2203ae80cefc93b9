// The self-test's cases on kernels as a driver compiles them, a processor taken for a GPU: right as they are, and wrong
// where the driver would number work-items wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device/pages.hpp"
#include "opencl/kernel_sources.hpp"
#include "opencl/launchers.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/sdpa.hpp"
#include "opencl/self_test_cases.hpp"
#include "opencl/slot_accumulate.hpp"
#include "opencl/variants.hpp"
#include "opencl_test.hpp"
#include "reference/device.hpp"

namespace winnow::opencl {
namespace {

// The launchers of a runtime as a device.
class LaunchingDevice : public reference::ReferenceDevice {
public:
    explicit LaunchingDevice(const char* forced = "")
        : ReferenceDevice(plain_request()), runtime(cpu_request(), parse_variants("optimize=off")),
          options(parse_variants(forced)) {
        runtime.state().capabilities.type = WINNOW_DEVICE_GPU;
    }

    using ReferenceDevice::launch;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override { return sdpa_.launch(args, want_event); }
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) override {
        return opencl::launch(runtime, args, want_event);
    }
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) override {
        return opencl::launch(runtime, args, want_event);
    }
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) override {
        return opencl::launch(runtime, args, want_event);
    }
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) override {
        return opencl::launch(runtime, args, want_event);
    }
    void attend(const SlotAttend& args) override {
        if (!sdpa_.attend(args, append_)) Device::attend(args);
    }
    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) override {
        return runtime.allocate(size, filling);
    }
    void launch(const SlotAppend& args) override { opencl::launch(runtime, append_, args); }
    void launch(const SlotAccumulate& args) override { accumulate_.launch(args); }
    void launch(const SlotScores& args) override { opencl::launch(runtime, args); }
    void launch(const SlotEvict& args) override { opencl::launch(runtime, evict_, args); }
    void launch(const SlotEdit& args) override { opencl::launch(runtime, args); }
    void launch(const SlotCompact& args) override { opencl::launch(runtime, args); }
    void launch(const SlotCopy& args) override { opencl::launch(runtime, args); }
    void launch(const SlotZero& args) override { opencl::launch(runtime, args); }
    void launch(const PageSign& args) override { opencl::launch(runtime, args); }
    void launch(const PagePick& args) override { opencl::launch(runtime, args); }
    void finish() override { runtime.finish(); }

    bool has_groups() const { return runtime.capabilities().takes_barriers; }

    uint64_t programs() {
        const Programs& all = runtime.state().programs;
        return all.built() + all.loaded();
    }

    Runtime runtime;
    const VariantOptions options;

private:
    SdpaLauncher sdpa_{runtime, options};
    SlotAccumulateLauncher accumulate_{runtime};
    SegmentKernel append_{"slot_append"}, evict_{"slot_evict"};
};

// Every second work-item does once more what the one before it did, and its own work is left.
constexpr const char *lanes = "", *every_second = "#define get_local_id(axis) (get_local_id(axis) & ~(size_t)1)\n";

constexpr const char* evict_options =
    "-DUSES_turbo4 -DUSES_turbo3 -DK_SIZE=32 -DV_SIZE=32 -DK_FORMAT=turbo4 -DV_FORMAT=turbo3";

// The options that launchers give for the cases, and a piece of the kernel's text with what a driver makes of it, where
// work that is left would lead out of memory.
const struct {
    const char *operation, *options, *text, *miscompiled;
} of_cases[] = {
    {"kv_append", "-DUSES_q8_0 -DK_FORMAT=f16 -DV_FORMAT=q8_0", lanes, every_second},
    {"kv_requantize", "-DUSES_q8_0 -DSRC_FORMAT=f16 -DDST_FORMAT=q8_0", lanes, every_second},
    {"kv_dequantize", "-DUSES_q8_0 -DSRC_FORMAT=q8_0 -DDST_FORMAT=f32", lanes, every_second},
    {"hadamard", "-DSIZE=64", lanes, every_second},
    {"slot_append", "-DK_FORMAT=f16 -DV_FORMAT=f16", lanes, every_second},
    {"slot_accumulate", "-DSTATISTIC=PROBABILITY", lanes, every_second},
    {"slot_evict", evict_options, "importance < threshold", "importance > threshold"},
    {"slot_edit", "", lanes, every_second},
    {"slot_compact", "", "weights[to] = ", "weights[from] = "},
    {"slot_copy", "", lanes, every_second},
    {"slot_scores", "", lanes, every_second},
    {"slot_zero", "", lanes, every_second},
    {"page_sign", "-DK_SIZE=32 -DK_FORMAT=f16", ">= 0.0f) << e", "< 0.0f) << e"},
    {"page_pick", "-DK_SIZE=32 -DGROUP=2", "exp2(below)", "1.0f"},
};

std::string run(std::string_view operation, Device& device) {
    const auto cases = operation_cases();
    return std::find_if(cases.begin(), cases.end(),
                        [&](const OperationCase& each) { return each.operation == operation; })
        ->run(device);
}

const Variant& of_groups(std::string_view operation) {
    return *std::find_if(variants().begin(), variants().end(),
                         [&](const Variant& row) { return row.operation == operation && row.shape == "workgroup"; });
}

std::string miscompiled(std::string_view file, const std::string& text, const std::string& as) {
    for (const KernelSource& source : kernel_sources()) {
        if (source.name != file) continue;
        std::string whole(source.source);
        const size_t at = whole.find(text);
        EXPECT_NE(at, std::string::npos) << file << " has no " << text;
        return at == std::string::npos ? whole : whole.replace(at, text.size(), as);
    }
    return {};
}

class opencl_self_test_kernels : public opencl_test {
protected:
    void SetUp() override {
        opencl_test::SetUp();
        if (is_over()) return;
        if (!LaunchingDevice().has_groups()) GTEST_SKIP() << "the driver does not get kernels with barriers";
    }
};

TEST_F(opencl_self_test_kernels, all_are_right) {
    LaunchingDevice device;
    EXPECT_EQ(test_attention(device), "");
    for (const OperationCase& each : operation_cases()) EXPECT_EQ(each.run(device), "") << each.operation;
}

TEST_F(opencl_self_test_kernels, each_that_is_miscompiled_is_convicted) {
    LaunchingDevice device;
    for (const auto& [operation, options, text, as] : of_cases) {
        const Variant& variant = of_groups(operation);
        device.runtime.state().programs.kernel_of_source(variant.file, miscompiled(variant.file, text, as),
                                                         variant.entry_point, options);
        const uint64_t before = device.programs();
        EXPECT_NE(run(operation, device), "") << operation;
        EXPECT_EQ(device.programs(), before) << operation << ": another program was launched";
    }
}

// What stores and reads rotated rows, as in of_cases; of two operations it is the second program.
const struct {
    const char *operation, *options, *text, *miscompiled, *said;
    uint64_t programs_before;
} of_rotated_rows[] = {
    {"kv_requantize", "-DUSES_turbo4 -DSIZE=64 -DSRC_FORMAT=f16 -DDST_FORMAT=turbo4", "z > 0.2582215f", "z > 0.3f",
     "byte of turbo4 ", 1},
    {"kv_dequantize", "-DUSES_turbo4 -DSIZE=64 -DSRC_FORMAT=turbo4 -DDST_FORMAT=f32", "-1.618046f", "-1.618146f",
     "element of turbo4 ", 1},
    {"slot_evict", evict_options, ": square / c_y", ": square / c_square", "k ", 0},
};

TEST_F(opencl_self_test_kernels, rotated_rows_that_are_miscompiled_are_convicted) {
    LaunchingDevice device;
    for (const auto& [operation, options, text, as, said, programs_before] : of_rotated_rows) {
        const Variant& variant = of_groups(operation);
        device.runtime.state().programs.kernel_of_source(variant.file, miscompiled(variant.file, text, as),
                                                         variant.entry_point, options);
        const uint64_t before = device.programs();
        const std::string found = run(operation, device);
        EXPECT_EQ(found.rfind(said, 0), 0u) << operation << ": " << found;
        EXPECT_EQ(device.programs(), before + programs_before) << operation << ": another program was launched";
    }
}

// What is forced of fused attention, and as in of_cases.
struct Miscompiled {
    const char *forced, *text, *as;
};
const Miscompiled of_fused[] = {
    // Codes of the other way than products of small matrices.
    {"shape=workgroup", "+ LOOKUP_AT_##table, index)", "+ LOOKUP_AT_##table, (index)&7)"},
    // What a group has of the segments before the one at hand.
    {"shape=subgroup", "g->accumulator[i] * g->rescale[i / V_FLOATS]", "g->accumulator[i]"},
    {"shape=subgroup", "x * step->gain)", "x)"},
    // Every second value, as products take it.
    {"shape=subgroup,tensor=emulated", "odd >> first % 16 / 8 * 12", "odd >> first % 16 / 8 * 11"},
};

// The same of attention over packed rows.
const Miscompiled of_packed_rows[] = {
    {"shape=workgroup", "convert_int16(as_char16(pairs))", "convert_int16(as_uchar16(pairs))"},
    {"shape=subgroup,tensor=emulated", "return bytes_as_bf16(raw, 128)", "return bytes_as_bf16(raw, 127)"},
};

// The program of test_packed_rows, or of test_fused_attention.
SdpaKernel kernel_of_packed_rows(const LaunchingDevice& device) {
    SdpaKernel kernel;
    kernel.variant = &choose_variant("sdpa", device.runtime.capabilities(), device.options, 1, 1);
    kernel.single_launch = device.runtime.capabilities().single_launch;
    kernel.segments = 1;
    kernel.formats = {{{Type::q8_0, Type::q8_0}}};
    kernel.head_size = kernel.v_head_size = 64;
    kernel.rows = 4;
    if (kernel.variant->shape == "subgroup")
        kernel.subgroups = choose_subgroups(device.runtime.capabilities(), device.options);
    return kernel;
}
SdpaKernel kernel_of_fused(const LaunchingDevice& device) {
    SdpaKernel kernel = kernel_of_packed_rows(device);
    kernel.slots = kernel.is_fused = true;
    kernel.statistic = Statistic::probability_squared;
    kernel.segments = 2;
    kernel.formats = {{{Type::f16, Type::f16}, {Type::turbo4, Type::turbo3}}};
    return kernel;
}

TEST_F(opencl_self_test_kernels, fused_attention_and_packed_rows_are_right) {
    for (const char* forced : {"shape=workgroup", "shape=subgroup", "shape=subgroup,tensor=emulated"}) {
        LaunchingDevice device(forced);
        const uint64_t before = device.programs();
        EXPECT_EQ(test_fused_attention(device), "") << forced;
        EXPECT_EQ(test_packed_rows(device), "") << forced;
        EXPECT_EQ(device.programs(), before + 2) << "each is one program";
    }
}

// What the case says of the kernel as a driver makes it.
std::string convicted(const char* forced, const char* text, const char* as, std::string (*run_case)(Device&),
                      SdpaKernel (*kernel_of)(const LaunchingDevice&)) {
    LaunchingDevice device(forced);
    const SdpaKernel kernel = kernel_of(device);
    const Variant& variant = *kernel.variant;
    device.runtime.state().programs.kernel_of_source(variant.file, miscompiled(variant.file, text, as),
                                                     variant.entry_point, kernel.options());
    const uint64_t before = device.programs();
    std::string wrong = run_case(device);
    EXPECT_EQ(device.programs(), before) << forced << ": another program was launched";
    return wrong;
}

TEST_F(opencl_self_test_kernels, fused_attention_and_packed_rows_that_are_miscompiled_are_convicted) {
    for (const auto& [forced, text, as] : of_fused)
        EXPECT_NE(convicted(forced, text, as, test_fused_attention, kernel_of_fused), "") << forced << ": " << text;
    for (const auto& [forced, text, as] : of_packed_rows)
        EXPECT_NE(convicted(forced, text, as, test_packed_rows, kernel_of_packed_rows), "") << forced << ": " << text;
}

} // namespace
} // namespace winnow::opencl
