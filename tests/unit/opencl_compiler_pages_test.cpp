// Where kernels were made and run, the code of the driver's compiler leaves the process with the next wait.
#include "opencl/compiler_pages.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include <unistd.h>

#include "device/clock.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

// KiB of LLVM's and Clang's code that this process has mapped, as the system counts them.
long resident_compiler_code() {
    std::ifstream maps("/proc/self/smaps");
    long total = 0;
    bool is_code = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("kB") == std::string::npos && line.find('-') < line.find(' ')) // a mapping begins
            is_code = line.find(" r-xp ") != std::string::npos &&
                      (line.find("/libLLVM") != std::string::npos || line.find("/libclang-cpp") != std::string::npos);
        else if (is_code && line.rfind("Rss:", 0) == 0)
            total += std::stol(line.substr(4));
    }
    return total;
}

constexpr long little = 1024; // KiB: the loader reads the first page of a library, and the system maps more around it

// What no test before and no process before this one has compiled, so that it is in nobody's cache.
void compile(Runtime& runtime) {
    static int count = 0;
    const std::string source = "/* " + std::to_string(::getpid()) + " " + std::to_string(monotonic_ns()) + " " +
                               std::to_string(++count) + " */\nkernel void nothing() {}\n";
    runtime.state().programs.kernel_of_source("nothing", source, "nothing", {});
}

class opencl_compiler_pages : public opencl_test {};

TEST_F(opencl_compiler_pages, are_given_back_with_the_next_wait) {
    Runtime runtime(cpu_request());
    compile(runtime);
    if (resident_compiler_code() == 0) WINNOW_SKIP_WITHOUT_POCL("no LLVM in this process");
    EXPECT_GT(resident_compiler_code(), little) << "the test sees nothing";
    runtime.finish();
    EXPECT_LT(resident_compiler_code(), little);
    EXPECT_GT(release_compiler_pages(), size_t{4096} << 10U) << "bytes of code, resident or not";
    Runtime another(cpu_request()); // the compiler works after that as before
    compile(another);
    another.finish();
    EXPECT_LT(resident_compiler_code(), little);
}

} // namespace
} // namespace winnow::opencl
