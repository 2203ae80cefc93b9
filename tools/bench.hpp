// `winnow bench`: how fast a backend's operations are. It is the program winnow-bench, beside this one.
#pragma once

namespace winnow::tools {

// Becomes that program, with these arguments. Returns only by an exception, if it cannot be started.
[[noreturn]] void run_bench(int argc, char** argv);

} // namespace winnow::tools
