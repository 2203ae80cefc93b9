// Versions of the ABI, on made-up ones: which table a host gets, and structs that are shorter or longer than ours. No
// real version has a successor so far.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "api/negotiate.hpp"

namespace winnow::api {
namespace {

// Grew twice: 8 bytes in version 9.1, 16 in 9.2, 32 in 9.3.
struct Grown {
    uint32_t struct_size;
    uint32_t first;
    uint64_t second;
    const char* third;
    uint64_t fourth;
};
struct NeverGrown {
    uint32_t struct_size;
    uint32_t first;
};

} // namespace

template <>
inline constexpr std::array earlier_sizes<Grown>{offsetof(Grown, second), offsetof(Grown, third)};

namespace {

// A struct of ours with room behind it, as a newer host's has.
template <class T>
struct Longer {
    T ours;
    unsigned char tail[24];
};

std::string refusal(const std::function<void()>& call, int32_t status) {
    try {
        call();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        return error.what();
    }
    return "";
}

template <class T>
void expect_sizes_read(const std::vector<uint32_t>& known) {
    Longer<T> given;
    for (uint32_t size = 0; size <= sizeof(T); ++size) {
        std::memset(&given, 0xee, sizeof given);
        given.ours.struct_size = size;
        const bool is_known = std::find(known.begin(), known.end(), size) != known.end();
        const std::string text = refusal([&] { read_struct(&given.ours, "desc"); }, WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(text.empty(), is_known) << "struct_size " << size << ": " << text;
        EXPECT_TRUE(is_known || text.find("desc.struct_size is " + std::to_string(size)) != std::string::npos) << text;
    }
}

TEST(api_versions, each_size_that_a_version_had_is_read) {
    expect_sizes_read<Grown>({8, 16, 32});
    expect_sizes_read<NeverGrown>({8});
}

TEST(api_versions, what_an_older_host_does_not_have_is_zero) {
    for (const uint32_t size : {8U, 16U, 32U}) {
        Grown given{size, 1, 2, "three", 4};
        const Grown read = read_struct(&given, "desc");
        EXPECT_EQ(read.first, 1U);
        EXPECT_EQ(read.second, size >= 16 ? 2U : 0U);
        EXPECT_EQ(read.third, size >= 32 ? given.third : nullptr);
        EXPECT_EQ(read.fourth, size >= 32 ? 4U : 0U);
    }
}

TEST(api_versions, what_a_newer_host_has_behind_ours_has_to_be_zero) {
    Longer<Grown> given{};
    given.ours.struct_size = sizeof given;
    EXPECT_EQ(refusal([&] { read_struct(&given.ours, "desc"); }, 0), "");
    for (const size_t at : {static_cast<size_t>(0), sizeof given.tail - 1}) {
        given.tail[at] = 1;
        const std::string text = refusal([&] { read_struct(&given.ours, "desc"); }, WINNOW_ERROR_UNSUPPORTED);
        EXPECT_NE(text.find("a field at byte " + std::to_string(sizeof(Grown) + at)), std::string::npos) << text;
        given.tail[at] = 0;
    }
    given.ours.struct_size = 1U << 17U;
    EXPECT_NE(refusal([&] { read_struct(&given.ours, "desc"); }, WINNOW_ERROR_INVALID_ARGUMENT), "");
}

TEST(api_versions, no_more_is_written_than_a_host_has_and_what_it_knows_beyond_is_zero) {
    for (const uint32_t size : {8U, 16U, 32U, 32U + 8, 32U + 24}) {
        Longer<Grown> target;
        std::memset(&target, 0xa7, sizeof target);
        target.ours.struct_size = size;
        write_struct(&target.ours, Grown{0, 1, 2, nullptr, 4}, "info");
        EXPECT_EQ(target.ours.struct_size, size);
        EXPECT_EQ(target.ours.first, 1U);
        EXPECT_EQ(target.ours.second, size >= 16 ? 2U : 0xa7a7a7a7a7a7a7a7U);
        EXPECT_EQ(target.ours.fourth, size >= 32 ? 4U : 0xa7a7a7a7a7a7a7a7U);
        for (size_t at = 0; at < sizeof target.tail; ++at)
            EXPECT_EQ(target.tail[at], sizeof(Grown) + at < size ? 0 : 0xa7) << size << " bytes, at " << at;
    }
}

// Tables of three versions, of which each is the beginning of the next.
winnow_api table(uint32_t minor) {
    winnow_api made{};
    made.version = WINNOW_MAKE_VERSION(9, minor);
    made.struct_size = 100 * minor;
    return made;
}

winnow_host_info host(uint32_t min_version, uint32_t max_version) {
    return {sizeof(winnow_host_info), min_version, max_version, 0, "test"};
}

TEST(api_versions, a_host_gets_the_highest_version_that_both_speak) {
    const std::array tables = {table(1), table(2), table(3)};
    const auto of = [&](uint32_t low, uint32_t high) {
        return WINNOW_VERSION_MINOR(negotiate(host(low, high), tables).version);
    };
    EXPECT_EQ(of(WINNOW_MAKE_VERSION(9, 1), WINNOW_MAKE_VERSION(9, 1)), 1U); // from the past
    EXPECT_EQ(of(WINNOW_MAKE_VERSION(8, 7), WINNOW_MAKE_VERSION(9, 2)), 2U);
    EXPECT_EQ(of(WINNOW_MAKE_VERSION(9, 3), WINNOW_MAKE_VERSION(9, 3)), 3U);
    EXPECT_EQ(of(WINNOW_MAKE_VERSION(9, 2), WINNOW_MAKE_VERSION(65535, 65535)), 3U); // from the future
    EXPECT_EQ(negotiate(host(WINNOW_MAKE_VERSION(9, 2), WINNOW_MAKE_VERSION(9, 2)), tables).struct_size, 200U);
}

TEST(api_versions, without_a_version_in_common_both_ranges_are_named) {
    const std::array tables = {table(1), table(2), table(3)};
    for (const auto& [low, high] : {std::pair{WINNOW_MAKE_VERSION(7, 1), WINNOW_MAKE_VERSION(8, 65535)},
                                    std::pair{WINNOW_MAKE_VERSION(9, 4), WINNOW_MAKE_VERSION(10, 0)}}) {
        const std::string text =
            refusal([&, low = low, high = high] { negotiate(host(low, high), tables); }, WINNOW_ERROR_VERSION);
        for (const std::string& part : {version_text(low), version_text(high), std::string("9.1"), std::string("9.3")})
            EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    for (const auto& [low, high] : {std::pair{0U, WINNOW_MAKE_VERSION(9, 1)}, std::pair{WINNOW_MAKE_VERSION(9, 1), 0U},
                                    std::pair{WINNOW_MAKE_VERSION(9, 2), WINNOW_MAKE_VERSION(9, 1)}})
        EXPECT_NE(
            refusal([&, low = low, high = high] { negotiate(host(low, high), tables); }, WINNOW_ERROR_INVALID_ARGUMENT),
            "");
}

} // namespace
} // namespace winnow::api
