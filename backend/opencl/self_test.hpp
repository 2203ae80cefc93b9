// Whether attention comes out right where kernels are more than plain OpenCL C (subgroups, tensor cores, groups of many
// work-items): a small case against arithmetic of the host, when a context is made. A driver that compiles such a
// kernel wrong, or not at all, gets the next shape, and the log says so.
#pragma once

#include <functional>
#include <string>

#include "device/device.hpp"

namespace winnow::opencl {

struct Capabilities;
struct VariantOptions;

// Enqueues an attention over host memory and waits for it. Throws what fails.
using Attend = std::function<void(const Sdpa&)>;

// What is wrong with an attention of one token, or of a prompt, over keys and values in f16; empty: nothing. Throws
// what attend throws of UNSUPPORTED and OUT_OF_MEMORY.
std::string test_attention(const Attend& attend, bool is_prompt = false);

// Takes away what makes a device's shape one that comes out wrong, until one is right or the shape is "cpu", which has
// nothing after it; and likewise the kernel for prompts, without which they get that of few tokens. What is forced
// stays. capabilities: those that `attend` goes by.
void leave_out_wrong_shapes(Capabilities& capabilities, const VariantOptions& forced, const Log& log,
                            const Attend& attend);

} // namespace winnow::opencl
