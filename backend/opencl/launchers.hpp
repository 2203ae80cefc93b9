// The launchers: each function is in the file that is named like its kernel. Those that remember more than the last
// kernel have headers of their own (sdpa.hpp, slot_accumulate.hpp).
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "device/pages.hpp"
#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/slot_segment.hpp"

namespace winnow::opencl {

// validate: the name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
std::string validate(const Runtime& runtime, const KvAppend& args);
std::string validate(const Runtime& runtime, const KvRequantize& args);
std::string validate(const Runtime& runtime, const KvDequantize& args);
std::string validate(const Runtime& runtime, const Hadamard& args);

// launch: enqueues, and gives the event if one is wanted; throws what validate throws.
std::unique_ptr<Event> launch(Runtime& runtime, const KvAppend& args, bool want_event);
// An append may be deferred for the attention after it (deferred_append.hpp). This launches what was deferred, and so
// checked.
void launch_deferred_append(Runtime& runtime, const KvAppend& args);
std::unique_ptr<Event> launch(Runtime& runtime, const KvRequantize& args, bool want_event);
std::unique_ptr<Event> launch(Runtime& runtime, const KvDequantize& args, bool want_event);
std::unique_ptr<Event> launch(Runtime& runtime, const Hadamard& args, bool want_event);

// The operations on slots and on pages throw UNSUPPORTED with the reason.
void launch(Runtime& runtime, SegmentKernel& kernels, const SlotAppend& args);
void launch(Runtime& runtime, SegmentKernel& kernels, const SlotEvict& args);
void launch(Runtime& runtime, const SlotScores& args);
void launch(Runtime& runtime, const SlotEdit& args);
void launch(Runtime& runtime, const SlotCompact& args);
void launch(Runtime& runtime, const SlotCopy& args);
void launch(Runtime& runtime, const SlotZero& args);
void launch(Runtime& runtime, const PageSign& args);
void launch(Runtime& runtime, const PagePick& args);

} // namespace winnow::opencl
