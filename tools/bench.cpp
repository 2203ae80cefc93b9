// Starting winnow-bench, which is built with the benchmarks alone.
#include "bench.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "installation.hpp"

namespace winnow::tools {

void run_bench(int argc, char** argv) {
    std::string program = (own_folder() / "winnow-bench").string();
    std::vector<char*> command{program.data()};
    command.insert(command.end(), argv, argv + argc);
    command.push_back(nullptr);
    execv(command[0], command.data());
    throw std::runtime_error(
        "bench: cannot start " + program +
        ", which only a build with -DWINNOW_BUILD_BENCH=ON and without ggml installs: " + std::strerror(errno));
}

} // namespace winnow::tools
