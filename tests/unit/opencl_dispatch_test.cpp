// The list of kernel variants, and which of its rows a call gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "opencl/kernel_sources.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {
namespace {

Capabilities cpu() {
    Capabilities device;
    device.type = WINNOW_DEVICE_CPU;
    device.local_memory_size = 32 * 1024;
    device.max_group_size = 1024;
    return device;
}

Capabilities gpu() {
    Capabilities device = cpu();
    device.type = WINNOW_DEVICE_GPU;
    return device;
}

// "<entry point> <shape>"
std::string chosen(const Capabilities& device, std::string_view forced, int64_t tokens, int64_t rows) {
    const Variant& variant = choose_variant("sdpa", device, parse_variants(forced), tokens, rows);
    return std::string(variant.entry_point) + " " + std::string(variant.shape);
}

// That the shape which is forced is refused on the device.
void expect_no_workgroups(const Capabilities& device) {
    try {
        chosen(device, "shape=workgroup", 1, 1);
        ADD_FAILURE() << "the shape was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(), "no kernel of sdpa of the shape workgroup runs on this device");
    }
}

TEST(opencl_dispatch, every_row_names_a_kernel_that_is_embedded) {
    std::set<std::string> names;
    for (const Variant& row : variants()) {
        const auto sources = kernel_sources();
        const auto source = std::find_if(sources.begin(), sources.end(),
                                         [&](const KernelSource& candidate) { return candidate.name == row.file; });
        ASSERT_NE(source, sources.end()) << row.file;
        EXPECT_NE(source->source.find(std::string(row.entry_point) + "("), std::string_view::npos) << row.entry_point;
        const std::string name = std::string(row.entry_point) + " " + std::string(row.shape);
        EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
        if (row.forced_as.empty()) continue;
        EXPECT_EQ(parse_variants("kernel=" + std::string(row.forced_as)).kernel, row.forced_as);
    }
}

TEST(opencl_dispatch, the_first_row_that_suits_is_chosen) {
    EXPECT_EQ(chosen(cpu(), "", 1, 1), "sdpa_vector cpu");
    EXPECT_EQ(chosen(cpu(), "", 8, 16), "sdpa_vector cpu");
    EXPECT_EQ(chosen(cpu(), "", 1, 17), "sdpa_prefill cpu");
    EXPECT_EQ(chosen(cpu(), "", 9, 9), "sdpa_prefill cpu");
    EXPECT_EQ(choose_variant("kv_append", cpu(), {}, 0, 0).entry_point, "kv_append");
}

TEST(opencl_dispatch, a_gpu_gets_groups_of_many_work_items_for_any_number_of_rows) {
    EXPECT_EQ(chosen(gpu(), "", 1, 1), "sdpa_vector workgroup");
    EXPECT_EQ(chosen(gpu(), "", 2, 16), "sdpa_vector workgroup");
    EXPECT_EQ(chosen(gpu(), "", 512, 2048), "sdpa_prefill workgroup");
    EXPECT_EQ(chosen(gpu(), "kernel=vector", 512, 2048), "sdpa_vector workgroup");
    EXPECT_EQ(chosen(gpu(), "kernel=prefill", 1, 1), "sdpa_prefill workgroup");
    EXPECT_EQ(chosen(gpu(), "kernel=prefill,shape=cpu", 512, 2048), "sdpa_prefill cpu");
    EXPECT_EQ(chosen(gpu(), "shape=cpu", 1, 1), "sdpa_vector cpu");
    EXPECT_EQ(kernel_shape(gpu()), "workgroup");
    Capabilities device = gpu();
    device.wrong_in_groups = {"sdpa_prefill"}; // as its compiler gets them wrong
    EXPECT_EQ(chosen(device, "", 512, 2048), "sdpa_vector workgroup");
    EXPECT_EQ(chosen(device, "kernel=prefill", 512, 2048), "sdpa_prefill cpu");
}

TEST(opencl_dispatch, a_row_is_passed_over_that_something_else_speaks_against_unless_it_is_forced) {
    const auto vector = [](const Variant& row) { return row.entry_point == "sdpa_vector"; };
    EXPECT_EQ(choose_variant("sdpa", gpu(), {}, 512, 2048, vector).entry_point, "sdpa_vector");
    EXPECT_EQ(choose_variant("sdpa", gpu(), parse_variants("kernel=prefill"), 512, 2048, vector).entry_point,
              "sdpa_prefill");
}

// As many as local memory holds the state of.
TEST(opencl_dispatch, a_group_of_a_prompt_has_32_rows_or_less_where_heads_are_large) {
    Sdpa args;
    args.segments.resize(1);
    const auto rows = [&](int64_t head_size, int64_t v_head_size, uint64_t local_memory) {
        args.q.shape[3] = head_size;
        args.segments[0].v.shape[3] = v_head_size;
        Capabilities device = gpu();
        device.local_memory_size = local_memory;
        return sdpa_prefill_workgroup_rows(args, device);
    };
    EXPECT_EQ(rows(64, 64, 32 * 1024), 32u);
    EXPECT_EQ(rows(128, 128, 32 * 1024), 16u);
    EXPECT_EQ(rows(128, 128, 48 * 1024), 32u);
    EXPECT_EQ(rows(256, 256, 32 * 1024), 16u);
    EXPECT_EQ(rows(256, 256, 48 * 1024), 16u);
    EXPECT_EQ(rows(256, 256, 64 * 1024), 32u);
    EXPECT_EQ(rows(576, 512, 48 * 1024), 8u);
    EXPECT_EQ(rows(576, 512, 16 * 1024), 0u);
}

TEST(opencl_dispatch, without_the_memory_the_group_or_the_compiler_there_are_no_workgroups) {
    Capabilities device = gpu();
    device.local_memory_size = 16 * 1024;
    EXPECT_EQ(chosen(device, "", 1, 1), "sdpa_vector cpu");
    expect_no_workgroups(device);
    device = gpu();
    device.max_group_size = 64;
    EXPECT_EQ(chosen(device, "", 1, 1), "sdpa_vector cpu");
    expect_no_workgroups(device);
    device = cpu();
    EXPECT_EQ(chosen(device, "shape=workgroup", 1, 1), "sdpa_vector workgroup");
    device.takes_barriers = false;
    expect_no_workgroups(device);
}

TEST(opencl_dispatch, subgroups_come_first_where_there_are_some) {
    Capabilities device = gpu();
    device.subgroup_sizes = 16 | 64;
    EXPECT_EQ(chosen(device, "", 1, 1), "sdpa_vector subgroup");
    EXPECT_EQ(chosen(device, "", 512, 2048), "sdpa_prefill workgroup");
    EXPECT_EQ(chosen(device, "shape=subgroup", 512, 2048), "sdpa_vector subgroup");
    EXPECT_EQ(chosen(device, "shape=workgroup", 1, 1), "sdpa_vector workgroup");
    EXPECT_EQ(kernel_shape(device), "subgroup");
    device.type = WINNOW_DEVICE_CPU;
    EXPECT_EQ(chosen(device, "", 1, 1), "sdpa_vector cpu");
    EXPECT_EQ(chosen(device, "shape=subgroup", 1, 1), "sdpa_vector subgroup");
    device.subgroup_sizes = 0;
    EXPECT_THROW(chosen(device, "shape=subgroup", 1, 1), Error);
}

// Of a device with subgroups of 16 and 32; NVIDIA's have 32, their assembler and tensor cores.
TEST(opencl_dispatch, subgroups_are_of_a_size_that_is_there_and_multiply_where_the_device_does) {
    Capabilities device = gpu(), nvidia = gpu();
    device.subgroup_sizes = 16 | 32;
    nvidia.subgroup_sizes = 32;
    nvidia.takes_ptx = nvidia.has_tensor_cores = true;
    const auto subgroups = [](const Capabilities& capabilities, std::string_view forced) {
        return choose_subgroups(capabilities, parse_variants(forced));
    };
    EXPECT_EQ(subgroups(device, ""), (Subgroups{16, false, false}));
    EXPECT_EQ(subgroups(device, "subgroup=32"), (Subgroups{32, false, false}));
    EXPECT_EQ(subgroups(device, "tensor=emulated"), (Subgroups{32, false, true}));
    EXPECT_EQ(subgroups(nvidia, ""), (Subgroups{32, true, true}));
    EXPECT_EQ(subgroups(nvidia, "tensor=off"), (Subgroups{32, true, false}));
    const std::pair<Capabilities*, const char*> refused[] = {{&device, "subgroup=64"},
                                                             {&device, "subgroup=16,tensor=emulated"},
                                                             {&nvidia, "tensor=emulated"},
                                                             {&nvidia, "subgroup=16"}};
    for (const auto& [capabilities, forced] : refused) {
        try {
            subgroups(*capabilities, forced);
            ADD_FAILURE() << forced << " was taken";
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED) << forced;
        }
    }
}

