// What a defect of the broken backend is, and the lists of them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "device/device.hpp"
#include "device/pages.hpp"

namespace winnow {

// What a defect does to the arguments before the reference sees them, or to the results after.
struct Defect {
    std::function<void(Sdpa&)> before_sdpa = {};
    std::function<void(const Sdpa&)> after_sdpa = {};
    std::function<void(KvAppend&)> before_append = {};
    std::function<void(const KvAppend&)> after_append = {};
    std::function<void(KvRequantize&)> before_requantize = {};
    std::function<void(const KvRequantize&)> after_requantize = {};
    std::function<void(const KvDequantize&)> after_dequantize = {};
    std::function<void(Hadamard&)> before_hadamard = {};
    std::function<void(const Hadamard&)> after_hadamard = {};
    std::function<void(SlotAppend&)> before_slot_append = {};
    std::function<void(SlotAccumulate&)> before_slot_accumulate = {};
    std::function<void(SlotScores&)> before_slot_scores = {};
    std::function<void(SlotEvict&)> before_slot_evict = {};
    std::function<void(SlotEdit&)> before_slot_edit = {};
    std::function<void(SlotCompact&)> before_slot_compact = {};
    std::function<void(const SlotCompact&)> after_slot_compact = {};
    std::function<void(SlotCopy&)> before_slot_copy = {};
    std::function<void(SlotZero&)> before_slot_zero = {};
    std::function<void(PageSign&)> before_page_sign = {};
    std::function<void(PagePick&)> before_page_pick = {};
};

// Defects of packed formats and of the operations on rows.
std::map<std::string, Defect> format_defects();
// Defects of the operations on slots, as the cache shows them.
std::map<std::string, Defect> slot_defects();
// Defects of the operations on pages, as recall shows them.
std::map<std::string, Defect> page_defects();

// Makes a tensor of four-byte elements a copy of itself without gaps, which may be changed and lives until eight others
// are made.
void make_own_ints(Tensor& tensor);

} // namespace winnow
