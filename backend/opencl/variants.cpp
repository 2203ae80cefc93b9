// The list of kernel variants and the parser of what is forced.
#include "opencl/variants.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

#include "opencl/runtime.hpp"
#include "page_index_params.h"
#include "slot_group.h"

namespace winnow::opencl {
namespace {

bool every_device(const Capabilities&) { return true; }

// What takes all work-items of a group to fill: anything but a CPU.
bool has_many_lanes(const Capabilities& device) { return device.type != WINNOW_DEVICE_CPU; }

constexpr uint32_t workgroup_items = 128;
bool has_workgroups(const Capabilities& device) {
    return device.takes_barriers && device.max_group_size >= workgroup_items && device.local_memory_size >= 32 * 1024;
}
bool has_subgroups(const Capabilities& device) { return device.subgroup_sizes != 0 && has_workgroups(device); }
bool suits_subgroups(const Capabilities& device) { return has_many_lanes(device) && has_subgroups(device); }
bool suits_workgroups(const Capabilities& device) { return has_many_lanes(device) && has_workgroups(device); }

bool has_slot_groups(const Capabilities& device) {
    return device.takes_barriers && device.max_group_size >= SLOT_GROUP_SIZE &&
           device.local_memory_size >= SLOT_GROUP_MEMORY;
}
bool suits_slot_groups(const Capabilities& device) { return has_many_lanes(device) && has_slot_groups(device); }
bool has_page_groups(const Capabilities& device) {
    return has_slot_groups(device) && device.local_memory_size >= PAGE_GROUP_MEMORY;
}
bool suits_page_groups(const Capabilities& device) { return has_many_lanes(device) && has_page_groups(device); }

// Whether the device gets it right, as far as that was tested.
bool is_right(const Variant& row, const Capabilities& device) {
    const auto& wrong = device.wrong_in_groups;
    return row.group_size == 1 || std::none_of(wrong.begin(), wrong.end(), [&](std::string_view each) {
               return each == row.operation || each == row.entry_point;
           });
}

constexpr int64_t any = std::numeric_limits<int64_t>::max();

// The one kernel of an operation that has no other shape.
constexpr Variant one_work_item(std::string_view operation, std::string_view file) {
    return {operation, "", file, operation, "cpu", 1, every_device, every_device, any, any, nullptr};
}

// A kernel of an operation on slots whose groups have many work-items, each for some slots or rows of a KV head.
constexpr Variant slot_group(std::string_view operation, std::string_view file, uint32_t slots,
                             uint32_t size = SLOT_GROUP_SIZE) {
    return {operation,         "",  file, operation, "workgroup", size, has_slot_groups,
            suits_slot_groups, any, any,  nullptr,   0,           slots};
}

// One of rows whose groups have many work-items, each for a row or a piece of one.
constexpr Variant row_group(std::string_view operation, std::string_view file) {
    return slot_group(operation, file, ROW_GROUP_SIZE, ROW_GROUP_SIZE);
}

// The same of an operation on pages.
constexpr Variant page_group(std::string_view operation, std::string_view file, uint32_t slots) {
    Variant row = slot_group(operation, file, slots);
    row.runs_on = has_page_groups;
    row.suits = suits_page_groups;
    return row;
}

constexpr std::array<Variant, 33> list{{
    // Blocks of rows against blocks of keys, which are read once for all rows of a group. Fewer rows are two groups of
    // the kernel after this at most. As many groups as are there at once in a unit of an NVIDIA GPU
    // (tests/kernel_resources).
    {"sdpa", "prefill", "sdpa_prefill_workgroup.cl", "sdpa_prefill", "workgroup", workgroup_items, has_workgroups,
     suits_workgroups, any, any, sdpa_prefill_workgroup_rows, 3, 0, 17},
    // Any number of rows of a KV head, in blocks, by lanes that exchange numbers without waiting for all others. The
    // two groups of a compute unit are there at once, whatever registers a lane takes, and keep the memory busy.
    {"sdpa", "vector", "sdpa_vector_workgroup.cl", "sdpa_vector", "subgroup", workgroup_items, has_subgroups,
     suits_subgroups, any, any, sdpa_workgroup_rows, 2},
    // The same for devices that need many work-items and say nothing of subgroups.
    {"sdpa", "vector", "sdpa_vector_workgroup.cl", "sdpa_vector", "workgroup", workgroup_items, has_workgroups,
     suits_workgroups, any, any, sdpa_workgroup_rows, 8},
    // All rows of a KV head in one pass over K and V. From 17 rows on the transposition that sdpa_prefill makes first
    // pays.
    {"sdpa", "vector", "sdpa_vector.cl", "sdpa_vector", "cpu", 1, every_device, every_device, 8, 16, sdpa_vector_rows},
    // Blocks of rows against blocks of keys.
    {"sdpa", "prefill", "sdpa_prefill.cl", "sdpa_prefill", "cpu", 1, every_device, every_device, any, any,
     sdpa_prefill_rows},
    // Rows of K and V in one launch.
    row_group("kv_append", "kv_append_workgroup.cl"),
    one_work_item("kv_append", "kv_append.cl"),
    // Rows from format to format, and the rotation alone.
    row_group("kv_requantize", "kv_requantize_workgroup.cl"),
    row_group("kv_dequantize", "kv_dequantize_workgroup.cl"),
    row_group("hadamard", "hadamard_workgroup.cl"),
    one_work_item("kv_requantize", "kv_requantize.cl"),
    one_work_item("kv_dequantize", "kv_dequantize.cl"),
    one_work_item("hadamard", "hadamard.cl"),
    // The operations on slots.
    slot_group("slot_append", "slot_append_workgroup.cl", 64, ROW_GROUP_SIZE),
    slot_group("slot_accumulate", "slot_accumulate_workgroup.cl", SLOT_GROUP_SIZE),
    slot_group("slot_evict", "slot_evict_workgroup.cl", 0),
    slot_group("slot_edit", "slot_edit_workgroup.cl", 1024),
    slot_group("slot_compact", "slot_compact_workgroup.cl", 64),
    slot_group("slot_copy", "slot_copy_workgroup.cl", 64),
    slot_group("slot_scores", "slot_scores_workgroup.cl", 1),
    slot_group("slot_zero", "slot_zero_workgroup.cl", 0),
    one_work_item("slot_append", "slot_append.cl"),
    one_work_item("slot_accumulate", "slot_accumulate.cl"),
    one_work_item("slot_evict", "slot_evict.cl"),
    one_work_item("slot_edit", "slot_edit.cl"),
    one_work_item("slot_compact", "slot_compact.cl"),
    one_work_item("slot_copy", "slot_copy.cl"),
    one_work_item("slot_scores", "slot_scores.cl"),
    one_work_item("slot_zero", "slot_zero.cl"),
    // The operations on pages.
    page_group("page_sign", "page_sign_workgroup.cl", 128),
    page_group("page_pick", "page_pick_workgroup.cl", 0),
    one_work_item("page_sign", "page_sign.cl"),
    one_work_item("page_pick", "page_pick.cl"),
}};

bool can_be_forced(std::string_view kernel) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Variant& row) { return !kernel.empty() && row.forced_as == kernel; });
}

