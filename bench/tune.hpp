// `winnow tune`.
#pragma once

namespace winnow::bench {

int run_tune(int argc, char** argv);

} // namespace winnow::bench
