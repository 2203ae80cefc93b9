// A program's binary as PoCL 3.1 gives it has the machine code of every kernel, for work-groups of any size, and the
// intermediate code that it was made of. PoCL reads the latter again into each context, 13 to 21 MB of llama.cpp's
// process, and compiles each kernel from it once more at its first launch, for the size of that work-group, which
// Winnow's kernels of one work-item do not gain from. A binary without intermediate code is one that PoCL takes,
// too.
#pragma once

#include <cstddef>
#include <vector>

namespace winnow::opencl {

// The binary without its intermediate code, and with a name of its own in PoCL's cache, where a file of the other
// would be found. What is not exactly such a binary, of this version, comes back as it is.
std::vector<std::byte> without_intermediate_code(const std::vector<std::byte>& binary);

} // namespace winnow::opencl
