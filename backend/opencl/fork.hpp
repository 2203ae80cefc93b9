// After a fork the child has the memory of its parent and none of its threads: what a driver of OpenCL began in the
// parent never ends in the child, which would wait for it forever.
#pragma once

namespace winnow::opencl {

// To be called before OpenCL is used. Throws UNSUPPORTED in a process that was forked after that.
void begin_use();

// Whether this process is such a one. Costs a load.
bool is_forked() noexcept;

} // namespace winnow::opencl
