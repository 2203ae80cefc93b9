// The subcommands that are Python programs: `winnow profile` and `winnow calibrate`, which look at a model's attention
// and train what policies read, and the front of the lab, `winnow eval` and `winnow allocate`.
#pragma once

namespace winnow::tools {

// Becomes that program; the first argument is the name of the subcommand. Returns only by an exception, if it cannot be
// started.
[[noreturn]] void run_calibrate(int argc, char** argv);
[[noreturn]] void run_lab(int argc, char** argv);

} // namespace winnow::tools