constexpr std::string_view on_slots = "slot_"; // begins the names of the operations on slots

bool is_shape(std::string_view shape, std::string_view of_operations = "") {
    return std::any_of(list.begin(), list.end(), [&](const Variant& row) {
        return row.shape == shape && row.operation.starts_with(of_operations);
    });
}

// The values of one column, each once, in the list's order.
std::string values(std::string_view Variant::*column, std::string_view of_operations = "") {
    std::vector<std::string_view> found;
    std::string text;
    for (const Variant& row : list) {
        const std::string_view value = row.*column;
        if (!row.operation.starts_with(of_operations)) continue;
        if (value.empty() || std::find(found.begin(), found.end(), value) != found.end()) continue;
        found.push_back(value);
        text.append(text.empty() ? "" : "|").append(value);
    }
    return text;
}

std::string choices() {
    return "kernel=" + values(&Variant::forced_as) + ", shape=" + values(&Variant::shape) +
           ", slot_shape=" + values(&Variant::shape, on_slots) +
           ", subgroup=16|32|64, tensor=off|emulated, launches=1|2, splits=N (1 to 1024), host_memory=copy|apart, "
           "optimize=off, params=value|memory, quirks=" +
           quirk_choices() +
           " (several joined by +), group_overhead=N (to 10^9), divided_work=N (to 10^12), groups=N (1 to "
           "1024)";
}

[[noreturn]] void refuse(std::string_view item) {
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT, "variants: \"" + std::string(item) + "\" is not one of " + choices());
}

template <class Number>
Number number(std::string_view item, std::string_view value, Number most) {
    Number result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < 1 || result > most) refuse(item);
    return result;
}

} // namespace

std::span<const Variant> variants() { return list; }

