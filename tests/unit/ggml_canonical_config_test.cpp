// Canonical configurations, as the tools read them, against the grammar that spells them.
#include "canonical_config.hpp"

#include <gtest/gtest.h>

#include "cache/plan/config.hpp"

namespace winnow::ggml {
namespace {

std::string value_of(const std::string& config, const std::string& key) {
    const std::optional<ValueRange> found = find_value(config, key);
    return found ? config.substr(found->begin, found->size) : "nothing";
}

TEST(ggml_canonical_config, has_values_of_whole_keys) {
    const std::string config = "adaptive_budget:budget=1/8,policy=window,profile_file=/tmp/budget=3:k=f16";
    EXPECT_EQ(value_of(config, "budget"), "1/8");
    EXPECT_EQ(value_of(config, "policy"), "window");
    EXPECT_EQ(value_of(config, "profile_file"), "/tmp/budget=3:k=f16");
    for (const char* key : {"k", "file", "adaptive_budget", ""}) EXPECT_EQ(value_of(config, key), "nothing") << key;
    EXPECT_EQ(value_of("winnow", "budget"), "nothing");
}

TEST(ggml_canonical_config, of_one_family_differ_in_their_budget_alone) {
    const struct {
        const char *config, *family;
    } rows[] = {{"winnow", "winnow"},
                {"winnow:budget=1/4", "winnow"},
                {"winnow:budget=922", "winnow"},
                {"winnow:budget=1/4,k=f16,v=f16", "winnow:k=f16,v=f16"},
                {"winnow:k=f16,budget=8M,v=f16", "winnow:k=f16,v=f16"},
                {"winnow:budget=1/16,recall=host", "winnow:recall=host"},
                {"h2o:max=512,heavy=1/4", "h2o:heavy=1/4"},
                {"none:k=q8_0", "none:k=q8_0"}};
    for (const auto& [config, family] : rows) {
        const std::string found = without_budget(cache::to_string(cache::parse(config)));
        EXPECT_EQ(found, family) << config;
        EXPECT_EQ(cache::to_string(cache::parse(found)), found) << "it is no canonical string";
    }
}

} // namespace
} // namespace winnow::ggml