TEST(opencl_dispatch, operations_on_slots_have_groups_of_many_work_items_for_a_gpu) {
    EXPECT_EQ(choose_variant("slot_copy", gpu(), {}, 0, 0).shape, "workgroup");
    EXPECT_EQ(choose_variant("slot_copy", cpu(), {}, 0, 0).shape, "cpu");
    EXPECT_EQ(choose_variant("slot_copy", gpu(), parse_variants("shape=cpu"), 0, 0).shape, "cpu");
    EXPECT_EQ(choose_variant("slot_copy", cpu(), parse_variants("shape=workgroup"), 0, 0).shape, "workgroup");
    Capabilities device = gpu();
    device.max_group_size = 128;
    EXPECT_EQ(choose_variant("slot_copy", device, {}, 0, 0).shape, "cpu");
    device = gpu();
    device.takes_barriers = false;
    EXPECT_EQ(choose_variant("slot_copy", device, {}, 0, 0).shape, "cpu");
    EXPECT_THROW(choose_variant("slot_copy", device, parse_variants("shape=workgroup"), 0, 0), Error);
}

TEST(opencl_dispatch, operations_on_rows_have_groups_of_many_work_items_for_a_gpu) {
    for (const char* operation : {"kv_append", "kv_requantize", "kv_dequantize", "hadamard"}) {
        EXPECT_EQ(choose_variant(operation, gpu(), {}, 0, 0).group_size, 64u) << operation;
        EXPECT_EQ(choose_variant(operation, cpu(), {}, 0, 0).group_size, 1u) << operation;
        EXPECT_EQ(choose_variant(operation, gpu(), parse_variants("shape=cpu"), 0, 0).group_size, 1u) << operation;
    }
}