const Variant& choose_variant(std::string_view operation, const Capabilities& capabilities,
                              const VariantOptions& forced, int64_t tokens, int64_t rows,
                              const std::function<bool(const Variant&)>& takes) {
    const Variant* too_small = nullptr;
    const bool is_shape_forced =
        !forced.shape.empty() && std::any_of(list.begin(), list.end(), [&](const Variant& row) {
            return row.operation == operation && row.shape == forced.shape;
        });
    for (const Variant& row : list) {
        if (row.operation != operation || !row.runs_on(capabilities)) continue;
        if (!forced.kernel.empty() && row.forced_as != forced.kernel) continue;
        if (is_shape_forced ? row.shape != forced.shape : !row.suits(capabilities) || !is_right(row, capabilities))
            continue;
        if (tokens > row.most_tokens) {
            too_small = &row;
            continue;
        }
        const bool is_suitable = rows >= row.fewest_rows && rows <= row.most_rows && (!takes || takes(row));
        if (!forced.kernel.empty() || is_suitable) return row;
    }
    if (too_small == nullptr) {
        throw Error(
            WINNOW_ERROR_UNSUPPORTED,
            "no kernel of " + std::string(operation) + (forced.kernel.empty() ? "" : " called " + forced.kernel) +
                (forced.shape.empty() ? "" : " of the shape " + forced.shape) + " runs on this device" +
                (capabilities.quirks.are_any()
                     ? ", whose driver has the quirks " + capabilities.quirks.names() + " (quirks= forces others)"
                     : ""));
    }
    throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(too_small->entry_point) + " takes up to " +
                                              std::to_string(too_small->most_tokens) + " query tokens, given are " +
                                              std::to_string(tokens));
}

Subgroups choose_subgroups(const Capabilities& capabilities, const VariantOptions& forced) {
    Subgroups subgroups{.takes_ptx = capabilities.takes_ptx};
    const bool is_emulated = forced.tensor == "emulated";
    // Elsewhere the lanes of a subgroup share registers; matrices are multiplied by 32.
    const std::array<uint32_t, 3> preferred =
        subgroups.takes_ptx || is_emulated ? std::array<uint32_t, 3>{32, 16, 64} : std::array<uint32_t, 3>{16, 32, 64};
    for (const uint32_t size : preferred) {
        if ((capabilities.subgroup_sizes & size) == 0) continue;
        if (forced.subgroup != 0 && size != forced.subgroup) continue;
        subgroups.size = size;
        break;
    }
    if (subgroups.size == 0)
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "the device has no subgroups of " + std::to_string(forced.subgroup) + " work-items");
    if (is_emulated && (subgroups.size != 32 || subgroups.takes_ptx))
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "tensor cores are emulated on subgroups of 32 work-items, by cl_khr_subgroup_shuffle");
    subgroups.multiplies =
        is_emulated || (forced.tensor.empty() && capabilities.has_tensor_cores && subgroups.size == 32);
    return subgroups;
}

std::string_view kernel_shape(const Capabilities& capabilities) {
    for (const Variant& row : list) // what takes a single row
        if (row.fewest_rows <= 1 && row.suits(capabilities) && is_right(row, capabilities)) return row.shape;
    return "none";
}

VariantOptions parse_variants(std::string_view text) {
    VariantOptions options;
    while (!text.empty()) {
        const size_t comma = text.find(',');
        const std::string_view item = text.substr(0, comma);
        text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
        const size_t equals = item.find('=');
        if (equals == std::string_view::npos) refuse(item);
        const std::string_view key = item.substr(0, equals);
        const std::string_view value = item.substr(equals + 1);
        if (key == "kernel" && can_be_forced(value)) {
            options.kernel = value;
        } else if (key == "shape" && is_shape(value)) {
            options.shape = value;
        } else if (key == "subgroup" && (value == "16" || value == "32" || value == "64")) {
            options.subgroup = number<uint32_t>(item, value, 64);
        } else if (key == "tensor" && (value == "off" || value == "emulated")) {
            options.tensor = value;
        } else if (key == "slot_shape" && is_shape(value, on_slots)) {
            options.slot_shape = value;
        } else if (key == "launches") {
            options.launches = number<uint32_t>(item, value, 2);
        } else if (key == "splits") {
            options.splits = number<uint32_t>(item, value, 1024);
        } else if (key == "group_overhead") {
            options.tuning.group_overhead = number(item, value, most_group_overhead);
        } else if (key == "divided_work") {
            options.tuning.divided_work = number(item, value, most_divided_work);
        } else if (key == "groups") {
            options.tuning.groups = number(item, value, most_groups_of_unit);
        } else if (key == "host_memory" && (value == "copy" || value == "apart")) {
            options.copies = true;
            options.copies_apart = value == "apart";
        } else if (key == "optimize" && value == "off") {
            options.optimizes = false;
        } else if (key == "params" && (value == "value" || value == "memory")) {
            options.params_in_memory = value == "memory";
        } else if (key == "quirks" && parse_quirks(value)) {
            options.quirks = parse_quirks(value);
        } else {
            refuse(item);
        }
    }
    return options;
}

} // namespace winnow::opencl
