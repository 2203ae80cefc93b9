// The statuses that exceptions become, and what refusals of flags say.
#include "api/guard.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "api/structs.hpp"

namespace winnow::api {
namespace {

TEST(api_guard, a_status_is_kept_where_its_text_cannot_be) {
    const auto fails = [](int32_t, const char*) { throw std::bad_alloc(); };
    EXPECT_EQ(guarded([] {}, fails), WINNOW_OK);
    EXPECT_EQ(guarded([] { throw std::bad_alloc(); }, fails), WINNOW_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(guarded([] { throw Error(WINNOW_ERROR_DEVICE, "lost"); }, fails), WINNOW_ERROR_DEVICE);
    EXPECT_EQ(guarded([] { throw std::logic_error("a defect"); }, fails), WINNOW_ERROR_INTERNAL);
    EXPECT_EQ(guarded([] { throw 1; }, fails), WINNOW_ERROR_INTERNAL);
}

TEST(api_guard, a_text_is_reported_with_its_status) {
    std::string reported;
    const auto report = [&](int32_t status, const char* text) { reported = std::to_string(status) + " " + text; };
    EXPECT_EQ(guarded([] { throw Error(WINNOW_ERROR_UNSUPPORTED, "not here"); }, report), WINNOW_ERROR_UNSUPPORTED);
    EXPECT_EQ(reported, std::to_string(WINNOW_ERROR_UNSUPPORTED) + " not here");
    EXPECT_EQ(guarded([] { throw std::bad_alloc(); }, report), WINNOW_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(reported, std::to_string(WINNOW_ERROR_OUT_OF_MEMORY) + " out of host memory");
}

TEST(api_flags, a_refusal_names_the_bits_that_nobody_knows) {
    const auto refusal = [](uint32_t flags, uint32_t known) -> std::string {
        try {
            check_flags(flags, "desc", known);
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    };
    EXPECT_EQ(refusal(1, 1), "");
    EXPECT_EQ(refusal(5, 1), "desc.flags is 5, of which no version defines 4");
    EXPECT_EQ(refusal(5, 0), "desc.flags is 5, of which no version defines any");
}

} // namespace
} // namespace winnow::api
