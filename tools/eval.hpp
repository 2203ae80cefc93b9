// `winnow eval`: what a configuration of the KV cache costs in quality, and `winnow profile`: what a model's attention
// looks like. They are one Python program, share/winnow/eval.
#pragma once

namespace winnow::tools {

// Becomes that program, with these arguments, of which "profile" may be the first. Returns only by an exception, if it
// cannot be started.
[[noreturn]] void run_eval(int argc, char** argv);

} // namespace winnow::tools
