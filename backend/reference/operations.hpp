// The operations in plain double-precision loops: the executable definition of the descriptions in winnow.h, and of the
// structs in device/slots.hpp and device/pages.hpp. Each function is in the file that is named like it.
#pragma once

#include "device/pages.hpp"
#include "device/slots.hpp"

namespace winnow::reference {

// Throw Error(UNSUPPORTED) where the reference cannot carry an operation out.
void require_supported(const Sdpa& args);
void require_supported(const KvAppend& args);
void require_supported(const KvRequantize& args);
void require_supported(const KvDequantize& args);
void require_supported(const Hadamard& args);

void sdpa(const Sdpa& args);
void kv_append(const KvAppend& args);
void kv_requantize(const KvRequantize& args);
void kv_dequantize(const KvDequantize& args);
void hadamard(const Hadamard& args);
void slot_append(const SlotAppend& args);
void slot_accumulate(const SlotAccumulate& args);
void slot_scores(const SlotScores& args);
void slot_evict(const SlotEvict& args);
void slot_edit(const SlotEdit& args);
void slot_compact(const SlotCompact& args);
void slot_copy(const SlotCopy& args);
void slot_zero(const SlotZero& args);
void page_sign(const PageSign& args);
void page_pick(const PagePick& args);

} // namespace winnow::reference
