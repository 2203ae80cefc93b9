// The list of kernel variants and the parser of what is forced.
#include "opencl/variants.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "opencl/runtime.hpp"

namespace winnow::opencl {
namespace {

bool every_device(const Capabilities&) { return true; }

constexpr int64_t any = std::numeric_limits<int64_t>::max();

constexpr std::array<Variant, 15> list{{
    // All rows of a KV head in one pass over K and V. From 17 rows on the transposition that sdpa_prefill makes first
    // pays.
    {"sdpa", "vector", "sdpa_vector.cl", "sdpa_vector", "cpu", every_device, 8, 16, sdpa_vector_rows},
    // Blocks of rows against blocks of keys.
    {"sdpa", "prefill", "sdpa_prefill.cl", "sdpa_prefill", "cpu", every_device, any, any, sdpa_prefill_rows},
    // Rows of K and V in one launch.
    {"kv_append", "", "kv_append.cl", "kv_append", "cpu", every_device, any, any, nullptr},
    // Rows from format to format, and the rotation alone.
    {"kv_requantize", "", "kv_requantize.cl", "kv_requantize", "cpu", every_device, any, any, nullptr},
    {"kv_dequantize", "", "kv_dequantize.cl", "kv_dequantize", "cpu", every_device, any, any, nullptr},
    {"hadamard", "", "hadamard.cl", "hadamard", "cpu", every_device, any, any, nullptr},
    // The operations on slots.
    {"slot_append", "", "slot_append.cl", "slot_append", "cpu", every_device, any, any, nullptr},
    {"slot_accumulate", "", "slot_accumulate.cl", "slot_accumulate", "cpu", every_device, any, any, nullptr},
    {"slot_evict", "", "slot_evict.cl", "slot_evict", "cpu", every_device, any, any, nullptr},
    {"slot_edit", "", "slot_edit.cl", "slot_edit", "cpu", every_device, any, any, nullptr},
    {"slot_compact", "", "slot_compact.cl", "slot_compact", "cpu", every_device, any, any, nullptr},
    {"slot_copy", "", "slot_copy.cl", "slot_copy", "cpu", every_device, any, any, nullptr},
    {"slot_scores", "", "slot_scores.cl", "slot_scores", "cpu", every_device, any, any, nullptr},
    // The operations on pages.
    {"page_sign", "", "page_sign.cl", "page_sign", "cpu", every_device, any, any, nullptr},
    {"page_pick", "", "page_pick.cl", "page_pick", "cpu", every_device, any, any, nullptr},
}};

bool can_be_forced(std::string_view kernel) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Variant& row) { return !kernel.empty() && row.forced_as == kernel; });
}

std::string choices() {
    std::string text = "kernel=";
    for (const Variant& row : list) {
        if (row.forced_as.empty()) continue;
        if (text.back() != '=') text += '|';
        text += row.forced_as;
    }
    return text + ", launches=1|2, splits=N (1 to 1024), host_memory=copy, optimize=off";
}

[[noreturn]] void refuse(std::string_view item) {
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT, "variants: \"" + std::string(item) + "\" is not one of " + choices());
}

uint32_t number(std::string_view item, std::string_view value, uint32_t most) {
    uint32_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < 1 || result > most) refuse(item);
    return result;
}

} // namespace

std::span<const Variant> variants() { return list; }

const Variant& choose_variant(std::string_view operation, const Capabilities& capabilities, std::string_view forced,
                              int64_t tokens, int64_t rows) {
    const Variant* too_small = nullptr;
    for (const Variant& row : list) {
        if (row.operation != operation || !row.runs_on(capabilities)) continue;
        if (!forced.empty() && row.forced_as != forced) continue;
        if (tokens > row.most_tokens) {
            too_small = &row;
            continue;
        }
        if (!forced.empty() || rows <= row.most_rows) return row;
    }
    if (too_small == nullptr) {
        throw Error(WINNOW_ERROR_UNSUPPORTED, "no kernel of " + std::string(operation) + " runs on this device");
    }
    throw Error(WINNOW_ERROR_UNSUPPORTED, std::string(too_small->entry_point) + " takes up to " +
                                              std::to_string(too_small->most_tokens) + " query tokens, given are " +
                                              std::to_string(tokens));
}

std::string_view kernel_shape(const Capabilities& capabilities) {
    for (const Variant& row : list)
        if (row.runs_on(capabilities)) return row.shape;
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
        } else if (key == "launches") {
            options.launches = number(item, value, 2);
        } else if (key == "splits") {
            options.splits = number(item, value, 1024);
        } else if (key == "host_memory" && value == "copy") {
            options.copies = true;
        } else if (key == "optimize" && value == "off") {
            options.optimizes = false;
        } else {
            refuse(item);
        }
    }
    return options;
}

} // namespace winnow::opencl
