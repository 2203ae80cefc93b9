// The sizes of recall: how many pages a KV head attends to inside a budget in bytes, and where its small tensors lie.
#pragma once

#include <cstdint>

#include "cache/plan/budget.hpp"
#include "device/pages.hpp"

namespace winnow::cache {

struct RecallSizes {
    SignatureKind kind = SignatureKind::signs; // of the signatures
    int64_t page_slots = 0;                    // 0: the configuration recalls nothing
    int64_t frames = 0;                        // pages in the hot slots of a KV head
    float bonus = 0;                           // on the score of a page in a frame
    int64_t newest = 0;                        // packed rows that every query picks
    int64_t blocks = 0;                        // of signatures, for all tokens that may stay
    int64_t stretch_slots = 0;                 // of the cold segment, to which a prompt attends at once
    int64_t signed_slots = 0;                  // of the cold segment, signed at once where all of it is
    StateLayout::Range signatures, frame_pages, counts, centers; // of one layer, in one buffer
    uint64_t index_bytes = 0;                                    // that buffer's
    StateLayout::Range codebooks;                                // in the one of all layers
    uint64_t budget_bytes = 0;                                   // of one layer

    explicit operator bool() const { return page_slots > 0; }
    int64_t hot_slots() const { return frames * page_slots; }
    // Of how many packed rows, of the oldest ones, signatures have their center where there are so many: a power of
    // two, so that pages are signed anew only now and then, and no more than are signed at once; with codes 0.
    int64_t center_rows(int64_t rows) const;
};

// What else the sizes of a layer follow from.
struct RecallNeeds {
    uint64_t budget_bytes = 0;
    uint64_t fixed_bytes = 0; // of its dense rows and state
    uint64_t hot_slot_bytes = 0;
    int64_t cold_slots = 0;
};

// Those of one layer, without codebooks. A budget of bytes in which not even one page fits is refused; a share is at
// least what dense rows, signatures and 8 pages take.
RecallSizes recall_sizes(const Config& config, const LayerShape& shape, const RecallNeeds& needs);

} // namespace winnow::cache
