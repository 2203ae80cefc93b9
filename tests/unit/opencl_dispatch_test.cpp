// The list of kernel variants, and which of its rows a call gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "opencl/kernel_sources.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {
namespace {

std::string chosen(std::string_view forced, int64_t tokens, int64_t rows) {
    return std::string(choose_variant("sdpa", Capabilities{}, forced, tokens, rows).entry_point);
}

TEST(opencl_dispatch, every_row_names_a_kernel_that_is_embedded) {
    std::set<std::string_view> names;
    for (const Variant& row : variants()) {
        const auto sources = kernel_sources();
        const auto source = std::find_if(sources.begin(), sources.end(),
                                         [&](const KernelSource& candidate) { return candidate.name == row.file; });
        ASSERT_NE(source, sources.end()) << row.file;
        EXPECT_NE(source->source.find(std::string(row.entry_point) + "("), std::string_view::npos) << row.entry_point;
        EXPECT_TRUE(names.insert(row.entry_point).second) << row.entry_point << " is there twice";
        if (row.forced_as.empty()) continue;
        EXPECT_EQ(parse_variants("kernel=" + std::string(row.forced_as)).kernel, row.forced_as);
    }
}

TEST(opencl_dispatch, the_first_row_that_suits_is_chosen) {
    EXPECT_EQ(chosen("", 1, 1), "sdpa_vector");
    EXPECT_EQ(chosen("", 8, 16), "sdpa_vector");
    EXPECT_EQ(chosen("", 1, 17), "sdpa_prefill");
    EXPECT_EQ(chosen("", 9, 9), "sdpa_prefill");
    EXPECT_EQ(choose_variant("kv_append", Capabilities{}, "", 0, 0).entry_point, "kv_append");
}

TEST(opencl_dispatch, what_is_forced_is_chosen_or_refused) {
    EXPECT_EQ(chosen("prefill", 1, 1), "sdpa_prefill");
    EXPECT_EQ(chosen("vector", 8, 800), "sdpa_vector");
    try {
        chosen("vector", 9, 9);
        ADD_FAILURE() << "nine tokens were taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(), "sdpa_vector takes up to 8 query tokens, given are 9");
    }
    EXPECT_THROW(choose_variant("no such operation", Capabilities{}, "", 1, 1), Error);
}

TEST(opencl_dispatch, the_shape_is_that_of_the_rows_that_run_there) { EXPECT_EQ(kernel_shape(Capabilities{}), "cpu"); }

} // namespace
} // namespace winnow::opencl