TEST(opencl_dispatch, an_operation_without_the_forced_shape_keeps_its_own) {
    EXPECT_EQ(choose_variant("kv_append", cpu(), parse_variants("shape=subgroup"), 0, 0).shape, "cpu");
    EXPECT_EQ(choose_variant("kv_append", gpu(), parse_variants("shape=subgroup"), 0, 0).shape, "workgroup");
}

TEST(opencl_dispatch, a_group_takes_as_many_rows_as_its_local_memory_holds) {
    Sdpa args;
    args.q.shape = {1, 8, 1, 128};
    Segment& stored = args.segments.emplace_back();
    stored.k.shape = stored.v.shape = {1, 1, 64, 128};
    Capabilities device = gpu();
    device.local_memory_size = 48 * 1024;
    EXPECT_EQ(sdpa_workgroup_rows(args, device), 8u);
    device.local_memory_size = 32 * 1024;
    EXPECT_EQ(sdpa_workgroup_rows(args, device), 4u);
    args.q.shape[3] = stored.k.shape[3] = 576;
    stored.v.shape[3] = 512;
    EXPECT_EQ(sdpa_workgroup_rows(args, device), 2u);
}

TEST(opencl_dispatch, what_is_forced_is_chosen_or_refused) {
    EXPECT_EQ(chosen(cpu(), "kernel=prefill", 1, 1), "sdpa_prefill cpu");
    EXPECT_EQ(chosen(cpu(), "kernel=vector", 8, 800), "sdpa_vector cpu");
    try {
        chosen(cpu(), "kernel=vector", 9, 9);
        ADD_FAILURE() << "nine tokens were taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(), "sdpa_vector takes up to 8 query tokens, given are 9");
    }
    EXPECT_THROW(choose_variant("no such operation", cpu(), {}, 1, 1), Error);
}

// Which a list of devices needs, to name the shape that a context has.
TEST(opencl_dispatch, a_device_says_without_a_context_what_its_groups_may_have) {
    for (const DeviceEntry& entry : list_devices()) {
        const Capabilities told = told_capabilities(entry, known_quirks_of(entry.info));
        EXPECT_EQ(told.type, entry.info.type) << entry.info.name;
        EXPECT_GT(told.max_group_size, 1u) << entry.info.name;
        EXPECT_GT(told.local_memory_size, 0u) << entry.info.name;
        EXPECT_EQ(told.takes_barriers, entry.info.platform != std::string("Portable Computing Language"))
            << entry.info.name;
        EXPECT_TRUE(told_capabilities(entry, {}).takes_barriers) << entry.info.name;
    }
}

TEST(opencl_dispatch, the_shape_is_that_of_the_rows_that_run_there) { EXPECT_EQ(kernel_shape(cpu()), "cpu"); }

} // namespace
} // namespace winnow::opencl
