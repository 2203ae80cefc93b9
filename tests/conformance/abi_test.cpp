// The C boundary: the checks of tests/abi, which are written in C, on a copy of the backend under test.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <memory>

#include "abi.h"
#include "registered_cases.hpp"
#include "registration.hpp"
#include "session.hpp"

namespace winnow::conformance {
namespace {

// A copy, since the backend itself stays loaded for the whole run and could not be seen to unload.
class Copy {
public:
    explicit Copy(const std::string& of)
        : path_(std::filesystem::temp_directory_path() / ("winnow-conformance-" + std::to_string(getpid()) + ".so")) {
        std::filesystem::copy_file(of, path_, std::filesystem::copy_options::overwrite_existing);
    }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    ~Copy() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

void run_check(const abi_check& check) {
    const Copy copy(subject().path());
    const auto run = std::make_unique<abi_run>();
    run->path = copy.path().c_str();
    run->device = subject().device().c_str();
    check.run(run.get());
    EXPECT_GT(run->expectations, 0);
    if (run->failures > 0) ADD_FAILURE() << run->report;
}

} // namespace

void register_abi_checks() {
    for (const abi_check* check = abi_checks; check->name; ++check)
        register_function("abi", check->name, __FILE__, __LINE__, [check] { run_check(*check); });
}

} // namespace winnow::conformance
