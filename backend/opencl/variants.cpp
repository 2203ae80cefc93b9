// The list of kernel variants and the parser of what is forced.
#include "opencl/variants.hpp"

#include <array>
#include <charconv>

#include "opencl/runtime.hpp"

namespace winnow::opencl {
namespace {

constexpr std::array<Variant, 3> list{{
    {"sdpa", "sdpa_vector", "cpu", "f32 f16 bf16",
     "1 to 8 query tokens: all rows of a KV head in one pass over K and V"},
    {"sdpa", "sdpa_prefill", "cpu", "f32 f16 bf16",
     "any number of query tokens: blocks of rows against blocks of keys"},
    {"kv_append", "kv_append", "cpu", "f32 f16 bf16", "rows of K and V in one launch"},
}};

constexpr std::string_view choices = "kernel=vector|prefill, launches=1|2, splits=N (1 to 1024)";

[[noreturn]] void refuse(std::string_view item) {
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT,
                "variants: \"" + std::string(item) + "\" is not one of " + std::string(choices));
}

uint32_t number(std::string_view item, std::string_view value, uint32_t most) {
    uint32_t result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc() || end != value.data() + value.size() || result < 1 || result > most) refuse(item);
    return result;
}

} // namespace

std::span<const Variant> variants() { return list; }

std::string_view kernel_shape(const Capabilities&) {
    return "cpu"; // the only shape so far; it runs on every device
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
        if (key == "kernel" && (value == "vector" || value == "prefill")) {
            options.kernel = value;
        } else if (key == "launches") {
            options.launches = number(item, value, 2);
        } else if (key == "splits") {
            options.splits = number(item, value, 1024);
        } else {
            refuse(item);
        }
    }
    return options;
}

std::string_view format_name(Type type) {
    switch (type) {
    case Type::f32: return "f32";
    case Type::f16: return "f16";
    case Type::bf16: return "bf16";
    default: return "none";
    }
}

bool is_storage_format(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16; }

} // namespace winnow::opencl
