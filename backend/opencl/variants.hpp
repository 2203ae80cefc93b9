// The one list of kernel variants, and what winnow_context_desc.variants may force. The grammar of names and keys is in
// docs/variants.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "device/device.hpp"
#include "opencl/quirks.hpp"
#include "opencl/tuning.hpp"

namespace winnow::opencl {

struct Capabilities;

// One kernel variant: what dispatch knows about it.
struct Variant {
    std::string_view operation;           // "sdpa", "kv_append", ...
    std::string_view forced_as;           // its value of kernel=; empty where the operation has one kernel
    std::string_view file;                // of the embedded ones
    std::string_view entry_point;         // begins the variant's name, too
    std::string_view shape;               // the kind of device it is written for (winnow_device_info.kernel_shape)
    uint32_t group_size;                  // work-items of a group
    bool (*runs_on)(const Capabilities&); // what it needs of the device
    bool (*suits)(const Capabilities&);   // the devices that it is written for: elsewhere it runs where it is forced
    int64_t most_tokens;                  // what it needs of the call: this many query tokens at most
    int64_t most_rows;                    // of one KV head (query heads times tokens), unless it is forced
    // That a work-group takes, 0 where it cannot have any; null where the operation has none.
    uint32_t (*rows_of_group)(const Sdpa&, const Capabilities&);
    uint32_t groups_of_unit = 0; // of attention, that a compute unit is given where groups have many work-items
    uint32_t slots_of_group = 0; // or rows, of an operation on slots; 0: as its launcher divides them
    int64_t fewest_rows = 0;     // of one KV head, unless it is forced
};

uint32_t sdpa_vector_rows(const Sdpa& args, const Capabilities&);  // of a pass
uint32_t sdpa_prefill_rows(const Sdpa& args, const Capabilities&); // of a work-group
uint32_t sdpa_workgroup_rows(const Sdpa& args, const Capabilities& capabilities);
uint32_t sdpa_prefill_workgroup_rows(const Sdpa& args, const Capabilities& capabilities);

// In the order of preference.
std::span<const Variant> variants();

// What is forced. The default forces nothing.
struct VariantOptions {
    std::string kernel;        // of sdpa: "vector" or "prefill"; empty: by the number of rows
    std::string shape;         // "cpu", "workgroup" or "subgroup", of operations that have it; empty: by the device
    std::string slot_shape;    // of the operations on slots, pages and rows, before `shape`
    uint32_t subgroup = 0;     // work-items of a subgroup: 16, 32 or 64; 0: by the device
    std::string tensor;        // "off": no tensor cores; "emulated": lanes compute what they do; empty: by the device
    uint32_t launches = 0;     // 1: the last group combines the splits, 2: a second launch does; 0: by capability
    uint32_t splits = 0;       // parts into which the keys are cut; 0: by the amount of work
    bool copies = false;       // host memory is copied, even where the device reaches it
    bool copies_apart = false; // each tensor into memory of its own
    bool optimizes = true;     // the driver's compiler; without, programs are there sooner and are slow
    TuningChanges tuning;      // how work is divided, where it is not as measured
    std::optional<bool> params_in_memory; // whether kernels get their parameters so; none: by the device
    std::optional<Quirks> quirks;         // the driver's, and no others; none: those that are known of it
};

// The first of the list that runs there and suits device and call, or that is forced. An operation that has no kernel
// of the forced shape keeps its own. takes: what else a row has to suit, unless its kernel is forced. Throws
// UNSUPPORTED.
const Variant& choose_variant(std::string_view operation, const Capabilities& capabilities,
                              const VariantOptions& forced, int64_t tokens, int64_t rows,
                              const std::function<bool(const Variant&)>& takes = nullptr);

// The subgroups of a kernel of the shape "subgroup", and whether it multiplies small matrices. Throws UNSUPPORTED.
struct Subgroups {
    uint32_t size = 0;
    bool takes_ptx = false;
    bool multiplies = false;

    bool operator==(const Subgroups&) const = default;
};
Subgroups choose_subgroups(const Capabilities& capabilities, const VariantOptions& forced);

// The shape of kernels that is chosen for a device.
std::string_view kernel_shape(const Capabilities& capabilities);

// Reads "key=value,key=value". Throws INVALID_ARGUMENT with the choices, also where a value is "help".
VariantOptions parse_variants(std::string_view text);

} // namespace winnow::opencl
