// Which configuration a cache gets by rules, and what is refused.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kv_rules.hpp"

namespace {

using winnow::ggml::config_for;
using winnow::ggml::parse_rules;

void expect(bool condition, const std::string &text) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s\n", text.c_str());
    std::exit(1);
}

winnow_cache_desc shape(int64_t layers, int64_t kv_heads, int64_t head_size, int64_t cells) {
    winnow_cache_desc desc{};
    desc.layers = layers;
    desc.kv_num_heads = kv_heads;
    desc.head_size = head_size;
    desc.cells = cells;
    return desc;
}

void expect_config(const std::string &text, const winnow_cache_desc &of, const std::string &wanted) {
    const std::string found = config_for(parse_rules(text), of);
    expect(found == wanted, text + " gives " + found + ", expected " + wanted);
}

template <typename Action>
void expect_refusal(const std::string &what, const std::string &wanted, Action &&action) {
    try {
        action();
    } catch (const std::runtime_error &error) {
        expect(std::string(error.what()).find(wanted) != std::string::npos,
               what + ": \"" + error.what() + "\" does not say \"" + wanted + "\"");
        return;
    }
    expect(false, what + " was not refused");
}

void expect_no_rules(const std::string &text, const std::string &wanted) {
    expect_refusal(text, wanted, [&] { parse_rules(text); });
}

} // namespace

int main() {
    const winnow_cache_desc draft = shape(30, 3, 64, 4096), target = shape(36, 8, 128, 4096);
    expect_config("winnow:budget=1/4", draft, "winnow:budget=1/4");
    expect_config("adaptive_budget:profile_file=a;b[1]", draft, "adaptive_budget:profile_file=a;b[1]");
    const std::string two = "[layers=30,head_size=64]winnow:budget=1/8,k=q8_0;winnow";
    expect_config(two, draft, "winnow:budget=1/8,k=q8_0");
    expect_config(two, target, "winnow");
    expect_config("[layers=30]h2o;[kv_heads=8]window;none", target, "window");
    expect_config("[cells=4096]h2o;[kv_heads=8]window", target, "h2o"); // the first that fits
    expect_config("[layers=36,kv_heads=8,head_size=128,cells=4096]none", target, "none");

    expect_refusal("a cache that no rule fits", "layers=36,kv_heads=8,head_size=128,cells=4096",
                   [&] { config_for(parse_rules("[layers=30]winnow;[layers=36,cells=8]none"), target); });
    expect_no_rules("[layers=30", "no ]");
    expect_no_rules("[]winnow", "expected layers=");
    expect_no_rules("[heads=3]winnow", "\"heads=3\"");
    expect_no_rules("[layers=3,]winnow", "after the last ,");
    expect_no_rules("[layers=3]winnow;[layers=]none", "\"layers=\"");
    expect_no_rules("[layers=3]winnow;", "after the last ;");
    expect_no_rules("[layers=0]winnow", "at least 1");
    expect_no_rules("[layers=-3]winnow", "at least 1");
    expect_no_rules("[layers=3x]winnow", "at least 1");
    expect_no_rules("[layers=99999999999999999999]winnow", "at least 1");
    expect_no_rules("[layers=3,layers=4]winnow", "a second condition \"layers\"");
    expect_no_rules("[layers=3]", "no configuration");
    expect_no_rules("[layers=3]winnow;;none", "no configuration");
    expect_no_rules("[layers=3]winnow;none;[layers=4]winnow", "never reached");
    std::printf("rules by shape: as they are written\n");
}
