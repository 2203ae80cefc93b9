// `winnow eval`: what a configuration of the KV cache costs in quality. It is a Python program, share/winnow/eval.
#pragma once

namespace winnow::tools {

// Becomes that program, with these arguments. Returns only by an exception, if it cannot be started.
[[noreturn]] void run_eval(int argc, char** argv);

} // namespace winnow::tools
