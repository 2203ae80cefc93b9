// From the C descriptions to the checked arguments of the device interface. Everything that depends only on the ABI's
// contract is checked here, once for all backends; what a device cannot do is for the device to refuse.
#pragma once

#include "api/handles.hpp"

namespace winnow::api {

// Whether every tensor must have memory, or may be without (supports). What has memory is checked in either case: it
// is large enough, aligned, and overlaps only what it may.
enum class Memory { required, optional };

// Throw Error with a text that names the argument, what it was and what was expected.
Sdpa to_sdpa(const winnow_context& context, const winnow_sdpa_desc* desc, Memory memory);
KvAppend to_kv_append(const winnow_context& context, const winnow_kv_append_desc* desc, Memory memory);
KvRequantize to_kv_requantize(const winnow_context& context, const winnow_kv_requantize_desc* desc, Memory memory);
KvDequantize to_kv_dequantize(const winnow_context& context, const winnow_kv_dequantize_desc* desc, Memory memory);
Hadamard to_hadamard(const winnow_context& context, const winnow_hadamard_desc* desc, Memory memory);

} // namespace winnow::api
