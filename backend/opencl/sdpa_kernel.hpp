// One specialisation of an attention kernel, whichever kernel it is: its name, its compiler options, its programs, and
// how an operation is cut into its work-groups.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "device/device.hpp"
#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/tuning.hpp"
#include "opencl/variants.hpp"
#include "sdpa_params.h"

namespace winnow::opencl {

// One specialisation of one attention kernel; a key of the programs in use.
struct SdpaKernel {
    struct Formats {
        Type k = Type::none;
        Type v = Type::none;
        bool operator==(const Formats&) const = default;
    };
    const Variant* variant = nullptr; // a row of the list
    bool single_launch = false;
    bool slots = false;
    bool is_fused = false;                 // SlotAttend in one launch
    Statistic statistic = Statistic::none; // of fused attention
    bool has_entries = false;              // its memory as addresses in its parameters (kernels/sdpa_entries.h)
    bool is_table = false;                 // several of them in one launch, whose parameters are in memory
    bool append = false;                   // attention that stores a token before, over rows without slots
    bool lengths = false;                  // batch entries have lengths or query offsets of their own
    uint32_t segments = 0;
    std::array<Formats, SDPA_MOST_SEGMENTS> formats;
    uint32_t head_size = 0;
    uint32_t v_head_size = 0;
    uint32_t rows = 0;   // the kernel's ROWS
    Subgroups subgroups; // of the shape "subgroup"

    bool operator==(const SdpaKernel&) const = default;
    std::string name() const;    // "sdpa_vector_cpu_f16_f16_d128_r4"
    std::string options() const; // for the compiler
};

// How an operation is cut into work-groups; sdpa_params.h has the picture.
struct SdpaDivision {
    uint32_t key_begin = 0, key_end = 0; // keys outside are seen by no row
    uint32_t row_blocks = 1;
    uint32_t splits = 1, split_keys = 0;
    uint64_t work_tiles = 0;
    uint64_t work = 0; // multiply-adds of all groups
};

// No row sees a key from seen_end on. Of `forced` its splits and groups count; `tuning` is for the kernel of few rows,
// which is what was measured, as far as its groups go.
SdpaDivision divide(const Sdpa& args, const SdpaKernel& kernel, uint32_t compute_units, const VariantOptions& forced,
                    const Tuning& tuning, int64_t seen_end);

// Where the keys end that a mask of a single row in the host's memory shows; `keys` where it has more rows than one.
// Hosts pad the keys of a decode step to a multiple (llama.cpp: 256), and what the padding seems to cost would divide a
// launch among threads that is not worth it. A mask that hides more than 512 columns at its end is not read further.
int64_t end_of_seen(const Tensor& mask, int64_t keys);

// Where the keys of the segment after `segment` begin, whose own begin at first_key: of several segments each begins at
// a multiple, so that its tiles are whole.
int64_t next_first_key(int64_t first_key, const Segment& segment);

// The kernels in use, found again without making their options' text.
class SdpaPrograms {
public:
    struct Pair {
        Kernel* attend = nullptr;
        Kernel* combine = nullptr; // null where the attention kernel combines
    };
    const Pair& find(Runtime& runtime, const SdpaKernel& kernel);

private:
    struct Hash {
        size_t operator()(const SdpaKernel& kernel) const noexcept;
    };
    std::unordered_map<SdpaKernel, Pair, Hash> pairs_;
};

} // namespace winnow::opencl
