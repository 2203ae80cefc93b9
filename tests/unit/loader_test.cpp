// The loader: what it finds, what it refuses, and that it says what it tried.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "winnow_loader.h"

namespace {

struct Opened {
    explicit Opened(const char* name, const winnow_host_info* host = nullptr) {
        status = winnow_library_open(name, host, &library, message, sizeof message);
    }
    ~Opened() { winnow_library_close(&library); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

    winnow_library library{};
    char message[2048] = "";
    int32_t status;
};

TEST(loader, a_short_name_is_found_beside_the_program) {
    const Opened opened("reference");
    ASSERT_EQ(opened.status, WINNOW_OK) << opened.message;
    EXPECT_STREQ(opened.library.api->backend_name, "reference");
}

TEST(loader, the_environment_names_the_default) {
    setenv("WINNOW_BACKEND", "reference", 1);
    const Opened opened(nullptr);
    unsetenv("WINNOW_BACKEND");
    ASSERT_EQ(opened.status, WINNOW_OK) << opened.message;
    EXPECT_STREQ(opened.library.api->backend_name, "reference");
}

TEST(loader, what_is_not_there_is_not_found) {
    for (const char* name : {"no_such_backend", "/no/such/place.so"}) {
        const Opened opened(name);
        EXPECT_EQ(opened.status, WINNOW_ERROR_NOT_FOUND);
        EXPECT_NE(std::string(opened.message).find(name), std::string::npos) << opened.message;
        EXPECT_EQ(opened.library.api, nullptr);
        EXPECT_EQ(opened.library.handle, nullptr);
    }
}

TEST(loader, a_version_that_the_backend_does_not_speak_is_refused) {
    winnow_host_info host{};
    host.struct_size = sizeof host;
    host.min_version = WINNOW_MAKE_VERSION(90, 0);
    host.max_version = WINNOW_MAKE_VERSION(91, 0);
    const Opened opened("reference", &host);
    EXPECT_EQ(opened.status, WINNOW_ERROR_VERSION);
    EXPECT_NE(std::string(opened.message).find("90.0"), std::string::npos) << opened.message;
    EXPECT_EQ(opened.library.api, nullptr);
}

TEST(loader, nothing_to_fill_is_refused_and_nothing_to_close_is_fine) {
    EXPECT_EQ(winnow_library_open("reference", nullptr, nullptr, nullptr, 0), WINNOW_ERROR_INVALID_ARGUMENT);
    winnow_library_close(nullptr);
    winnow_library empty{};
    winnow_library_close(&empty);
}

} // namespace
