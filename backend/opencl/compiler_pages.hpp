// A driver's compiler is a large library, and what ran of it once stays mapped: 54 MB of LLVM and Clang with PoCL, in a
// process that compiles nothing any more.
#pragma once

#include <cstddef>

namespace winnow::opencl {

// Gives back the code of the compilers that are loaded into this process. It is the system's page cache that has it:
// code that is called again is mapped again, without a read from the disk where it is still in memory. Returns how many
// bytes of code these libraries have; 0 where there are none, or where the system has no such call.
size_t release_compiler_pages();

} // namespace winnow::opencl
