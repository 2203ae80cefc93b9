// The ggml that this is compiled for. Its structs, the numbers of its operations and its types change from release to
// release; what changed stands in one file of versions/ for each layout, which the build names. All else that this host
// takes for granted is in layout_facts.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace winnow::ggml {

// What Winnow reads of one layout of ggml's. Sizes are in bytes.
struct Layout {
    std::string_view versions;     // of ggml that are known to have it
    std::size_t buffer_interface;  // ggml_backend_buffer_i
    std::size_t backend_interface; // ggml_backend_i
    std::size_t graph;             // ggml_cgraph
    std::size_t capabilities;      // ggml_backend_dev_caps
    int flash_attn_ext;            // GGML_OP_FLASH_ATTN_EXT
};

} // namespace winnow::ggml

// Such a file defines: `layout`; GraphOptimize, the type of ggml_backend_i::graph_optimize; newer_types, those of the
// host-converted types that not every release has; allow_mmap, which lets llama.cpp map files in spite of this device.
#include WINNOW_GGML_LAYOUT
