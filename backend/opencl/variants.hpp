// The one list of kernel variants, and what winnow_context_desc.variants may force. The grammar of names and keys is in
// docs/variants.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/device.hpp"

namespace winnow::opencl {

struct Capabilities;

// One kernel variant. Dispatch, tests and benchmarks read this list.
struct Variant {
    std::string_view operation;   // "sdpa" or "kv_append"
    std::string_view kernel;      // the entry point; kernels/<kernel>.cl holds it
    std::string_view shape;       // the kind of device it is written for (winnow_device_info.kernel_shape)
    std::string_view formats;     // of K and V
    std::string_view description; // when it is chosen and what it needs
};

std::span<const Variant> variants();

// The shape of kernels that is chosen for a device.
std::string_view kernel_shape(const Capabilities& capabilities);

// What is forced. The default forces nothing.
struct VariantOptions {
    std::string kernel;    // of sdpa: "vector" or "prefill"; empty: by the number of rows
    uint32_t launches = 0; // 1: the last group combines the splits, 2: a second launch does; 0: by capability
    uint32_t splits = 0;   // pieces into which the keys are cut; 0: by the amount of work
};

// Reads "key=value,key=value". Throws INVALID_ARGUMENT with the choices, also where a value is "help".
VariantOptions parse_variants(std::string_view text);

// The part of a variant's name, and of a kernel's options, that says how a format stores values: "f16".
std::string_view format_name(Type type);
bool is_storage_format(Type type);

} // namespace winnow::opencl
