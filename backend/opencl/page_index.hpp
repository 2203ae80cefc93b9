// What the launchers of the operations on pages share: the page index bound to a kernel's arguments.
#pragma once

#include "device/pages.hpp"
#include "opencl/runtime.hpp"
#include "opencl/slot_segment.hpp"
#include "page_index_params.h"

namespace winnow::opencl {

struct BoundPages {
    const Memory* signatures = nullptr;
    const Memory* frames = nullptr;
    const Memory* centers = nullptr;
    const Memory* codebooks = nullptr; // none where signatures are of signs
    page_index params{};
};

inline BoundPages bind_pages(Operation& operation, const PageIndex& index, Access signatures_access) {
    const Bound signatures = operation.bind(index.signatures, signatures_access),
                frames = operation.bind(index.frames, Access::read_write),
                centers = operation.bind(index.centers, signatures_access),
                codebooks = operation.bind(index.codebooks, Access::read);
    return {signatures.memory, frames.memory, centers.memory, codebooks.memory,
            page_index{view_of_heads(index.signatures, signatures), view_of_heads(index.frames, frames),
                       view_of_heads(index.centers, centers), view_of_heads(index.codebooks, codebooks),
                       index.signatures.stride[2], static_cast<uint32_t>(index.page_slots),
                       static_cast<uint32_t>(index.frames.shape[3])}};
}

// Of the signatures of `pages` pages, of all KV heads, with the others of their blocks.
inline uint64_t bytes_of_signatures(const PageIndex& index, uint64_t pages) {
    const uint64_t blocks = (pages + block_pages - 1) / block_pages;
    return blocks * static_cast<uint64_t>(index.signatures.shape[1]) *
           row_bytes(index.signatures.type, index.signatures.shape[3]);
}

// The option of a program for signatures of this kind.
inline const char* option_of(SignatureKind kind) { return kind == SignatureKind::codes ? " -DCODES" : ""; }

} // namespace winnow::opencl
